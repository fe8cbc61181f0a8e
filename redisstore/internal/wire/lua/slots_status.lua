-- Describes one budget of requests in flight and changes nothing.
--
-- KEYS  1 the budget of slots
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 nothing
--
-- Result as of book.lua: 0, now, used, booked, which is 0, waiting, wait, paused, repeated. When
-- there will be room is unknown, so a pause is all that there is to wait for.

local slots = load_slots(KEYS[1], now)
local used, waiting = 0, 0
for _, m in ipairs(slots.nodes) do
  used = used + m.held
  for _, w in ipairs(m.line) do
    waiting = waiting + w.cost + w.behind
  end
end
return struct.pack('<dddddddd', DONE, now, used, 0, waiting, slots.pause, slots.pause, penalty.repeated(slots, slots.ends))
