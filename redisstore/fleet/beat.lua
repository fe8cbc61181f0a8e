-- Stores what a node reports, or forgets the node, and says what is noted of pauses.
--
-- KEYS  1 the index of nodes
--       2 the node's record
--       3 the notes of pauses
-- ARGV  1 the node's id
--       2 its record; '' to forget it
--       3 how long both are kept, in microseconds
--
-- Result: now, in microseconds, and the notes as HGETALL has them.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local keep = tonumber(ARGV[3])
if ARGV[2] == '' then
  redis.call('DEL', KEYS[2])
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[2], ARGV[2], 'PX', math.ceil(keep / 1000))
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - keep))
  redis.call('PEXPIRE', KEYS[1], math.ceil(keep / 1000))
end
return {now, redis.call('HGETALL', KEYS[3])}
