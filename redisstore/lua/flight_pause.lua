-- Closes one budget of requests in flight for a while. The latest end counts.
--
-- KEYS  1 the flight
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds
--
-- Result as of book.lua: 0, now.

local now = clock(ARGV[1])
local f = load_flight(KEYS[1], now)
compare(f, 0, 0, now)
f.pause = max(f.pause, (struct.unpack('<d', blob)))
save_flight(f)
return struct.pack('<dd', 0, now)
