-- Describes one budget of requests in flight and changes nothing.
--
-- KEYS  1 the flight
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 nothing
--
-- Result as of book.lua: 0, now, used, waiting, wait, paused, repeated. When there will be
-- room nobody knows, so a pause is all that there is to wait for.

local now = clock(ARGV[1])
local f = load_flight(KEYS[1], now)
local used, waiting = 0, 0
for _, m in ipairs(f.nodes) do
  used = used + m.held
  for _, w in ipairs(m.line) do
    waiting = waiting + w.cost + w.behind
  end
end
return struct.pack('<ddddddd', 0, now, used, waiting, f.pause, f.pause, penalty.repeated(f, f.ends))
