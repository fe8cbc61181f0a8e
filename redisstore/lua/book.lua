-- Books one start in every budget of a request, or in none.
--
-- KEYS  one for each charge, all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 the longest wait that is of use; negative: any
--       3 spread (see throttle.Booking)
--       4 the mark of an earlier grant to give back first, or 0
--       5… for each charge: kind, n, cost, span, jitter, shadow, edges
--
-- Result, integers:
--   1 booked: {1, wait, mark, held, paused, over…}, over one for each charge
--   0 refused, nothing spent: {0, wait, mark, held, paused}
--  -1 more calendar edges are needed: {-1, now, the time they must reach}
-- held is the 1-based charge that set the start, 0 if none held it back.

local now = clock(ARGV[1])
local max_wait, spread, instead = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local searches = {}
for k, key in ipairs(KEYS) do
  local u = rule(5 + (k - 1) * CHARGE, spread)
  local r = load(key)
  if not advance(r, now, u) then
    return {-1, now, now}
  end
  if instead ~= 0 then
    remove(r, instead, u)
  end
  searches[k] = {row = r, rule = u, i = 1, j = 1, sum = 0}
end

-- Each answer is a lower bound for the others, so the search ends when a whole
-- round moves nothing.
local t, held, paused, still, k = now, 0, 0, 0, 1
while still < #searches do
  local s = searches[k]
  still = still + 1
  if not s.rule.shadow then
    local next, need = earliest(s, t)
    if not next then
      return {-1, now, need}
    end
    if next > t then
      t, still, held = next, 1, k
      paused = next == s.row.paused and 1 or 0
    end
  end
  k = k % #searches + 1
end

local wait = t - now
if max_wait >= 0 and wait > max_wait then
  if instead ~= 0 then
    for _, s in ipairs(searches) do
      save(s.row)
    end
  end
  return {0, wait, t, held, paused}
end

local result = {1, wait, t, held, paused}
for i, s in ipairs(searches) do
  local over = 0
  if s.rule.shadow then
    local next, need = earliest(s, t)
    if not next then
      return {-1, now, need}
    end
    over = next - t
  end
  result[5 + i] = over
end
for _, s in ipairs(searches) do
  book(s.row, t, s.rule)
  save(s.row)
end
return result
