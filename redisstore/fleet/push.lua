-- Pushes a policy file if the present file has the expected number.
--
-- KEYS  1 pushed file
--       2 history of files
--       3 audit log
-- ARGV  1 expected number, 0 for none
--       2 id of the call, so that a repeated call pushes once
--       3 to 6 generation, text, operator, reason
--       7 entry of the history, without number and time
--       8 how many files the history keeps
--       9 act
--       10 how many acts are kept
--
-- Result: 1, and the number of the file; or 0, and the number of the present file.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local pushed = redis.call('HMGET', KEYS[1], 'number', 'id') -- HMGET, because HGET would need a further right
local number = tonumber(pushed[1] or '0') or 0
if pushed[2] == ARGV[2] then
  return {1, number}
end
if number ~= tonumber(ARGV[1]) then
  return {0, number}
end
-- Check that the lists can be written before anything is pushed.
redis.call('LTRIM', KEYS[2], 0, ARGV[8] - 2)
redis.call('LTRIM', KEYS[3], 0, ARGV[10] - 2)
number = string.format('%.0f', number + 1)
redis.call('HSET', KEYS[1], 'number', number, 'id', ARGV[2], 'generation', ARGV[3], 'text', ARGV[4], 'by', ARGV[5], 'reason', ARGV[6], 'at', now)
redis.call('LPUSH', KEYS[2], number .. ' ' .. now .. ' ' .. ARGV[7])
redis.call('LPUSH', KEYS[3], now .. ' ' .. ARGV[9])
return {1, tonumber(number)}
