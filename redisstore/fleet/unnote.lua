-- Restores the note before a pause that failed, and logs the failure.
--
-- KEYS  1 notes of pauses
--       2 audit log
-- ARGV  1 budget
--       2 its note as it was stored; a different note stays
--       3 the previous note, '' for none
--       4 act
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
