-- Says when a caller should come again that leaves with its place. Callers come one by one, as the limit lets them start: see
-- docs/internals/places.md, and Appointments in internal/ledger/line.go. The script reads and changes no budget.
--
-- KEYS  1 the appointments of a budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: how long the caller would wait, how long the limit takes for its cost, and 1 if it came back and leaves once
--         more
--
-- Result as of book.lua: DONE, now, in how long it should come.
--
-- Stored form: two numbers of 8 bytes, until when callers that left for the first time have appointments, and until when callers that came back
-- have. Both are times of the server.
--
-- needs: frame (max, min, ceil, IDLE, frame, now)

local wait, length, again = struct.unpack('<ddd', frame)
local raw, tails = redis.call('GET', KEYS[1]), {0, 0}
if raw and #raw == 16 then
  tails = {struct.unpack('<dd', raw)}
end

-- The appointment follows the last one of the same kind of callers. The clock may have been set back since that was made.
local k = again == 1 and 2 or 1
local at = max(now + wait, min(tails[k], now + FARTHEST))
tails[k] = at + length

redis.call('SET', KEYS[1], struct.pack('<dd', tails[1], tails[2]), 'PX',
  string.format('%.0f', ceil((min(max(tails[1], tails[2]) - now, FARTHEST) + IDLE) / 1000)))
return struct.pack('<ddd', DONE, now, at - now)
