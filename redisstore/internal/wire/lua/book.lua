-- Books starts for several callers, in their order, each in all budgets of its charges or in none; gives unused starts back; and changes the
-- costs of starts.
--
-- KEYS  1 the record of the program's last call for this group (see docs/internals/once.md)
--       2… the budgets, then the budgets of slots, then the gates, all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 the frame: numbers, 8 bytes each:
--         the number of this call among those of the program; a random number, to name new generations
--         with; how many rules follow; how long ago the call was made for the first time;
--         how many gates, see below
--         for each budget: the program's history of it (see repair.lua)
--         for each rule: see entries.lua
--         for each budget of slots: the program's report (see slots.lua)
--         for each group of operations that differ only in their last numbers:
--           the kind: RESERVE, CANCEL, SETTLE or RENEW; 1 if the callers have given other programs time
--             to tell
--           the start that they have, to give back first or to settle, or 0; when they
--             joined a line for slots, or 0
--           the least wait, spread, horizon (see throttle.Booking), 0 for none, their class,
--             and 1 if they had a start before and joined no line
--           how many tickets and charges each has, how many operations these are
--           for each operation, of equal callers:
--             for how many
--             the longest wait that is of use; to renew, within what time the caller will say again
--               that it waits
--             for each ticket: the charge, the line, the ticket, its state, its round, the share of its lane: see queue.lua
--             for each charge: the index of its slots, or of its rule behind all slots, cost,
--               reserve, whether it is a shadow or, to change, the new cost, and the caller's share, 0 if it has none, and
--               that share's weight
--       3 the channel of news
--       4 to 6 only if there are slots or pauses: how many budgets of slots, the program's
--         name, and what the channels of all programs begin with
--       7… the key of a budget that the program knows to be closed, and for how
--         long, in microseconds; and so on
--
-- Result, numbers of 8 bytes each:
--   DONE, now, 0 or the time then if it was done before, the number of the call, how long ago it was
--   first made when it was done, what was done; or NEEDS_BOUNDARIES, now, the time that the calendar boundaries
--   must reach, and nothing was done; or NEEDS_TIME, now, now if the program must say again what it says of lengths of time, or
--   whether the clock was set, and nothing was done; or LATE, now if a later call was made before; or SHUT,
--   now, and for each gate that is shut the index of its key and for how long it is, and
--   nothing was done.
--
-- What was done begins with the operations. ALL_NOW, start says that all callers have a start then and nothing held them back. Otherwise, for
-- each operation, until it has no callers left:
--   {how many, state, start, held, paused, over…}, over one for each charge that is a shadow
--
-- state is
--   REFUSED    nothing was spent; also the state of operations that book nothing
--   BOOKED
--   HELD       booked, and slots were taken with it
--   WAITING    only the slots had no room: start says when the caller joined the line
--   UNSETTLED  nothing can be booked before start, when all programs have told which starts a loss of data forgot: then ask again
--   IN_LINE    the callers joined a line: start is when the first may have its turn, and {when the last may, how many tickets it has, for each
--              the charge, the line, the ticket, its state, its round, the share of its lane} follows
-- held is the 1-based charge that set the start, 0 if none held it back, and paused the end of the pause that closes it, or 0.
--
-- Then follows for each budget, see row.lua, queue.lua and lanes.lua:
--   {generation, count, how many starts count now, the end of the last start, and a sum that says which of the next three lists follow: 1 for
--     earlier generations, 2 for a line, 4 for shares in it}
--   {g1, n1, older, mark, how many more generations, for each its name and its starts}
--   {the line, the costs that wait in it, whether waiters should hurry whose turn it is, in how long the first waiter may start, the three cuts,
--     the next ticket of each class, and in how long the first and the last of each class will have their turn}, of callers without a share
--   {how many lanes this call was about, for each its class, its share, its cut, its next ticket, in how long its first and its last waiter will
--     have their turn, and 1 if its cut is new}
--
-- and for each budget of slots, see slots.lua:
--   {generation, count, how many programs it knows, in how long the program should ask again at the latest, or 0, how many waiters of the
--     program's line were called, when each of them arrived…}
--
-- needs: frame (min, floor, record_ms, frame, now)
-- defines: call, seed, rule_count, repeated, gate_count, slots_count, budgets, record, decided, recorded, _, out, finish

local call, seed, rule_count, repeated, gate_count
call, seed, rule_count, repeated, gate_count, cursor = struct.unpack('<ddddd', frame, cursor)
seed = min(floor(now / 1000000), LAST_ORDINAL) * NAMES + seed -- of what begins now: see repair.lua
local slots_count = tonumber(ARGV[4] or 0)
local budgets = #KEYS - slots_count - gate_count -- the last key of one

-- The record is the answer as it was given.
local record = redis.call('GET', KEYS[1])
local decided, recorded, _ = 0, 0
if record then
  _, decided, _, recorded = struct.unpack('<dddd', record)
end

-- If the answer to this call was lost, give it again. If the program has made a later call since, nobody waits for this one.
if recorded == call then
  return struct.pack('<ddd', DONE, now, decided) .. string.sub(record, 25) -- in the time of then: the clock may have been set
elseif recorded > call then
  return struct.pack('<dd', LATE, now)
end

local out = {struct.pack('<ddddd', DONE, now, 0, call, repeated)} -- the answer

-- finish records what was done, and returns the answer.
local function finish()
  local done = table.concat(out)
  redis.call('SET', KEYS[1], done, 'PX', record_ms)
  return done
end

-- part: answer
-- What the long way of a call answers with, and what it knows besides the frame; and the gates, which are looked at before anything is done.
--
-- needs: book (gate_count, out), frame (max, now), row (stored, read)
-- defines: closed, FIVE, answer, LINE_AGAIN, shut_for

-- closed has the budgets that the program knows to be closed, and for how long.
local closed = {}
for i = 7, #ARGV, 2 do
  closed[ARGV[i]] = tonumber(ARGV[i + 1])
end

local FIVE = '<ddddd'

-- answer adds numbers to the answer.
local function answer(format, ...)
  out[#out + 1] = struct.pack(format, ...)
end

local LINE_AGAIN = 1000000 -- a gate with a line is looked at again after this time

-- shut_for returns for how long a gate stays shut, 0 if it is open. A clock that was set back, and a line in which callers may still wait, are
-- for the other scripts to settle.
local function shut_for(key)
  local head = stored(key)
  if not head then
    return closed[key] or 0
  end
  local r = read(key, head)
  return max(r.paused + r.probe - now, r.opens - now, r.lined > 0 and LINE_AGAIN or 0, now < r.seen and 1 or 0)
end

-- Gates are the keys of unlimited budgets: see docs/internals/unlimited.md. If a gate is shut, or the program knows that it should be, nothing
-- is done but to say so: the program makes the call again with its row among the others.
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

local rows, rules, rule_of, all_slots, histories = {}, {}, {}, {}, {}
for i = 2, budgets do
  histories[i] = read_history(recorded)
end

-- is_to_be_closed reports whether the server forgot a pause that the program knows. A row that still knows counts more: the pause may have been
-- lifted.
local function is_to_be_closed(r)
  return closed[r.key] and (r.history.outdated or not r.stored)
end

-- passes_by reports whether a rule is unlimited and not closed, and its row is left as it is, like an open gate. If the clock was set forward a
-- pause may only seem to be over.
local function passes_by(u, r)
  return is_free(u, r) and r.lined == 0 and now >= r.seen and (r.paused == 0 or forward_step(r, now) == 0)
    and not is_to_be_closed(r)
end

-- Read the rules. Several budgets may share one rule, and several rules one row.
for _ = 1, rule_count do
  local at, behind, u, many, key = cursor, 0
  repeat
    cursor = at
    u, many, key = read_rule(behind)
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
    behind = behind + 1
  until behind == many
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

-- charges returns a caller's charges: a list of searches for starts, and a list of claims of slots.
local function charges(count, from, spread)
  local list, claims = {}, {}
  for k = 1, count do
    local index, cost, reserve, more, share, weight
    index, cost, reserve, more, share, weight, cursor = struct.unpack('<dddddd', frame, cursor)
    if index <= slots_count then
      claims[#claims + 1] = {slots = all_slots[index], cost = cost, reserve = reserve, shadow = more == 1, index = k}
    else
      local u = rules[index - slots_count]
      if u.tells then
        cost = min(cost, u.n) -- a cost above the limit that the upstream told counts as all of it
      end
      local s = search_for(u, cost, reserve, from, spread, more == 1)
      s.each, s.more, s.index, s.share, s.weight = cost, more, k, share, weight
      list[#list + 1] = s
    end
  end
  return list, claims
end

-- find returns the earliest start not before t that has room in every budget that counts, the charge that set it, and the end of the pause that
-- closes that charge, 0 if none does. held is the charge that set t, if a charge did: the charge behind it is asked first. Each answer is a lower
-- bound for all budgets, so the search ends when a whole round moves nothing. Where the boundaries end it returns nil, and the time up to which
-- more are needed.
local function find(list, from, t, held)
  local paused, still, k, size = 0, 0, 1, #list

  -- The charge that has set t knows already that it has room then, so the next one is asked first.
  for i, s in ipairs(list) do
    if s.index == held then
      k, paused = i % size + 1, s.row.paused > from and s.row.paused or 0
    end
  end

  while still < size do
    local s = list[k]
    still = still + 1
    if not s.shadow then
      local start, need = earliest(s, t)
      if not start then
        return nil, need
      end
      if start > t then
        t, still, held = start, 1, s.index
        paused = s.row.paused > from and s.row.paused or 0
      end
    end

    k = k % size + 1
  end
  return t, held, paused
end

-- part: line
-- Callers that have to wait in line for a start; see queue.lua.
--
-- What a caller wants, w, is its class, its horizon, 0 if it stands in no line, its tickets
-- by charge, and whether it goes first in lines where it has none. A ticket has the share of its lane.
--
-- needs: answer (FIVE, answer), book (seed, out), frame (max, min, floor, frame, cursor, now), offers (queue.before, queue.count,
--     queue.leave, queue.hold, queue.pass, queue.call), penalty (is_free), queue (lanes_of, queue, queue.of, queue.waiting, queue.lane,
--     queue.ahead, queue.before_newcomer, queue.behind, queue.make, queue.line_up), request (find), search (search_for, earliest), served
--     (served_of), slots (leave_line, first_open), turn (turn, turn.at)
-- defines: read_tickets, stand, quit, renew, started, keep_behind

local read_tickets, stand, quit, renew, started, keep_behind
do
local WAITS, PASSED, HAD = queue.WAITS, queue.PASSED, queue.HAD

-- read_tickets reads the tickets of a caller, by charge. The line that gave a ticket may have ended
-- since.
function read_tickets(count)
  local by_charge = {}
  for _ = 1, count do
    local index, w = 0, {}
    index, w.id, w.ticket, w.state, w.round, w.share, cursor = struct.unpack('<dddddd', frame, cursor)
    by_charge[index] = w
  end
  return by_charge
end

-- ticket_of returns the caller's ticket in the line of a search, the line, and the caller's lane. Each is nil if it does not
-- exist. A ticket of a lane that was forgotten is void.
local function ticket_of(want, s)
  local w, q = want.tickets[s.index], queue.of(s.row)
  local has = w and q and w.id == q.id
  local c = q and queue.lane(q, want.class, has and w.share or s.share)
  return has and c and w.ticket < c.joined and w or nil, q, c
end

-- held_by returns the search whose line a caller has to stand in, or nil, and when the caller will have its
-- turn there. Then it returns the earliest time of a start, and the index of the
-- charge that set that time, or 0. A caller that had its turn in one row and waits in a second one may find the start in the
-- first row far away again, and so on for ever. So it gets the
-- first start that is possible in both: one such start at a time in each row.
local function held_by(list, want, from)
  local held, turn_at
  local least, by = from, 0
  for _, s in ipairs(list) do
    if not s.shadow then
      -- Room is offered once in a call, before its first caller looks at the line.
      if not s.row.called then
        s.row.called = true
        queue.call(s.row, s.rule, now)
      end
      local w, q, c = ticket_of(want, s)

      -- A ticket says who stands before the caller. After a start that was given up, only higher classes do; before a newcomer all do.
      local ahead = 0
      if w then
        ahead = queue.ahead(q, want.class, c, w.ticket)
      elseif q and want.first then
        ahead = queue.waiting(q, want.class - 1)
      elseif q then
        ahead = queue.before_newcomer(q, want.class, s.share, s.weight)
      end
      local t, need = earliest(s, from)
      if not t then
        return nil, nil, nil, nil, need
      end
      s.alone = t
      if t > least then
        least, by = t, s.index
      end
      if ahead > 0 then
        t = max(t, now + 1) -- the waiters before it do not start now, so this one waits for some time
      end
      local before = ahead > 0 and ahead or (w and queue.before(c, w) or 0)
      if before > 0 and (ahead > 0 or t - from > want.horizon) then
        t = max(t, turn.at(s.rule, s.reserve, from, s.each, before + s.each))
      end
      if ahead > 0 and s.row.paused > 0 then -- turn.at does not know that a slow start has room for a part of them only
        local together = search_for(s.rule, min(before + s.each, s.most), s.reserve, from, 0, false)
        t = max(t, earliest(together, from) or t)
      end
      if c and not (want.first or w and w.state == HAD) and (t - from > want.horizon or c.stood) then
        t = max(t, c.furthest or 0) -- none starts, or is told to come, before one of this call that goes first
      end
      local far = t - from > want.horizon

      -- It had its turn in this row: a start beyond the horizon is for one caller at a time, whose start is the pin.
      if far and w and w.state == PASSED then
        far = s.row.pin > from + want.horizon
      end

      -- Of several lines, the caller stands in the line with the latest turn.
      if (ahead > 0 or far) and not (turn_at and turn_at >= t) then
        held, turn_at = s, t
      end
    end
  end

  return held, turn_at, least, by
end

-- line_up puts callers in the line of a search, in which the first of them will have its
-- turn then, and answers.
local function line_up(list, want, s, callers, turn_at, max_wait)
  local t_last = turn_at
  if callers > 1 then
    local q = queue.of(s.row)
    local rank = q and queue.behind(q, want.class, s.share, s.weight, s.each * callers) or s.each * callers
    t_last = max(t_last, turn.at(s.rule, s.reserve, now, s.each, rank))
  end

  if t_last - now > max_wait then
    callers, t_last = 1, turn_at -- the others are asked one by one
  end

  -- The caller waits in the line of s now, so offers in its other lines go to other waiters.
  for _, o in ipairs(list) do
    local w, q, c = ticket_of(want, o)
    if w and o ~= s and w.ticket < c.cut then
      queue.pass(q, c, w, o.each)
    end
  end

  -- A caller that had a start goes to the front. A new caller gets the next ticket of its lane.
  local w, q, c = ticket_of(want, s)
  if not w then
    w = {state = WAITS, round = 0}
    if q and want.first then
      w.ticket, c = FRONT, c or queue.make(q, want.class, s.share, s.weight, s.each)
    else
      local stood
      q, w.ticket, c, stood = queue.line_up(s.row, want.class, s.share, s.weight, s.each, callers, s.reserve, want.horizon, seed)
      if stood < callers then
        callers, t_last = stood, turn_at
      end
    end

    w.id, w.share = q.id, c.share or 0
    want.tickets[s.index] = w
  end

  c.furthest = max(c.furthest or 0, turn_at) -- the callers behind it in this call do not start before

  -- The waiter's turn has come, and there is no room yet: it counts among the offers.
  if w.state == HAD or w.state ~= PASSED and w.ticket < c.cut then
    queue.count(q, c, w, s.each, now)
    q[want.class].reserve, q[want.class].horizon = s.reserve, want.horizon
  end

  if w.ticket < c.cut then
    -- Room for a large cost comes together slowly, so the offer must not lapse meanwhile.
    if s.each > 1 then
      queue.hold(q, c, now, min(max(ASK_LEAST, floor((turn_at - now) / 2)), ASK_LAST))
    end

    c.stood = (c.stood or 0) + s.each
  end

  answer(FIVE, callers, IN_LINE, turn_at, s.index, s.row.paused > s.from and s.row.paused or 0)
  local count, told = 0, {}
  for k, t in pairs(want.tickets) do
    count = count + 1
    told[#told + 1] = struct.pack('<dddddd', k, t.id, t.ticket, t.state, t.round, t.share)
  end

  answer('<dd', t_last, count)
  out[#out + 1] = table.concat(told)
  if want.fresh then
    want.tickets = {} -- the next of them has others
  end

  return callers
end

-- quit ends what callers have in lines: they leave, or start; many is how many.
function quit(list, want, starts, many)
  for _, s in ipairs(list) do
    local w, q, c = ticket_of(want, s)
    if w then
      -- A waiter that had its turn, or stands in front, was counted before.
      if q.many and starts and w.state ~= HAD and w.ticket ~= FRONT then
        served_of().count(q, want.class, c.share, s.each)
      end
      queue.leave(q, c, w, s, starts)
      w.state = HAD
    elseif q and q.many and starts and not want.first and not s.shadow then
      lanes_of().start(q, want.class, s.share, s.weight, s.each * many)
      served_of().count(q, want.class, s.share, s.each * many)
    end
  end
end

-- renew keeps the offer of a waiter that came and waits for more room than there is, for a length of time.
function renew(list, want, length)
  for _, s in ipairs(list) do
    local w, q, c = ticket_of(want, s)
    if w and s.each > 1 and w.ticket < c.cut then
      queue.hold(q, c, now, length)
    end
  end
end

-- started notes a start that was waited for. Callers of its class and of lower classes
-- keep behind it in the row that held it, the next of equal callers as well. A start beyond the horizon is the row's pin.
function started(list, want, held, t, from)
  for _, s in ipairs(list) do
    local tail = 't' .. floor(want.class) -- Lua 5.4 has 1.0 of a number of a frame
    if is_free(s.rule, s.row) then
      -- the row is left as it is
    elseif t - from > want.horizon then
      s.row.pin = t
    elseif s.index == held then
      s.row[tail] = max(s.row[tail], t)
      s.tail = s.follows and max(s.tail, t) or s.tail
    end
  end
end

-- keep_behind lets a caller keep behind the starts that others waited for, but where it had
-- a start itself.
function keep_behind(list, want)
  local counting = 0 -- searches whose row counts starts
  for _, s in ipairs(list) do
    counting = counting + (is_free(s.rule, s.row) and 0 or 1)
  end

  for _, s in ipairs(list) do
    local w, had = ticket_of(want, s), want.first
    if w then
      had = w.state == HAD or w.ticket == FRONT
    end
    for k = 1, had and 0 or want.class do
      s.tail = max(s.tail, s.row['t' .. k])
    end
    s.horizon, s.single = want.horizon, counting == 1
    s.follows = not had
  end
end

-- refuse refuses callers that may not wait until their turn in the line of a search, and returns for how many it did that, and the calendar
-- boundaries that it needs, if it needs more. The rows together, and the claims, may have room later than each of the rows:
-- no earlier than least, which the charge by set.
local function refuse(list, want, claims, s, callers, turn_at, max_wait, least, by)
  local t, held, paused = turn_at, s.index, s.row.paused > s.from and s.row.paused or 0

  -- A caller that waits for any time is not refused, and needs no later bound.
  if max_wait < MAX_NUMBER and #list + #claims > 1 then
    local from, gate = s.from, nil
    if #claims > 0 then
      from, gate = first_open(claims, from, now)
    end
    if from > least or gate and from == least and gate < by then -- of those that set it the first counts
      by = 0
    end
    local start, index, till = find(list, s.from, max(least, from), by)
    if not start then
      return 0, index
    elseif start > t or start == t and index == 0 then
      t, held, paused = start, index, till
    end
    if held == 0 then
      held, paused = gate, from
    end
  end

  if max_wait > 0 and t - now <= max_wait then
    return 0
  end

  answer(FIVE, callers, REFUSED, t, held, paused)
  quit(list, want)
  return callers
end

-- stand puts callers in a line, if they have to stand in one, or refuses them. It returns
-- how many it did that for, the calendar boundaries that it needs, if it needs more, and for
-- one that starts what held_by returns.
function stand(list, want, claims, callers, arrival, from, max_wait)
  local s, turn_at, least, by, need = held_by(list, want, from)
  if need or not s then
    return 0, need, least, by
  end

  -- The line for a start comes first: the caller leaves the line for slots.
  if #claims > 0 and arrival > 0 then
    leave_line(claims, arrival)
  end

  local refused
  refused, need = refuse(list, want, claims, s, callers, turn_at, max_wait, least, by)
  if refused > 0 or need then
    return refused, need
  end

  return line_up(list, want, s, callers, turn_at, max_wait)
end
end

-- part: serve
-- Serving one caller after the other, and the answer for each row and budget of slots.
--
-- needs: answer (FIVE, answer), book (seed, budgets, out, finish), bucket (spent), entries (later, book, remove, counts), frame (max, min,
--     ceil, floor, frame, now), leases (save_slots), line (read_tickets, stand, quit, renew, started, keep_behind), offers (queue.free,
--     queue.call, queue.turns, queue.tell), penalty (is_free), queue (lanes_of, queue, queue.of, queue.waiting, queue.lane, queue.write),
--     repair (all_told), request (rows, rule_of, all_slots, charges, find), row (open, names_of, latest, save), rule (window), search
--     (weigh, earliest, resume), served (served_of), slots (leave_line, first_open, acquire, next_change, ready, tell_called)

-- together weighs the charges for several callers at the moment t, where they are the same
-- as one that costs as much, and none has to go first after a penalty.
local function together(list, many, t)
  for _, s in ipairs(list) do
    if s.rule.unit > 0 or s.shadow or s.each * many > s.most or t < s.row.paused + s.row.probe then
      return false
    end
  end
  for _, s in ipairs(list) do
    weigh(s, s.each * many)
  end
  return true
end

-- run returns how many equal callers that have to wait start at t, when one of them can: those that would
-- start within a part of the window, which share an entry anyway, as far as there is room for them behind all that
-- is booked. They are one request, as far as the row is concerned, which costs as much as they do.
local function run(list, claims, callers, t)
  local s, r = list[1], list[1].row
  if s.fits == 1 or #list > 1 or #claims > 0 or s.shadow or r.paused > 0 or t < latest(r) then
    return 1
  end
  open(r)
  local left = s.most - later(r, t - s.span)
  return max(1, min(callers, s.fits, floor(left / s.each)))
end

-- start books starts for equal callers: for all at the first moment if there is room for all, otherwise for one caller, or for one run. It
-- returns for how many it booked, or refused, and the calendar boundaries that it needs, if it needs more. No start is earlier than least,
-- which the charge by set.
local function start(list, claims, callers, arrival, from, max_wait, want, least, by)
  local asked, gate, t, held, paused = from, nil, nil, nil, nil
  if #claims > 0 then
    from, gate = first_open(claims, from, now)
  end

  if from > least or gate and from == least and gate < by then -- of those that set it the first counts
    least, by = from, 0
  end

  -- All callers start at the first moment, if there is room for all.
  if want.together and least == from and together(list, callers, from) then
    t, held, paused = find(list, from, from, 0)
  end

  local many = callers
  if t ~= from then
    many, want.together = 1, false

    -- There is not: book for one caller, and search for its cost alone.
    for _, s in ipairs(list) do
      if s.cost ~= s.each then
        weigh(s, s.each)
      end
    end

    if want.horizon > 0 and #list == 1 and #claims == 0 then -- stand has found it
      t, held, paused = least, by, by > 0 and list[1].row.paused > asked and list[1].row.paused or 0
    else
      t, held, paused = find(list, asked, least, by)
    end

    if not t then
      return 0, held
    end

    -- Equal callers that wait, and would share an entry, are booked together.
    if callers > 1 and want.horizon > 0 and t > from then
      many = run(list, claims, callers, t)
    end
  end

  if held == 0 and gate then
    held, paused = gate, from
  end

  -- A start that is still to come takes no slots, so the caller leaves the line for them.
  if #claims > 0 and arrival > 0 and t > now then
    leave_line(claims, arrival)
  end

  if t - now > min(FARTHEST, max_wait) then
    quit(list, want)
    answer(FIVE, callers, REFUSED, t, held, paused)
    return callers
  end

  -- After a loss of data, programs first tell which starts they had: see docs/internals/state-loss.md.
  local opens = all_told(list)
  if opens > now and not want.asks_again then
    answer(FIVE, callers, UNSETTLED, opens, held, paused)
    return callers
  end

  local state = BOOKED

  -- Slots are taken for a start now alone: nobody knows how many will be free later.
  if #claims > 0 and t == now then
    local missing, place = acquire(claims, arrival, max_wait > 0, now)
    if missing then
      quit(list, want)
      answer(FIVE, callers, place and WAITING or REFUSED, place or t, missing, 0)
      return callers
    end

    state = HELD
  end

  answer(FIVE, many, state, t, held, paused)

  -- A shadow holds nobody back: note how late the start would have been, before it is booked there.
  for _, s in ipairs(list) do
    if s.shadow then
      local over, need = earliest(s, t)
      if not over then
        return 0, need
      end
      answer('<d', over - t)
    end
  end

  for _, s in ipairs(list) do
    local r = s.row
    r.low, r.grown = MAX_NUMBER, 0
    s.cost = s.each * many
    book(r, t, s)
    r.count = r.count + (s.rule.peak == 0 and 0 or s.cost)

    -- A search that has set the start alone can go on behind it: see resume.
    s.cost, s.start = s.each, (s.alone == t or #list == 1) and t
  end

  if want.horizon > 0 then
    started(list, want, held, t, asked)
    quit(list, want, true, many)
  end

  return many
end

-- serve books for equal callers, one start each, or puts them in line if their start is
-- beyond their horizon, or if they would pass others. It returns the calendar boundaries that it
-- needs, if it needs more.
local function serve(list, claims, callers, arrival, from, max_wait, want)
  want.together, want.fresh = callers > 1, not next(want.tickets)
  if want.horizon > 0 then
    keep_behind(list, want)
  end

  while callers > 0 do
    local served, need, least, by = 0, nil, from, 0
    if want.horizon > 0 then
      served, need, least, by = stand(list, want, claims, callers, arrival, from, max_wait)
    end

    -- Nobody was put in line or refused, so the first caller has a start.
    if served == 0 and not need then
      want.together = want.together and callers > 1
      served, need = start(list, claims, callers, arrival, from, max_wait, want, least, by)
    end
    if need then
      return need
    end
    callers = callers - served
    for _, s in ipairs(callers > 0 and list or {}) do
      resume(s)
    end
  end
end

-- untail notes that a start at t was given back: the next search may look from t on, and find its
-- place.
local function untail(r, t)
  r.t1, r.t2, r.t3 = min(r.t1, t - 1), min(r.t2, t - 1), min(r.t3, t - 1)
  if r.pin == t then
    r.pin = 0
  end
  queue.free(r)
end

-- forgo takes back the charge of a start for a share, if callers wait.
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

-- settle changes what the start booked cost under a search s to s.more, if the start still counts. It
-- returns false if the rule's calendar boundaries do not reach to the start.
local function settle(s, booked)
  if not counts(s, booked, now) then
    return true
  elseif not window(s.rule, booked) then
    return false
  end

  local cost, t = s.more, booked
  if cost < s.each then
    untail(s.row, now) -- the room that is given back is for the next start
  end

  if not remove(s.row, booked, s) then
    cost = cost - s.each
    t = t + s.each * s.rule.unit -- the rest of the cost lies behind the start, which stays
  end

  if s.rule.unit > 0 then
    cost = min(cost, ceil(FARTHEST / s.rule.unit)) -- a higher cost closes the row for no longer
  end

  if cost > 0 then
    book(s.row, t, weigh(s, cost))
  end

  s.row.count = s.row.count + max(0, s.more - s.each)
  return true
end

-- operate does what one operation asks for, see book.lua. It returns the calendar boundaries that
-- it needs, if it needs more.
local function operate(kind, callers, max_wait, booked, arrival, from, list, claims, want)
  for _, s in ipairs(list) do
    if kind == SETTLE then
      if s.rule.peak > 0 and not settle(s, booked) then
        return booked
      end
    elseif booked > 0 and not is_free(s.rule, s.row) and remove(s.row, booked, s) then
      untail(s.row, booked)

      -- Whoever books again keeps the turn for which its share was charged.
      if kind == CANCEL then
        forgo(s, want.class)
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

while cursor <= #frame do
  local kind, informed, booked, arrival, least, spread, horizon, class, first, tickets, count, many
  kind, informed, booked, arrival, least, spread, horizon, class, first, tickets, count, many, cursor =
    struct.unpack('<dddddddddddd', frame, cursor)
  for _ = 1, many do
    local callers, max_wait
    callers, max_wait, cursor = struct.unpack('<dd', frame, cursor)
    local want = {horizon = horizon, class = class, first = first == 1, tickets = read_tickets(tickets),
      asks_again = informed == 1}
    local list, claims = charges(count, now + least, spread)
    local need = operate(kind, callers, max_wait, booked, arrival, now + least, list, claims, want)
    if need then
      return struct.pack('<ddd', NEEDS_BOUNDARIES, now, need)
    end
  end
end

for i = 2, budgets do
  local r = rows[i]

  -- Offers come last, with the room that all operations of this call have left.
  queue.call(r, rule_of[i], now)
  local hurry = queue.tell(r, ARGV[3])

  -- The row is saved behind tell, because it keeps which cuts were published.
  if rule_of[i] and (r.stored or r.size > 0 or r.paused > 0) then
    if r.generation == 0 then
      r.generation = seed
    end
    save(r, queue.write(r))
  end
  local q = r.lined > 0 and r.queue
  answer(FIVE, r.generation, r.count, spent(r), latest(r), (r.g1 ~= 0 and 1 or 0) + (q and (q.many and 6 or 2) or 0))
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
