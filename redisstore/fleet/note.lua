-- Stores or removes the note of a pause. It replaces only a note that the caller has seen: that of a shorter pause, or of a longer one if a
-- program has ended it, or if nobody can read its note.
--
-- KEYS  1 notes of pauses
--       2 audit log
--       3 closing of the budget, which expires when the note is removed
-- ARGV  1 budget
--       2 its note, with an id, so that a repeated call stores it once; '' to remove it
--       3 length of the pause, in microseconds
--       4 act to log, '' for none
--       5 how many acts are kept
--       6 the note of the budget that the caller has seen, '' for none
--       7 the last moment for this call, in microseconds: later nobody waits for it, and a copy must not undo what others did since
--
-- Result: 1. Or 0, the note of the budget, which the caller has not seen, and 1 if its pause is longer.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stop = now + tonumber(ARGV[3])
if now > tonumber(ARGV[7]) then
  return redis.error_reply('ERR the call came too late, and did nothing')
end
if ARGV[4] ~= '' and is_logged(KEYS[2], ARGV[4]) then
  return {1}
end

-- ends returns the end of a note, or 0 for an unreadable note.
local function ends(note)
  return tonumber(string.match(note, '^(%d+) ')) or 0
end

local present = '' -- the budget's note
local last = stop
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local when = ends(all[i + 1])
  if when <= now then
    redis.call('HDEL', KEYS[1], all[i])
  else
    last = math.max(last, when)
    if all[i] == ARGV[1] then
      present = all[i + 1]
    end
  end
end
if ARGV[2] ~= '' then
  if string.match(present, '^%d+ (.*)$') == ARGV[2] then
    return {1}
  elseif present ~= ARGV[6] then
    return {0, present, ends(present) > stop and 1 or 0}
  end
end

-- Make room in the audit log first: if that fails, no note is stored.
redis.call('LTRIM', KEYS[2], 0, ARGV[5] - 2)
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[3], 0) -- PEXPIRE, because DEL would need a further right
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', stop) .. ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], math.ceil((last - now) / 1000) + 1)
if ARGV[4] ~= '' then
  log(KEYS[2], ARGV[4], ARGV[5])
end
return {1}
