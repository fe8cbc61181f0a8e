-- Gives an unused start back to every budget that it was booked in.
--
-- KEYS  one for each charge, all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 the start's mark, 3 its spread
--       4… for each charge: kind, n, cost, span, jitter, shadow, edges
--
-- Result: 1, or {-1, now, now} if calendar edges around now are needed.

local now = clock(ARGV[1])
local mark, spread = tonumber(ARGV[2]), tonumber(ARGV[3])

local rows = {}
for k, key in ipairs(KEYS) do
  local u = rule(4 + (k - 1) * CHARGE, spread)
  local r = load(key)
  if not advance(r, now, u) then
    return {-1, now, now}
  end
  if r.total > 0 then
    remove(r, mark, u)
    rows[#rows + 1] = r
  end
end
for _, r in ipairs(rows) do
  save(r)
end
return {1}
