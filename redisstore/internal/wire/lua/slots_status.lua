-- Describes one budget of requests in flight and changes nothing.
--
-- KEYS  1 the budget of slots
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 nothing
--
-- Result as of book.lua: 0, now, used, booked, which is 0, waiting, wait, paused, repeated, how many callers
-- stand in line: those of whom only the costs are known are taken to cost what the others do. When
-- there will be room is unknown, so a pause is all that there is to wait for.
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
if waiting > costs then
  callers = callers + ceil((waiting - costs) * callers / max(1, costs))
end
return struct.pack('<ddddddddd', DONE, now, used, 0, waiting, slots.pause, slots.pause, penalty.repeated(slots, slots.ends), callers)
