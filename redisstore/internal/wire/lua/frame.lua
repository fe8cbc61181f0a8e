-- What every script begins with: the time, and the frame of numbers that it is told.

local max, min, ceil, floor = math.max, math.min, math.ceil, math.floor

local KEPT = 1000000 -- a key outlives what it holds by this much
local IDLE = KEPT -- or by more, in tests: see now

-- frame is a string of numbers, 8 bytes each, and cursor where the next one begins.
local frame, cursor = ARGV[2], 1

-- now is the time in whole microseconds: the server's, unless a test passes its own. Then
-- keys live longer, because their lifetime is still the server's.
local now = tonumber(ARGV[1])
if now then
  IDLE = IDLE + 60 * 1000000
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
