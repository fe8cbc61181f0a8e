-- Turns throttle off or on for the programs of the fleet, and logs the act.
--
-- KEYS  1 note of the switch
--       2 audit log
-- ARGV  1 '1' to turn throttle off, '0' to turn it on
--       2 operator
--       3 reason
--       4 for how long throttle is off, in microseconds; 0 to turn it on
--       5 how long the note is kept, in microseconds
--       6 act
--       7 how many acts are kept
--       8 id of the call, so that a repeated call turns once
--
-- Result: the moment of the note, in microseconds; the end, in microseconds; and 1 if throttle was off before.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local before = redis.call('HMGET', KEYS[1], 'at', 'off', 'until', 'id', 'was') -- HMGET, because HGET would need a further right
if before[4] == ARGV[8] then
  return {tonumber(before[1]), tonumber(before[3]), tonumber(before[5])}
end
-- Programs take a note that is later than the last: the server's clock may have been set back.
local at = math.max(now, (tonumber(before[1] or '') or 0) + 1)
local stop = now + tonumber(ARGV[4])
local was = before[2] == '1' and (tonumber(before[3] or '') or 0) > now and 1 or 0

-- Write the audit log first: if that fails, nothing is turned.
redis.call('LTRIM', KEYS[2], 0, ARGV[7] - 2)
redis.call('LPUSH', KEYS[2], string.format('%.0f ', now) .. ARGV[6])
redis.call('HSET', KEYS[1], 'at', string.format('%.0f', at), 'off', ARGV[1], 'by', ARGV[2], 'reason', ARGV[3], 'until', string.format('%.0f', stop),
  'id', ARGV[8], 'was', was)
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[5]) / 1000))
return {at, stop, was}
