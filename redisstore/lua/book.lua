-- Books starts for several callers, in their order, each in every budget that it
-- asks for or in none; gives unused starts back; and changes what starts cost.
--
-- KEYS  1 the record of the program's last call in this lane (see docs/once.md)
--       2… the budgets, then the flights, all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each:
--         the number of this call in its lane; a random number, to begin lives
--         with; how many rules; how long ago the call was made for the first time
--         for each budget: what the program knows of it (see repair.lua)
--         for each rule: see rule.lua
--         for each flight: what the program states (see flight.lua)
--         for each run of equal callers:
--           how many callers, below 0 if those have given the others time to tell
--           the mark of a start to give back first, or below 0 when the caller
--             came to stand in line, or 0
--           the longest wait that is of use, -1 for any, -2 to book nothing, -3
--             to change what the start cost
--           the least wait, spread (see throttle.Booking), how many charges
--           for each charge: the index of its rule, or below 0 of its flight, cost,
--             reserve, and whether it is a shadow or, to change, the new cost
--       3 to 5 only if there are flights or pauses: how many flights, the program's
--         name, and what the channels of all programs begin with
--       6… the key of a budget that the program knows to be closed, and for how
--         long, in microseconds; and so on
--
-- Result, numbers of 8 bytes each:
--   0, now, 0, 0, what was done; if that was before, not 0, 0 but the time then and how
--   long ago the call was first made then; or 1, now, the time that the calendar edges
--   must reach, and nothing was done; or 2, now if a later call was made before.
-- What was done: for each run, until it has no callers left:
--   {how many, booked, start, held, paused, over…}, over one for each charge
-- then for each budget: {birth, count, b1, n1, b2, n2, b3, n3, how many starts count
-- now, the end of the last}; see row.lua;
-- then for each flight: {birth, count, how many programs it knows, how many in our
-- line have room set aside, when each of them came…}.
-- booked is 2 if seats in flights were taken with it. If only those had no room,
-- start is below 0 and says when the caller came to stand in line. It is 3 if nothing
-- can be booked before start, when it is known what was lost: then ask again.
-- held is the 1-based charge that set the start, 0 if none held it back, and paused
-- the end of the pause that closes it, or 0. What was refused has spent nothing.

local DONE, EDGES, LATE = 0, 1, 2
local SETTLE = -3
local FARTHEST = 100 * 365 * 24 * 3600 * 1000000 -- throttle.Farthest
local RECORD_SECONDS = 60
local FIVE = '<ddddd'

local now = clock(ARGV[1])
local call, seed, rule_count, repeated
call, seed, rule_count, repeated, here = struct.unpack('<dddd', blob, here)
local flight_count = tonumber(ARGV[3] or 0)
local record = redis.call('GET', KEYS[1])
local last = 0
if record then
  last = struct.unpack('<d', record)
  if last == call then
    return struct.pack('<dd', DONE, now) .. string.sub(record, 9) -- in the time of then: the clock may have been set
  elseif last > call then
    return struct.pack('<dd', LATE, now)
  end
end

local memories, rows, rules, flights, closed = {}, {}, {}, {}, {}
local budgets = #KEYS - flight_count -- the last key of one
for i = 2, budgets do
  memories[i] = known()
end
for i = 6, #ARGV, 2 do
  closed[ARGV[i]] = tonumber(ARGV[i + 1])
end
for i = 1, rule_count do
  local u = rule()
  local r = rows[u.key]
  local first = not r
  if first then
    r = load(KEYS[u.key])
    rows[u.key] = r
  end
  if not advance(r, now, u) then
    return struct.pack('<ddd', EDGES, now, now)
  end
  if first then
    local stale = repair(r, memories[u.key], u, now, seed, last)
    if closed[r.key] and (stale or not r.stored) then
      -- What the row still knows counts more: a pause may have been lifted.
      r.paused = max(r.paused, now + closed[r.key])
    end
  end
  u.row = r
  rules[i] = u
end
for i = 1, flight_count do
  local f = load_flight(KEYS[budgets + i], now)
  if not state(f, ARGV[4], seed) then
    return struct.pack('<dd', LATE, now)
  end
  set_aside(f)
  flights[i] = f
end

-- A caller's charges: searches, and what else is told of each; and seats.
local function charges(count, from, spread)
  local list, seats = {}, {}
  for k = 1, count do
    local index, cost, reserve, more
    index, cost, reserve, more, here = struct.unpack('<dddd', blob, here)
    if index < 0 then
      seats[#seats + 1] = {flight = flights[-index], cost = cost, reserve = reserve, shadow = more == 1, index = k}
    else
      local s = search_for(rules[index], cost, reserve, from, spread, more == 1)
      s.each, s.more, s.index = cost, more, k
      list[#list + 1] = s
    end
  end
  return list, seats
end

-- find returns the earliest start from t on that has room in every budget that
-- counts. Each answer is a lower bound for the others, so the search ends when a
-- whole round moves nothing.
local function find(list, t)
  local from, held, paused, still, k, size = t, 0, 0, 0, 1, #list
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

local out = {}
local function answer(format, ...)
  out[#out + 1] = struct.pack(format, ...)
end

-- together weighs the charges for several callers at the moment t, where those are
-- the same as one who costs as much, and nobody has to go first after a penalty.
local function together(list, many, t)
  for _, s in ipairs(list) do
    if s.kind == PACED or s.shadow or s.each * many > s.most or t < s.row.paused + PROBE_TIME then
      return false
    end
  end
  for _, s in ipairs(list) do
    weigh(s, s.each * many)
  end
  return true
end

-- serve books one start for each of so many equal callers: all at the first
-- moment if there is room for all, else one after the other. It returns the
-- calendar edges that it needs, if it needs more.
local function serve(list, seats, callers, mark, from, max_wait)
  local asks_again, many, gate = callers < 0, math.abs(callers), nil
  callers = many
  if #seats > 0 then
    from, gate = opening(seats, from, now)
  end
  while callers > 0 do
    local t, held, paused
    if many > 1 and together(list, many, from) then
      t, held, paused = find(list, from)
    end
    if t ~= from then
      many = 1
      for _, s in ipairs(list) do
        weigh(s, s.each)
      end
      t, held, paused = find(list, from)
      if not t then
        return held
      end
    end
    if held == 0 and gate then
      held, paused = gate, from
    end
    if mark < 0 and t > now then
      step_out(seats, -mark)
    end
    if t - now > FARTHEST or (max_wait >= 0 and t - now > max_wait) then
      answer(FIVE, callers, 0, t, held, paused)
      return
    end
    local opens = all_told(list)
    if opens > now and not asks_again then
      answer(FIVE, callers, 3, opens, held, paused)
      return
    end
    local booked = 1
    if #seats > 0 and t == now then
      local missing, came = board(seats, max(0, -mark), max_wait ~= 0, now)
      if missing then
        answer(FIVE, callers, 0, came and -came or t, missing, 0)
        return
      end
      booked = 2
    end
    answer(FIVE, many, booked, t, held, paused)
    for _, s in ipairs(list) do
      if s.shadow then
        local start, need = earliest(s, t)
        if not start then
          return need
        end
        answer('<d', start - t)
      end
    end
    for _, s in ipairs(list) do
      place(s.row, t, s)
      s.row.count = s.row.count + s.cost
    end
    callers = callers - many
  end
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
  local callers, mark, max_wait, least, spread, count
  callers, mark, max_wait, least, spread, count, here = struct.unpack('<dddddd', blob, here)
  local list, seats = charges(count, now + least, spread)
  for _, s in ipairs(list) do
    if max_wait == SETTLE then
      if not settle(s, mark) then
        return struct.pack('<ddd', EDGES, now, mark)
      end
    elseif mark > 0 then
      remove(s.row, mark, s)
    end
  end
  if max_wait < -1 then
    answer(FIVE, math.abs(callers), 0, mark, 0, 0)
  else
    local need = serve(list, seats, callers, mark, now + least, max_wait)
    if need then
      return struct.pack('<ddd', EDGES, now, need)
    end
  end
end

for i = 2, budgets do
  local r = rows[i]
  if r.stored or r.size > 0 or r.paused > 0 then
    if r.birth == 0 then
      r.birth = seed
    end
    save(r)
  end
  answer('<dddddddddd', r.birth, r.count, r.b1, r.n1, r.b2, r.n2, r.b3, r.n3, spent(r), latest(r))
end
for _, f in ipairs(flights) do
  wake(f, ARGV[5])
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
