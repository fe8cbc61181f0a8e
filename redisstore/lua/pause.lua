-- Closes one budget for a while: no start booked from now on lies before the
-- end. The latest end counts.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds; its rule
--
-- Result as of book.lua: 0, now; or 1, now, now if edges around now are needed.

local now = clock(ARGV[1])
local length
length, here = struct.unpack('<d', blob, here)
local r = load(KEYS[1])
if not advance(r, now, rule()) then
  return struct.pack('<ddd', 1, now, now)
end
r.paused = max(r.paused, now + length)
save(r)
return struct.pack('<dd', 0, now)
