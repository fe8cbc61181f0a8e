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
