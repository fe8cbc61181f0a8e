-- What every script begins with: the time, and the frame of numbers that it is told.
--
-- One letter stands for the same in all files: r is a row, u a rule, s a search of one charge or a claim of slots, q a line, c a lane of a
-- line, w a waiter's ticket or what a caller wants, m the lanes of shares or a node that holds slots, h a history, v a list of
-- stored numbers, t a time, n a cost, i and k are indexes. F, L and N are the columns of a row's entries: first, last, n. In lanes.lua
-- and deals.lua the columns of lanes are C class, F finish tag, L left, O offered, W weight, K cost, S since, H holds, P step.
--
-- defines: max, min, ceil, floor, KEPT, IDLE, frame, cursor, now

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
