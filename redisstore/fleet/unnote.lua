-- Takes back the note of a pause that failed, and notes that. The note before it, if there
-- was one, comes back: that pause holds.
--
-- KEYS  1 the notes of pauses
--       2 the audit
-- ARGV  1 the budget
--       2 its note as it was stored; another is left alone
--       3 the note before; '' for none
--       4 the act
--       5 how many acts are kept
--
-- Result: none.

local time = redis.call('TIME')
if redis.call('HMGET', KEYS[1], ARGV[1])[1] == ARGV[2] then
  if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
  else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) -- the notes expire with the longer pause
  end
end
redis.call('LPUSH', KEYS[2], string.format('%.0f ', time[1] * 1000000 + time[2]) .. ARGV[4])
redis.call('LTRIM', KEYS[2], 0, ARGV[5] - 1)
