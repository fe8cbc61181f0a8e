-- Books starts for several callers, in their order, each in all budgets of its charges or in none; gives unused starts back; and changes the
-- costs of starts.
--
-- KEYS  1 the record of the program's last call for this group (see docs/internals/once.md)
--       2… the budgets, then the budgets of slots, then the gates (see the part answer), all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 the frame: numbers, 8 bytes each:
--         the number of this call among those of the program; a random number, for the names of new
--         generations; how many rules follow; how long ago the call was made for the first time;
--         how many gates there are
--         for each budget: the program's history of it (see repair.lua)
--         for each rule: see entries.lua
--         for each budget of slots: the program's report (see slots.lua)
--         for each group of operations that differ only in their last numbers:
--           the kind: RESERVE, CANCEL, SETTLE or RENEW; 1 if the callers have given other programs time
--             to report lost starts
--           the start that each caller has, to be given back first or settled, or 0; when it joined a
--             line for slots, or 0
--           the least wait, spread and horizon (see store.Booking), each 0 if there is none; the
--             class; and 1 if each caller goes first in lines where it has no ticket
--           how many tickets and how many charges each caller has; how many operations are in the group
--           for each operation, of equal callers:
--             for how many
--             the longest wait that is of use; for RENEW, the time within which the caller renews again
--             for each ticket: the charge, the line, the ticket, its state, its round, the share of its lane: see queue.lua
--             for each charge: the index of its slots, or of its rule behind all slots; cost; reserve;
--               whether it is a shadow or, for SETTLE, the new cost; the caller's share, or 0; the
--               weight of that share
--       3 the channel of news
--       4 to 6 only if there are slots or pauses: how many budgets of slots, the program's
--         name, and what the channels of all programs begin with
--       7… the key of a budget that the program knows to be closed, and for how
--         long, in microseconds; and so on
--
-- Result, numbers of 8 bytes each:
--   DONE, now, 0 or, if an earlier copy of the call was done, the server's time then; the number of the call; how
--     long before it was done the call was first made; and what was done
--   NEEDS_BOUNDARIES, now, the time that the calendar boundaries must reach
--   NEEDS_TIME, now, now: the program must state its lengths of time anew, or whether the clock was set
--   LATE, now: a later call of the program was done before
--   SHUT, now, and for each gate that is shut the index of its key and for how long it stays shut
-- Nothing is done unless the result is DONE.
--
-- What was done begins with the operations. ALL_NOW, start says that all callers have that start and nothing held them back. Otherwise, for
-- each operation, until it has no callers left:
--   {how many, state, start, held, paused, over…}, over one for each charge that is a shadow
--
-- state is
--   REFUSED    nothing was spent; also the state of operations that book nothing
--   BOOKED
--   HELD       booked, and slots were taken with it
--   WAITING    only the slots had no room: start says when the caller joined the line
--   UNSETTLED  nothing can be booked before start: then all programs have reported which starts a loss of data forgot, and the caller asks again
--   IN_LINE    the callers joined a line: start is when the first may have its turn. This follows: {when the last may have its turn, how many
--              tickets the first has, for each the charge, the line, the ticket, its state, its round, the share of its lane}
-- held is the 1-based charge that set the start, or 0 if none did. paused is the end of the pause of that charge, or 0.
--
-- Then follows for each budget, see row.lua, queue.lua and lanes.lua:
--   {generation, count, how many starts count now, the end of the last start, and a sum that says which of the next three lists follow: 1 for
--     earlier generations, 2 for a line, 4 for shares in the line}
--   {g1, n1, older, mark, how many more generations, for each its name and its starts}
--   {the line, the costs that wait in it, what queue.tell returned, in how long the first waiter may start; and of the callers without a share: the
--     three cuts, the next ticket of each class, in how long the first of each class will have its turn, and in how long the last of each}
--   {how many lanes follow, for each its class, its share, its cut, its next ticket, in how long its first and its last waiter will have their
--     turn, and 1 if its cut was published in this call}
--
-- and for each budget of slots, see slots.lua:
--   {generation, count, how many programs it knows, in how long the program should ask again at the latest, or 0, how many waiters of the
--     program were called, the arrival of each…}
--
-- needs: frame (min, floor, record_ms, frame, now)
-- defines: call, seed, rule_count, repeated, gate_count, slots_count, budgets, record, decided, recorded, _, out, finish

local call, seed, rule_count, repeated, gate_count
call, seed, rule_count, repeated, gate_count, cursor = struct.unpack('<ddddd', frame, cursor)
-- From now on seed is the name of a generation that begins now: its ordinal, in seconds, and the random number. See repair.lua.
seed = min(floor(now / 1000000), LAST_ORDINAL) * NAMES + seed
local slots_count = tonumber(ARGV[4] or 0)
local budgets = #KEYS - slots_count - gate_count -- the index of the last budget's key

-- The record is the last answer as it was given: decided is its time, and recorded the number of its call.
local record = redis.call('GET', KEYS[1])
local decided, recorded, _ = 0, 0
if record then
  _, decided, _, recorded = struct.unpack('<dddd', record)
end

-- If the answer to this call was lost, give it again, behind its first three numbers; its times are those of decided. If the program has made a
-- later call since, nobody waits for this one.
if recorded == call then
  return struct.pack('<ddd', DONE, now, decided) .. string.sub(record, 25)
elseif recorded > call then
  return struct.pack('<dd', LATE, now)
end

local out = {struct.pack('<ddddd', DONE, now, 0, call, repeated)} -- the answer

-- finish keeps the answer as the record of this call, and returns it.
local function finish()
  local done = table.concat(out)
  redis.call('SET', KEYS[1], done, 'PX', record_ms)
  return done
end

-- part: answer
-- The long way of a call is all that follows the part short. This part has how it adds to the answer, which pauses the program knows, and the
-- gates, which are read before anything is done.
--
-- needs: book (gate_count, out), frame (max, now), row (stored, read)
-- defines: closed, FIVE, answer, LINE_AGAIN, shut_for

-- closed has, by key, for how long the budgets that the program knows to be closed stay closed, in microseconds.
local closed = {}
for i = 7, #ARGV, 2 do
  closed[ARGV[i]] = tonumber(ARGV[i + 1])
end

local FIVE = '<ddddd'

-- answer adds numbers to the answer, in a format of struct.pack.
local function answer(format, ...)
  out[#out + 1] = struct.pack(format, ...)
end

local LINE_AGAIN = 1000000 -- a gate with a line is looked at again after this time

-- shut_for returns for how long the gate of a key stays shut, in microseconds, or 0 if it is open. A gate without a row is shut as long as the
-- program knows. A row shuts its gate until the probe time after its pause is over, until opens (see row.lua), and while it has a line.
local function shut_for(key)
  local head = stored(key)
  if not head then
    return closed[key] or 0
  end
  local r = read(key, head)
  local for_line = r.lined > 0 and LINE_AGAIN or 0

  -- If the clock was set back, any length above 0 has the program make the call again with the row, which is then moved to the clock.
  local for_clock = now < r.seen and 1 or 0
  return max(r.paused + r.probe - now, r.opens - now, for_line, for_clock)
end

-- Gates are the keys of unlimited budgets: see docs/internals/unlimited.md. If a gate is shut, or the program knows that it should be, the call
-- does nothing else: the program makes the call again with the gate's row among the others.
for i = #KEYS - gate_count + 1, #KEYS do
  local left = shut_for(KEYS[i])
  if left > 0 then
    answer('<dd', i, left)
  end
end
if #out > 1 then
  return struct.pack('<dd', SHUT, now) .. table.concat(out, '', 2)
end

-- part: request
-- The requests of a call: its rows, its rules, its budgets of slots, and the charges of each caller. Rows are brought to the time now, and repaired,
-- before any caller is served. Open and find in internal/ledger/request.go do the same in Go.
--
-- needs: age (forward_step, advance), answer (closed), book (seed, rule_count, slots_count, budgets, recorded), frame (min, frame, now),
--     leases (load_slots, report), penalty (penalty.shut, is_free), repair (read_history, repair), row (penalty, load), rule (read_rule),
--     search (search_for, earliest), short (texts), slots (set_aside)
-- defines: rows, rules, rule_of, all_slots, histories, is_to_be_closed, passes_by, charges, find

-- rule_of has, by key, the last rule of each row that is not passed by.
local rows, rules, rule_of, all_slots, histories = {}, {}, {}, {}, {}
for i = 2, budgets do
  histories[i] = read_history(recorded)
end

-- is_to_be_closed reports whether the server may have forgotten a pause of row r that the program knows. A row that is stored and up to date forgot
-- nothing: if it has no pause, the pause was lifted.
local function is_to_be_closed(r)
  return closed[r.key] and (r.history.outdated or not r.stored)
end

-- passes_by reports whether rule u is unlimited, and its row r has no line and closes nothing: then the row is left as it is, like an open gate. It is
-- false if the clock was set back, if the row's pause may only seem to be over, because the clock was set forward, or if is_to_be_closed is true.
local function passes_by(u, r)
  return is_free(u, r) and r.lined == 0 and now >= r.seen and (r.paused == 0 or forward_step(r, now) == 0)
    and not is_to_be_closed(r)
end

-- Read the rules. Several budgets may share one rule: it is read again for each, because rows change their rules. Several rules may share one row.
for _ = 1, rule_count do
  local at, before = cursor, 0
  local u, many, key
  repeat
    cursor = at
    u, many, key = read_rule(before)
    local r = rows[key]
    if not r then
      r = load(KEYS[key], texts[key])
      r.history, rows[key] = histories[key], r
    end
    u.row, rules[#rules + 1] = r, u

    if not passes_by(u, r) then
      local needs = advance(r, now, u)
      if needs then
        return struct.pack('<ddd', needs, now, now)
      end

      -- The first rule of a row repairs it: from then on the row knows what the program knows.
      if not rule_of[key] then
        repair(r, u, now, seed)
        if is_to_be_closed(r) then
          r.paused = now + penalty.shut(r, r.paused - now, closed[r.key], 0, 0)
        end
      end
      rule_of[key] = u
    end
    before = before + 1
  until before == many
end

-- Read the budgets of slots, and the program's report of each.
for i = 1, slots_count do
  local slots = load_slots(KEYS[budgets + i], now)
  if not report(slots, ARGV[5], seed) then
    return struct.pack('<dd', LATE, now)
  end
  set_aside(slots)
  all_slots[i] = slots
end

-- charges reads that many charges of a caller from the frame, and moves the cursor behind them. It returns two lists: a search for each charge of a
-- row, for starts at the time from or later with that spread, and a claim for each charge of slots. The field index of both is the place of the charge
-- among the caller's charges, from 1 on.
local function charges(count, from, spread)
  local list, claims = {}, {}
  for k = 1, count do
    local target, cost, reserve, more, share, weight -- target is the index of the charge's slots or, behind all slots, of its rule
    target, cost, reserve, more, share, weight, cursor = struct.unpack('<dddddd', frame, cursor)
    local is_shadow = more == 1 -- for SETTLE more is the new cost: then is_shadow means nothing, and is not used
    if target <= slots_count then
      claims[#claims + 1] = {slots = all_slots[target], cost = cost, reserve = reserve, shadow = is_shadow, index = k}
    else
      local u = rules[target - slots_count]

      -- A cost above the limit that the upstream told counts as the whole limit, or it would never fit.
      if u.tells then
        cost = min(cost, u.n)
      end

      local s = search_for(u, cost, reserve, from, spread, is_shadow)
      s.more, s.index, s.share, s.weight = more, k, share, weight
      list[#list + 1] = s
    end
  end

  return list, claims
end

-- find returns three values: the earliest start not before t that has room in every budget of the list, shadows left out; the index of the charge that
-- set this start, 0 if none did; and the end of the pause of that charge's row, 0 if it has no pause that ends after from. The argument held is the
-- index of the charge that set t, 0 if none of the list did. Where the calendar boundaries end, find returns nil and the time that they must reach.
--
-- The charges are asked one after the other, round and round, and a later answer becomes t. The search ends when a whole round has not moved t.
local function find(list, from, t, held)
  local paused = 0
  local unmoved = 0 -- how many charges, shadows included, were asked since a charge moved the start
  local k, size = 1, #list -- the charge that is asked next

  -- The charge with the index held has answered t, so begin the round with the charge behind it.
  for i, s in ipairs(list) do
    if s.index == held then
      k = i % size + 1
      paused = s.row.paused > from and s.row.paused or 0
    end
  end

  while unmoved < size do
    local s = list[k]
    unmoved = unmoved + 1
    if not s.shadow then
      local start, need = earliest(s, t)
      if not start then
        return nil, need
      end

      -- A later start begins a new round with this charge as its first.
      if start > t then
        t, unmoved, held = start, 1, s.index
        paused = s.row.paused > from and s.row.paused or 0
      end
    end

    k = k % size + 1
  end
  return t, held, paused
end

-- part: serve
-- Serving one caller after the other, and the answer for each row and budget of slots.
--
-- needs: answer (FIVE, answer), book (seed, budgets, out, finish), bucket (spent), entries (later, book, remove, counts), frame (max, min,
--     ceil, floor, frame, now), leases (save_slots), line (read_tickets, open_from, stand, quit, renew, started, keep_behind), offers
--     (queue.free, queue.call, queue.turns, queue.tell), penalty (is_free), queue (lanes_of, queue, queue.of, queue.waiting, queue.lane,
--     queue.write), repair (all_told), request (rows, rule_of, all_slots, charges, find), row (open, names_of, latest, save), rule (window),
--     search (is_slow, weigh, earliest, resume), served (served_of), slots (leave_line, acquire, next_change, ready, tell_called)

-- may_be_one reports whether one start at t with the cost of many equal callers, if there is room for it, is the same as a start for each of them.
local function may_be_one(list, many, t)
  for _, s in ipairs(list) do
    -- In a leaky bucket starts follow each other. A shadow tells each caller its own delay. All together may cost more than the limit lets start at
    -- once. After a penalty one caller goes first, as the probe.
    if s.rule.unit > 0 or s.shadow or s.each * many > s.most or t < s.row.paused + s.row.probe then
      return false
    end
  end
  return true
end

-- run returns how many of the equal callers start together at t, the first start of one of them after a wait, at least 1. The starts of one part of the
-- window share an entry, so up to s.fits callers start together, if the row has room for them.
local function run(list, claims, callers, t)
  local s, r = list[1], list[1].row

  -- The room is counted below in one row alone, behind all its entries and without a slow start. In all other cases callers start one by one.
  local has_one_row = #list == 1 and #claims == 0 and not s.shadow
  if s.fits == 1 or not has_one_row or is_slow(s.rule, r) or t < latest(r) then
    return 1
  end

  open(r)
  local left = s.most - later(r, t - s.span)
  return max(1, min(callers, s.fits, floor(left / s.each)))
end

-- first_start finds the next start of equal callers. It clears want.together if they cannot all start together. It returns four values:
--
--   when the first of the callers can start, not before from
--   how many of the callers can start then
--   the index of the charge or claim that set that time, 0 if none did
--   the end of the pause that closes this charge or claim, 0 if none does
--
-- The rows have no room before min_start, which the charge by set, or none if by is 0. Where the calendar boundaries end, the four values are nil,
-- and a fifth is the time that the boundaries must reach.
local function first_start(list, claims, callers, from, want, min_start, by)
  local open_at, closed_by, first_room, set_by = open_from(claims, from, min_start, by)

  -- All callers start at open_at, if there is room for all.
  local many = callers
  local t, held, paused
  if want.together and first_room == open_at and may_be_one(list, callers, open_at) then
    for _, s in ipairs(list) do
      weigh(s, s.each * callers)
    end
    t, held, paused = find(list, open_at, open_at, 0)
  end

  -- There is one caller, or not all can start at open_at: look for a start of one. The callers behind it are not tried together any more.
  if t ~= open_at then
    many, want.together = 1, false

    -- A search that was weighed for all callers begins afresh, with the cost of one.
    for _, s in ipairs(list) do
      if s.cost ~= s.each then
        weigh(s, s.each)
      end
    end

    -- stand has asked a single row already, and found min_start.
    if want.horizon > 0 and #list == 1 and #claims == 0 then
      local r = list[1].row
      t, held, paused = min_start, by, 0
      if by > 0 and r.paused > from then
        paused = r.paused
      end
    else
      t, held, paused = find(list, from, first_room, set_by)
    end
    if not t then
      return nil, nil, nil, nil, held -- in place of an index, find returns the time that the boundaries must reach
    end

    -- Equal callers that wait, and would share an entry, are booked together.
    if callers > 1 and want.horizon > 0 and t > open_at then
      many = run(list, claims, callers, t)
    end
  end

  -- If no charge set the start, the claim whose pause ends last did.
  if held == 0 and closed_by then
    held, paused = closed_by, open_at
  end
  return t, many, held, paused
end

-- book_all books one start at t in the row of each search, shadows included, with the cost of that many equal callers, and counts it. It notes for
-- resume which entries have changed, and whether the search can go on behind the start.
local function book_all(list, many, t)
  for _, s in ipairs(list) do
    local r = s.row
    r.low, r.grown = MAX_NUMBER, 0 -- no entry has changed yet
    s.cost = s.each * many
    book(r, t, s)
    r.count = r.count + (s.rule.peak == 0 and 0 or s.cost) -- an unlimited row counts no starts

    -- The next search can go on behind this start only if no other row set it: see resume.
    s.cost, s.start = s.each, (s.alone == t or #list == 1) and t
  end
end

-- answer_shadows adds to the answer, for each shadow, by how many microseconds the shadow would have delayed the start at t. It returns nil, or the
-- time that the calendar boundaries must reach, if they end too early.
local function answer_shadows(list, t)
  for _, s in ipairs(list) do
    if s.shadow then
      local start, need = earliest(s, t)
      if not start then
        return need
      end
      answer('<d', start - t)
    end
  end
end

-- start books one start for as many of the equal callers as can start at the same time, and takes the slots of a start at now. Or it books nothing, and
-- answers all of them that they are refused, wait for slots, or are unsettled. It returns how many it answered or, if the calendar boundaries end too
-- early, 0 and the time that they must reach. Arguments are as for first_start; max_wait is the longest wait that is of use, and arrival is when the
-- callers joined a line for slots, 0 if they joined none. An operation with claims has one caller.
local function start(list, claims, callers, arrival, from, max_wait, want, min_start, by)
  local t, many, held, paused, need = first_start(list, claims, callers, from, want, min_start, by)
  if not t then
    return 0, need
  end

  -- A start that is still to come takes no slots, so its caller leaves the line for slots.
  if #claims > 0 and arrival > 0 and t > now then
    leave_line(claims, arrival)
  end

  -- No start is booked farther ahead than FARTHEST, however long the caller would wait.
  if t - now > min(FARTHEST, max_wait) then
    quit(list, want)
    answer(FIVE, callers, REFUSED, t, held, paused)
    return callers
  end

  -- After a loss of data, programs first report which starts they had; a caller waits for that only once. See docs/internals/state-loss.md.
  local opens = all_told(list)
  if opens > now and not want.asks_again then
    answer(FIVE, callers, UNSETTLED, opens, held, paused)
    return callers
  end

  -- Slots are taken only for a start at now: nobody knows how many will be free later.
  local state = BOOKED
  if #claims > 0 and t == now then
    local missing, joined_at = acquire(claims, arrival, max_wait > 0, now)
    if missing then
      quit(list, want)
      answer(FIVE, callers, joined_at and WAITING or REFUSED, joined_at or t, missing, 0)
      return callers
    end
    state = HELD
  end
  answer(FIVE, many, state, t, held, paused)

  -- Shadows are asked before the start is booked in their rows, or they would count it.
  need = answer_shadows(list, t)
  if need then
    return 0, need
  end

  book_all(list, many, t)
  if want.horizon > 0 then
    started(list, want, held, t, from)
    quit(list, want, true, many)
  end
  return many
end

-- serve serves equal callers, one or several at a time. Callers with a horizon go to stand first, which puts them in line if their start is beyond the
-- horizon or if they would pass others, or refuses them. All others go to start. serve returns nil, or the time that the calendar boundaries must
-- reach, if they end too early. The arguments are as for start.
local function serve(list, claims, callers, arrival, from, max_wait, want)
  want.together, want.fresh = callers > 1, not next(want.tickets)
  if want.horizon > 0 then
    keep_behind(list, want)
  end

  while callers > 0 do
    local served, need = 0, nil
    local min_start, by = from, 0
    if want.horizon > 0 then
      served, need, min_start, by = stand(list, want, claims, callers, arrival, from, max_wait)
    end

    -- No caller was put in line or refused, so the first one needs no line.
    if served == 0 and not need then
      want.together = want.together and callers > 1 -- for a last caller no start of several is tried
      served, need = start(list, claims, callers, arrival, from, max_wait, want, min_start, by)
    end
    if need then
      return need
    end

    -- For the next caller, the searches go on where they stand.
    callers = callers - served
    if callers > 0 then
      for _, s in ipairs(list) do
        resume(s)
      end
    end
  end
end

-- untail notes that room at t was given back: callers no longer keep behind starts at t or later, so that one of them can take the room. If the row's
-- pin was given back, the row has none any more. Waiters are told once more whose turn it is.
local function untail(r, t)
  r.t1, r.t2, r.t3 = min(r.t1, t - 1), min(r.t2, t - 1), min(r.t3, t - 1)
  if r.pin == t then
    r.pin = 0
  end
  queue.free(r)
end

-- trim_tails notes that a past start at t was taken out, because its caller books again at once. Other callers still keep behind the starts that are
-- booked, but behind no time after the last of these. After untail they would keep behind no start from t on, and callers in line could pass callers
-- with booked starts.
local function trim_tails(r, t)
  local last = latest(r)
  r.t1, r.t2, r.t3 = min(r.t1, last), min(r.t2, last), min(r.t3, last)
  if r.pin == t then
    r.pin = 0
  end
  queue.free(r)
end

-- forgo takes what a share was charged for a start that was given back off the share's lane or, if it has none, off its known tag. It does nothing if
-- the row of search s has no line with shares.
local function forgo(s, class)
  local q = queue.of(s.row)
  local c = q and q.many and queue.lane(q, class, s.share)
  if c then
    lanes_of().refund(q, c, s.each)
    served_of().count(q, class, s.share, -s.each)
  elseif q and q.many then
    lanes_of().give_back(q, class, s.share, s.weight, s.each)
  end
end

-- settle changes the cost of the start at the time booked from s.each to s.more in the row of search s, if the start still counts. It returns true, or
-- false, with nothing changed, if the rule's calendar boundaries do not reach the start.
local function settle(s, booked)
  if not counts(s, booked, now) then
    return true
  elseif not window(s.rule, booked) then
    return false
  end

  local cost, t = s.more, booked
  if cost < s.each then
    untail(s.row, now) -- callers no longer keep behind booked starts, so that one of them can take the room
  end

  -- Take the start out, and book it again with the new cost. If it cannot be taken out it stays, and the rest of a higher cost is booked at the same
  -- time or, in a leaky bucket, behind the start.
  local is_out = remove(s.row, booked, s)
  if not is_out then
    cost = cost - s.each
    t = t + s.each * s.rule.unit
  end

  -- A higher cost closes the row of a leaky bucket for no longer than FARTHEST.
  if s.rule.unit > 0 then
    cost = min(cost, ceil(FARTHEST / s.rule.unit))
  end

  if cost > 0 then
    book(s.row, t, weigh(s, cost))
  end

  s.row.count = s.row.count + max(0, s.more - s.each) -- a count never falls
  return true
end

-- take_back takes the start at the time booked out of the row of search s, for an operation of that kind, and notes that there is room for others. It
-- does nothing if booked is 0, if the row counts no starts, or if the start cannot be taken out any more: see remove. class is the caller's.
local function take_back(s, kind, booked, class)
  local is_out = booked > 0 and not is_free(s.rule, s.row) and remove(s.row, booked, s)
  if not is_out then
    return
  end

  -- A caller that replaces a past start came before all that wait now.
  if kind == RESERVE and booked <= now then
    trim_tails(s.row, booked)
    s.late = true
  else
    untail(s.row, booked)
  end

  -- A caller that books again keeps its turn, so its share stays charged for it.
  if kind == CANCEL then
    forgo(s, class)
  end
end

-- operate carries out one operation; the head of this file describes its numbers. First it settles or takes back the start at the time booked, 0 if
-- there is none. Then RESERVE serves the callers, with no start before from, RENEW keeps their offers from lapsing for the time max_wait, and the other
-- kinds take the caller out of its lines. It returns nil, or the time that the calendar boundaries must reach, if they end too early.
local function operate(kind, callers, max_wait, booked, arrival, from, list, claims, want)
  for _, s in ipairs(list) do
    if kind ~= SETTLE then
      take_back(s, kind, booked, want.class)
    elseif s.rule.peak > 0 then -- an unlimited row counts no costs
      local is_reached = settle(s, booked)
      if not is_reached then
        return booked
      end
    end
  end

  if kind == RENEW then
    renew(list, want, max_wait)
    answer(FIVE, callers, REFUSED, now, 0, 0)
  elseif kind ~= RESERVE then
    quit(list, want)
    answer(FIVE, callers, REFUSED, booked, 0, 0)
  else
    return serve(list, claims, callers, arrival, from, max_wait, want)
  end
end

-- Serve the operations one after the other.
while cursor <= #frame do
  local kind, informed, booked, arrival, not_before, spread, horizon, class, first, tickets, count, many
  kind, informed, booked, arrival, not_before, spread, horizon, class, first, tickets, count, many, cursor =
    struct.unpack('<dddddddddddd', frame, cursor)

  for _ = 1, many do
    local callers, max_wait
    callers, max_wait, cursor = struct.unpack('<dd', frame, cursor)
    local want = {horizon = horizon, class = class, first = first == 1, tickets = read_tickets(tickets),
      asks_again = informed == 1}
    local from = now + not_before
    local list, claims = charges(count, from, spread)
    local need = operate(kind, callers, max_wait, booked, arrival, from, list, claims, want)
    if need then
      return struct.pack('<ddd', NEEDS_BOUNDARIES, now, need)
    end
  end
end

-- Answer for each row, and save the rows that hold anything.
for i = 2, budgets do
  local r = rows[i]

  -- Offer waiters the room that all operations of this call have left.
  queue.call(r, rule_of[i], now)
  local hurry = queue.tell(r, ARGV[3])

  -- The row is saved after tell, because its line keeps which cuts were published.
  if rule_of[i] and (r.stored or r.size > 0 or r.paused > 0) then
    if r.generation == 0 then
      r.generation = seed
    end
    save(r, queue.write(r))
  end

  -- The answer has the line only if it is stored: a line that was too large is lost.
  local q = r.lined > 0 and r.queue

  -- lists is a sum of 1 for earlier generations, 2 for a line, and 4 for shares in it.
  local lists = r.g1 ~= 0 and 1 or 0
  if q then
    lists = lists + (q.many and 2 + 4 or 2)
  end
  answer(FIVE, r.generation, r.count, spent(r), latest(r), lists)
  if r.g1 ~= 0 then
    answer(FIVE, r.g1, r.n1, r.older, r.mark, #names_of(r) / PAIR)
    out[#out + 1] = r.names
  end

  if q then
    local first, last, soon, shares = queue.turns(r, rule_of[i], now)
    answer('<ddddddd', q.id, queue.waiting(q, queue.CLASSES), hurry, soon, q[1].cut, q[2].cut, q[3].cut)
    answer('<ddddddddd', q[1].joined, q[2].joined, q[3].joined, first[1], first[2], first[3], last[1], last[2], last[3])
    if shares then
      answer('<d', #shares)
      out[#out + 1] = table.concat(shares)
    end
  end
end

-- Answer for each budget of slots.
for _, slots in ipairs(all_slots) do
  tell_called(slots, ARGV[6])
  save_slots(slots)
  local list = ready(slots)
  answer('<ddddd', slots.generation, slots.count, #slots.nodes, next_change(slots), #list)
  for _, arrival in ipairs(list) do
    answer('<d', arrival)
  end
end
return finish()
