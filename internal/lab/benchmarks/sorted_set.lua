-- Takes one start of a budget that is kept as a log, by the caller's clock.
--
-- KEYS    1 how many are free   2 the log: a member for each start, scored by when
-- ARGV    1 now   2 n   3 per, in milliseconds like now   4 a name for the start
-- result  -1: taken; else the milliseconds until the oldest start is over

local now, n, per = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local over = redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - per)
local free = math.min((tonumber(redis.call('GET', KEYS[1])) or n) + over, n)

if free < 1 then
  local oldest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  return tonumber(oldest[2]) + per - now
end

redis.call('ZADD', KEYS[2], now, ARGV[4])
redis.call('SET', KEYS[1], free - 1, 'PX', 2 * per)
redis.call('PEXPIRE', KEYS[2], 2 * per)
return -1
