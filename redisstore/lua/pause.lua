-- Closes one budget for a while: no start booked from now on lies before the
-- end. The latest end counts.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 for how long, in microseconds
--       3… its rule: kind, n, span, jitter, pace, edges
--
-- Result: {1}, or {-1, now, now} if calendar edges around now are needed.

local now = clock(ARGV[1])
local r = load(KEYS[1])
if not advance(r, now, rule(3)) then
  return {-1, now, now}
end
r.paused = max(r.paused, now + tonumber(ARGV[2]))
save(r)
return {1}
