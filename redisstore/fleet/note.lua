-- Stores or removes the note of a pause, and logs the act. The note of a shorter pause replaces a longer pause's only if the caller has found
-- that a program has ended the longer pause, or that nobody can read its note.
--
-- KEYS  1 notes of pauses
--       2 audit log
--       3 closing of the budget, which expires when the note is removed
-- ARGV  1 budget
--       2 its note, '' to remove it
--       3 length of the pause, in microseconds
--       4 act
--       5 how many acts are kept
--       6 a longer note that may be replaced, '' for none
--
-- Result: 1, the note now in force, and the previous note, '' for none. Or 0, and the longer note.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stop = now + tonumber(ARGV[3])

-- ends returns the end of a note, or 0 for an unreadable note.
local function ends(note)
  return tonumber(string.match(note, '^(%d+) ')) or 0
end

local before, after = '', ''
local last = stop
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local when = ends(all[i + 1])
  if all[i] == ARGV[1] and when > now then
    before = all[i + 1]
  end
  if when <= now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] == ARGV[1] and ARGV[2] ~= '' and when > stop and all[i + 1] ~= ARGV[6] then
    return {0, all[i + 1]}
  else
    last = math.max(last, when)
  end
end
-- Make room in the audit log first: if that fails, no note is stored.
redis.call('LTRIM', KEYS[2], 0, ARGV[5] - 2)
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[3], 0) -- PEXPIRE, because DEL would need a further right
else
  after = string.format('%.0f ', stop) .. ARGV[2]
  redis.call('HSET', KEYS[1], ARGV[1], after)
end
redis.call('PEXPIRE', KEYS[1], math.ceil((last - now) / 1000) + 1)
redis.call('LPUSH', KEYS[2], string.format('%.0f ', now) .. ARGV[4])
return {1, after, before}
