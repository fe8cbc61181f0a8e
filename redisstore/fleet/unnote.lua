-- Restores the note before a pause that failed, and logs the failure.
--
-- KEYS  1 notes of pauses
--       2 audit log
-- ARGV  1 budget
--       2 its note, without the end; a different note stays
--       3 the previous note, '' for none
--       4 act
--       5 how many acts are kept
--
-- Result: none.

if is_logged(KEYS[2], ARGV[4]) then
  return
end
local note = redis.call('HMGET', KEYS[1], ARGV[1])[1]
if note and string.match(note, '^%d+ (.*)$') == ARGV[2] then
  if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
  else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) -- the notes expire with the longer pause
  end
end
log(KEYS[2], ARGV[4], ARGV[5])
