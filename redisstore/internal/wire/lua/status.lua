-- Describes one budget and changes nothing. The twin is internal/ledger/status.go.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: its rule
--
-- Result as of book.lua: DONE, now, used, booked, waiting, wait, paused, how often the penalty was met again, the ceiling in thousandths, how
-- many callers stand in line, the limit that the upstream told, its window and how long ago, or 0, 0 and 0, and for each lane of a share in the
-- line that has waiters, or had turns just now beside others: its share, its weight, the costs that wait in it, and the costs that it was served,
-- -1 if the row does not say; or NEEDS_BOUNDARIES, now, the time that the calendar boundaries must reach.
--
-- needs: age (advance), frame (max, min, ceil, floor, now), penalty (penalty.repeated, ceiling.is_of, ceiling.at), queue (queue, queue.of,
--     queue.waiting, queue.callers), row (penalty, ceiling, load, open), rule (read_rule, window), search (search_for, earliest), served
--     (served_of), turn (turn, turn.at)

local u = read_rule(0)
local r = load(KEYS[1])
u.row = r
local needs = advance(r, now, u)
if needs then
  return struct.pack('<ddd', needs, now, now)
end
open(r)
local since = window(u, now)

-- come returns how much of the cost of entry i, which has begun, has come by now: all of it, except in a block of a leaky bucket, whose units come one
-- by one.
local function come(i)
  if u.unit == 0 or r.L[i] <= now then
    return r.N[i]
  end

  -- One unit has come at the begin, and one for each unit of time since. At most one is to come for each unit of time until the end, so the others have
  -- come, too: the larger of the two numbers counts.
  return min(r.N[i], max(1 + floor((now - r.F[i]) / u.unit), r.N[i] - ceil((r.L[i] - now) / u.unit)))
end

-- Of an entry that has begun, what has come is used and the rest is booked. What is used counts no more after its window, or under an unlimited budget.
local used, booked = 0, 0
for i = 1, r.size do
  if r.F[i] > now then
    booked = booked + r.N[i]
  elseif r.L[i] >= since and u.peak > 0 then
    used, booked = used + come(i), booked + r.N[i] - come(i)
  end
end
if u.unit > 0 then
  used = min(used, 1) -- a leaky bucket has room for one start at a time
end

-- t is when a caller that comes now would start, behind the waiters in line.
local s = search_for(u, 1, 0, now, 0, false)
s.tail = max(r.t1, r.t2) -- the tail of a caller of the usual priority
local t, need = earliest(s, now)
if not t then
  return struct.pack('<ddd', NEEDS_BOUNDARIES, now, need)
end
local q = queue.of(r)
local waiting = queue.waiting(q, queue.CLASSES) -- the cost that waits in line
if waiting > 0 then
  t = max(t, turn.at(u, 0, now, 1, waiting + 1))
end

local told, each, heard_ago = 0, 0, 0
if u.tells and r.told > 0 then
  told, each, heard_ago = r.told, r.each, now - r.heard
end
local callers = waiting > 0 and queue.callers(q) or 0
local top = ceiling.is_of(r, u) and floor(ceiling.at(r, now) * 1000) or 0
local out = {struct.pack('<ddddddddddddd', DONE, now, used, booked, booked + waiting, t - now, max(0, r.paused - now),
  penalty.repeated(r, r.paused - now), top, callers, told, each, heard_ago)}

if waiting <= 0 or not q.many then
  return table.concat(out)
end

-- The lanes of shares that have waiters, or had turns just now beside others.
local m = q.many
for class = 1, queue.CLASSES do
  for i = 1, #m.share do
    local waits = m.left[i] + m.offered[i]
    local had_turns = m.sum[class] > 0 and m.finish[i] > m.virtual[class]
    if m.class[i] == class and (waits > 0 or had_turns) then
      out[#out + 1] = struct.pack('<dddd', m.share[i], m.weight[i], waits, m.told and served_of().of(m, i) or -1)
    end
  end
end
return table.concat(out)

-- part: slots_status
-- Describes one budget of requests in flight and changes nothing.
--
-- KEYS  1 the budget of slots
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 nothing
--
-- Result as of book.lua: DONE, now, used, booked, which is 0, waiting, wait, paused, repeated, how many callers stand in line. Nobody knows when there
-- will be room, so the wait is the time until the budget is open.
--
-- needs: frame (max, ceil, now), leases (load_slots), penalty (penalty.repeated), row (penalty)

local slots = load_slots(KEYS[1], now)
local used, waiting, callers, costs = 0, 0, 0, 0
for _, m in ipairs(slots.nodes) do
  used = used + m.held
  for _, w in ipairs(m.line) do
    waiting, callers, costs = waiting + w.cost + w.behind, callers + 1, costs + w.cost
  end
end

-- Of waiters that were left out of reports only the costs are known: each is taken to cost as much as the mean of the others.
if waiting > costs then
  callers = callers + ceil((waiting - costs) * callers / max(1, costs))
end
return struct.pack('<ddddddddd', DONE, now, used, 0, waiting, slots.pause, slots.pause, penalty.repeated(slots, slots.ends), callers)
