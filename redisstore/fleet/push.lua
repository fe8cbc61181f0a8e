-- Pushes a file of policies, if the one before it is the one that is expected.
--
-- KEYS  1 the pushed file
--       2 the history of files
--       3 the audit
-- ARGV  1 the number that is expected; 0: none is pushed
--       2 an id, so that a call that is repeated pushes once
--       3 to 6 generation, text, who, why
--       7 what the history keeps, behind its number and moment
--       8 how many files the history keeps
--       9 the act
--       10 how many acts are kept
--
-- Result: 1, its number; or 0, the number that is pushed.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local pushed = redis.call('HMGET', KEYS[1], 'number', 'id') -- HGET would be one right more
local number = tonumber(pushed[1] or '0') or 0
if pushed[2] == ARGV[2] then
  return {1, number}
end
if number ~= tonumber(ARGV[1]) then
  return {0, number}
end
-- What cannot be written fails here, before anything is pushed.
redis.call('LTRIM', KEYS[2], 0, ARGV[8] - 2)
redis.call('LTRIM', KEYS[3], 0, ARGV[10] - 2)
number = string.format('%.0f', number + 1)
redis.call('HSET', KEYS[1], 'number', number, 'id', ARGV[2], 'generation', ARGV[3], 'text', ARGV[4], 'by', ARGV[5], 'reason', ARGV[6], 'at', now)
redis.call('LPUSH', KEYS[2], number .. ' ' .. now .. ' ' .. ARGV[7])
redis.call('LPUSH', KEYS[3], now .. ' ' .. ARGV[9])
return {1, tonumber(number)}
