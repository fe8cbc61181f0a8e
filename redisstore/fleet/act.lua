-- Appends an act to the audit log.
--
-- KEYS  1 audit log
-- ARGV  1 act
--       2 how many acts are kept
--
-- Result: an empty list.

local time = redis.call('TIME')
redis.call('LPUSH', KEYS[1], string.format('%.0f ', time[1] * 1000000 + time[2]) .. ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
return {}
