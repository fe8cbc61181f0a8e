-- Books starts for several callers, in their order, each in every budget that it
-- asks for or in none; gives unused starts back; and changes what starts cost.
--
-- KEYS  1 the record of the program's last call in this lane (see docs/once.md)
--       2… the budgets, then the flights, then the gates, all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each:
--         the number of this call in its lane; a random number, to begin lives
--         with; how many rules; how long ago the call was made for the first time;
--         how many gates, see gates.lua
--         for each budget: what the program knows of it (see repair.lua)
--         for each rule: see rule.lua
--         for each flight: what the program states (see flight.lua)
--         for each run of equal callers:
--           how many callers, below 0 if those have given the others time to tell
--           the mark of a start to give back first, or below 0 when the caller
--             came to stand in line, or 0
--           the longest wait that is of use, -1 for any, -2 to book nothing, -3
--             to change what the start cost, -4 to say that it waits
--             in line and will say so again within mark
--           the least wait, spread, horizon (see throttle.Booking), 0 for none, its class,
--             and 1 if it had a start before and came to stand in no line
--           how many tickets it has, how many charges
--           for each ticket: the charge, the line, the ticket, its state, its round: see queue.lua
--           for each charge: the index of its rule, or below 0 of its flight, cost,
--             reserve, and whether it is a shadow or, to change, the new cost
--       3 the channel of news
--       4 to 6 only if there are flights or pauses: how many flights, the program's
--         name, and what the channels of all programs begin with
--       7… the key of a budget that the program knows to be closed, and for how
--         long, in microseconds; and so on
--
-- Result, numbers of 8 bytes each:
--   0, now, 0, 0, what was done; if that was before, not 0, 0 but the time then and how
--   long ago the call was first made then; or 1, now, the time that the calendar edges
--   must reach, and nothing was done; or 2, now if a later call was made before; or 3,
--   now, and for each gate that is shut the index of its key and for how long it is, and
--   nothing was done.
-- What was done: for each run, until it has no callers left:
--   {how many, booked, start, held, paused, over…}, over one for each charge
-- then for each budget: {birth, count, b1, n1, b2, n2, b3, n3, how many starts count
-- now, the end of the last; the line, what waits in it, whether those should hurry whose
-- turn it is, the three cuts, the next ticket of each class, and in how long the first and
-- the last of each will have their turn}; see row.lua and queue.lua;
-- then for each flight: {birth, count, how many programs it knows, how many in our
-- line have room set aside, when each of them came…}.
-- booked is 2 if seats in flights were taken with it. If only those had no room,
-- start is below 0 and says when the caller came to stand in line. It is 3 if nothing
-- can be booked before start, when it is known what was lost: then ask again. It is 4
-- for those who stand in line: start is when the first may have its turn, and {when the
-- last may, how many tickets it has, for each the charge, the line, the ticket, its
-- state, its round} follows.
-- held is the 1-based charge that set the start, 0 if none held it back, and paused
-- the end of the pause that closes it, or 0. What was refused has spent nothing.

local DONE, EDGES, LATE = 0, 1, 2
local SETTLE, RENEW = -3, -4
local FARTHEST = 100 * 365 * 24 * 3600 * 1000000 -- throttle.Farthest
local RECORD_SECONDS = 60
local FIVE = '<ddddd'

local now = clock(ARGV[1])
local call, seed, rule_count, repeated, gate_count
call, seed, rule_count, repeated, gate_count, here = struct.unpack('<ddddd', blob, here)
local flight_count = tonumber(ARGV[4] or 0)
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

local memories, rows, rules, rule_of, flights, closed = {}, {}, {}, {}, {}, {}
local budgets = #KEYS - flight_count - gate_count -- the last key of one
for i = 2, budgets do
  memories[i] = known()
end
for i = 7, #ARGV, 2 do
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
      r.paused = now + penalty.shut(r, r.paused - now, closed[r.key], 0)
    end
  end
  u.row = r
  rules[i], rule_of[u.key] = u, u
end
for i = 1, flight_count do
  local f = load_flight(KEYS[budgets + i], now)
  if not state(f, ARGV[5], seed) then
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
