-- Books starts for several callers, in their order, each in every budget that it
-- asks for or in none; and gives unused starts back.
--
-- KEYS  the budgets, all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 how many rules, then for each: the index of its key, and
--         kind, n, span, jitter, pace, edges (see rule.lua)
--       then for each caller:
--         the mark of a start to give back first, or 0
--         the longest wait that is of use, -1 for any, -2 to book nothing
--         spread (see throttle.Booking)
--         how many charges, then for each: the index of its rule, cost, shadow
--
-- Result, integers, for each caller one after the other:
--   {booked, wait, mark, held, paused, over…}, over one for each charge
-- held is the 1-based charge that set the start, 0 if none held it back. What
-- was refused has spent nothing. Or, if more calendar edges are needed and
-- nothing was done: {-1, now, the time that they must reach}.

local GIVE_BACK = -2
local FARTHEST = 100 * 365 * 24 * 3600 * 1000000 -- throttle.Farthest

local now = clock(ARGV[1])
local rules, next_arg = {}, 3
local rows = {}
for i = 1, tonumber(ARGV[2]) do
  local key = tonumber(ARGV[next_arg])
  local u = rule(next_arg + 1)
  rows[key] = rows[key] or load(KEYS[key])
  u.row = rows[key]
  rules[i] = u
  next_arg = next_arg + 1 + RULE
  if not advance(u.row, now, u) then
    return {-1, now, now}
  end
end

-- searches reads one caller's charges from ARGV.
local function searches(i, count, spread)
  local list = {}
  for k = 1, count do
    local u = rules[tonumber(ARGV[i])]
    list[k] = search_for(u, tonumber(ARGV[i + 1]), spread, ARGV[i + 2] == '1')
    i = i + 3
  end
  return list, i
end

-- find returns the earliest start that has room in every budget that counts.
-- Each answer is a lower bound for the others, so the search ends when a whole
-- round moves nothing.
local function find(list)
  local t, held, paused, still, k = now, 0, 0, 0, 1
  while still < #list do
    local s = list[k]
    still = still + 1
    if not s.shadow then
      local start, need = earliest(s, t)
      if not start then
        return nil, need
      end
      if start > t then
        t, still, held = start, 1, k
        paused = start == s.row.paused and 1 or 0
      end
    end
    k = k % #list + 1
  end
  return t, held, paused
end

local result = {}
local function answer(...)
  for _, v in ipairs({...}) do
    result[#result + 1] = v
  end
end

while next_arg <= #ARGV do
  local instead, max_wait, spread = tonumber(ARGV[next_arg]), tonumber(ARGV[next_arg + 1]), tonumber(ARGV[next_arg + 2])
  local list
  list, next_arg = searches(next_arg + 4, tonumber(ARGV[next_arg + 3]), spread)
  if instead ~= 0 then
    for _, s in ipairs(list) do
      remove(s.row, instead, s)
    end
  end
  if max_wait == GIVE_BACK then
    answer(0, 0, instead, 0, 0)
  else
    local t, held, paused = find(list)
    if not t then
      return {-1, now, held}
    end
    local fits = t - now <= FARTHEST and (max_wait < 0 or t - now <= max_wait)
    answer(fits and 1 or 0, t - now, t, held, paused)
    for _, s in ipairs(list) do
      if fits and s.shadow then
        local start, need = earliest(s, t)
        if not start then
          return {-1, now, need}
        end
        answer(start - t)
      else
        answer(0)
      end
    end
    if fits then
      for _, s in ipairs(list) do
        book(s.row, t, s)
      end
    end
  end
end

for _, r in pairs(rows) do
  if r.stored or r.size > 0 then
    save(r)
  end
end
return result
