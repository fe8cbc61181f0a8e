-- Serving one caller after the other, and what is left to do then.

-- together weighs the charges for several callers at the moment t, where those are
-- the same as one who costs as much, and nobody has to go first after a penalty.
local function together(list, many, t)
  for _, s in ipairs(list) do
    if s.kind == PACED or s.shadow or s.each * many > s.most or t < s.row.paused + s.row.probe then
      return false
    end
  end
  for _, s in ipairs(list) do
    weigh(s, s.each * many)
  end
  return true
end

-- start books starts for so many equal callers: for all at the first moment if there is
-- room for all, else for one. It returns for how many, or for how many it answered that
-- they are refused, and the calendar edges that it needs, if it needs more.
local function start(list, seats, callers, mark, from, max_wait, want)
  local gate, t, held, paused
  if #seats > 0 then
    from, gate = opening(seats, from, now)
  end
  if want.together and callers > 1 and together(list, callers, from) then
    t, held, paused = find(list, from)
  end
  local many = callers
  if t ~= from then
    many, want.together = 1, false
    for _, s in ipairs(list) do
      weigh(s, s.each)
    end
    t, held, paused = find(list, from)
    if not t then
      return 0, held
    end
  end
  if held == 0 and gate then
    held, paused = gate, from
  end
  if mark < 0 and t > now then
    step_out(seats, -mark)
  end
  if t - now > FARTHEST or (max_wait >= 0 and t - now > max_wait) then
    quit(list, want)
    answer(FIVE, callers, 0, t, held, paused)
    return callers
  end
  local opens = all_told(list)
  if opens > now and not want.asks_again then
    answer(FIVE, callers, 3, opens, held, paused)
    return callers
  end
  local booked = 1
  if #seats > 0 and t == now then
    local missing, came = board(seats, max(0, -mark), max_wait ~= 0, now)
    if missing then
      quit(list, want)
      answer(FIVE, callers, 0, came and -came or t, missing, 0)
      return callers
    end
    booked = 2
  end
  answer(FIVE, many, booked, t, held, paused)
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
    place(s.row, t, s)
    s.row.count = s.row.count + (s.free and 0 or s.cost)
  end
  if want.horizon > 0 then
    started(list, want, held, t, from)
    quit(list, want, true)
  end
  return many
end

-- serve books for equal callers, one start each, or lets those stand in line whose start
-- is beyond their horizon, or who would pass others. It returns the calendar edges that it
-- needs, if it needs more.
local function serve(list, seats, callers, mark, from, max_wait, want)
  want.together, want.fresh = callers > 1, not next(want.tickets)
  if want.horizon > 0 then
    keep_behind(list, want)
  end
  while callers > 0 do
    local served, need = 0, nil
    if want.horizon > 0 then
      served, need = line_up(list, want, seats, callers, mark, from, max_wait)
    end
    if served == 0 and not need then
      served, need = start(list, seats, callers, mark, from, max_wait, want)
    end
    if need then
      return need
    end
    callers = callers - served
  end
end

-- untail notes that a start was given back: the next one may have its place.
local function untail(r, t)
  r.t1, r.t2, r.t3 = min(r.t1, t - 1), min(r.t2, t - 1), min(r.t3, t - 1)
  if r.pin == t then
    r.pin = 0
  end
  queue.free(r)
end

-- settle changes what the start at mark cost under s, if it still counts. It
-- returns false where the rule's edges end.
local function settle(s, mark)
  if not counts(s, mark, now) then
    return true
  elseif s.kind == ALIGNED and not window(s, mark) then
    return false
  end
  local cost, t = s.more, mark
  if cost < s.each then
    untail(s.row, now) -- what is free now is for the next one
  end
  if not remove(s.row, mark, s) then
    cost = cost - s.each
    if s.kind == PACED then
      t = t + s.each * s.span -- behind what is there
    end
  end
  if s.kind == PACED then
    cost = min(cost, ceil(FARTHEST / s.span)) -- a longer block means no more
  end
  if cost > 0 then
    place(s.row, t, weigh(s, cost))
  end
  s.row.count = s.row.count + max(0, s.more - s.each)
  return true
end

while here <= #blob do
  local callers, mark, max_wait, least, spread, horizon, class, first, tickets, count
  callers, mark, max_wait, least, spread, horizon, class, first, tickets, count, here =
    struct.unpack('<dddddddddd', blob, here)
  local want = {horizon = horizon, class = class, first = first == 1, tickets = read_tickets(tickets),
    asks_again = callers < 0}
  local list, seats = charges(count, now + least, spread)
  for _, s in ipairs(list) do
    if max_wait == SETTLE then
      if not settle(s, mark) then
        return struct.pack('<ddd', EDGES, now, mark)
      end
    elseif mark > 0 and max_wait ~= RENEW and remove(s.row, mark, s) then
      untail(s.row, mark)
    end
  end
  if max_wait == RENEW then
    renew(list, want, mark)
    answer(FIVE, math.abs(callers), 0, now, 0, 0)
  elseif max_wait < -1 then
    quit(list, want)
    answer(FIVE, math.abs(callers), 0, mark, 0, 0)
  else
    local need = serve(list, seats, math.abs(callers), mark, now + least, max_wait, want)
    if need then
      return struct.pack('<ddd', EDGES, now, need)
    end
  end
end

for i = 2, budgets do
  local r = rows[i]
  queue.call(r, rule_of[i], now)
  local hurry = queue.tell(r, ARGV[3])
  if r.stored or r.size > 0 or r.paused > 0 then
    if r.birth == 0 then
      r.birth = seed
    end
    save(r, queue.write(r))
  end
  answer('<dddddddddd', r.birth, r.count, r.b1, r.n1, r.b2, r.n2, r.b3, r.n3, spent(r), latest(r))
  local q = r.lined > 0 and r.queue
  if q then
    local first, last = queue.turns(r, rule_of[i], now)
    answer('<dddddd', q.id, queue.waiting(q, queue.CLASSES), hurry, q[1].cut, q[2].cut, q[3].cut)
    answer('<ddddddddd', q[1].joined, q[2].joined, q[3].joined, first[1], first[2], first[3], last[1], last[2], last[3])
  else
    out[#out + 1] = NO_LINE
  end
end
for _, f in ipairs(flights) do
  wake(f, ARGV[6])
  save_flight(f)
  local list = ready(f)
  answer('<dddd', f.birth, f.count, #f.nodes, #list)
  for _, came in ipairs(list) do
    answer('<d', came)
  end
end
local done = table.concat(out)
redis.call('SET', KEYS[1], struct.pack('<ddd', call, now, repeated) .. done, 'EX', RECORD_SECONDS)
return struct.pack('<dddd', DONE, now, 0, 0) .. done
