-- Stores or removes the note of a pause, and notes the act. A shorter pause does not take
-- the place of a longer one.
--
-- KEYS  1 the notes of pauses
--       2 the audit
--       3 what the index of closed budgets says of the budget: it is open when the note is removed
-- ARGV  1 the budget
--       2 its note; '' to remove it
--       3 how long the pause is, in microseconds
--       4 the act
--       5 how many acts are kept
--
-- Result: 1, the note as it is stored now, and the one before; '' for none. Or 0, the longer note.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stop = now + tonumber(ARGV[3])

-- ends returns the end of a note, 0 for one that cannot be read.
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
  elseif all[i] == ARGV[1] and ARGV[2] ~= '' and when > stop then
    return {0, all[i + 1]}
  else
    last = math.max(last, when)
  end
end
redis.call('LTRIM', KEYS[2], 0, ARGV[5] - 2) -- an audit that cannot be written fails here, before the note is stored
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[3], 0) -- DEL would be one right more
else
  after = string.format('%.0f ', stop) .. ARGV[2]
  redis.call('HSET', KEYS[1], ARGV[1], after)
end
redis.call('PEXPIRE', KEYS[1], math.ceil((last - now) / 1000) + 1)
redis.call('LPUSH', KEYS[2], string.format('%.0f ', now) .. ARGV[4])
return {1, after, before}
