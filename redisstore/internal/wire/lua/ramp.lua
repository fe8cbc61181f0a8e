-- The slow start after a penalty. A ramp is a search of a row that holds, besides
-- what is booked, what is kept from being booked at first: see search.lua. That row
-- lasts for one search, and the true one knows nothing of it.
--
-- needs: entries (insert, after), frame (max, min, ceil, floor), penalty (penalty.step), row (penalty, open), rule (window)
-- defines: ramp_end, ramped

local ramp_end, ramped
do
-- ramp_end returns when the slow start of a row is over. If there is none, it is over when
-- the penalty ends. Its steps are as long as the window, if the penalty was at least twice
-- as long, and the window is not very long.
function ramp_end(u, r)
  local begin, length, width = r.paused, penalty.step(r), u.width
  if u.tokens > 0 then
    return begin + u.span
  elseif width == 0 or length == 0 then
    return begin
  elseif u.boundaries and length >= width then
    return begin - begin % width + SLOW_STEPS * width
  end
  return begin + SLOW_STEPS * min(length, width)
end

-- copied_from returns an open row with the entries of r from index i on.
local function copied_from(r, i)
  open(r)
  return {F = {unpack(r.F, i, r.size)}, L = {unpack(r.L, i, r.size)}, N = {unpack(r.N, i, r.size)},
    size = r.size - i + 1, total = MAX_COUNT, lost = 0, level = 0, low = 1, kept = 0} -- in any case more than there is room for
end

-- window_ramp takes all but its share of each of the first steps, under rule u. What it
-- takes is never joined with starts around it: it would reach as far as they do, and
-- close what lies between it and the next step. But where an entry lies over the begin of the last
-- step, what that step takes follows it and reaches to its end: a search needs entries in order.
-- At the begin of the first step the order makes no difference, because no start is before that.
local function window_ramp(s, u)
  local ramp, begin = copied_from(s.row, 1), s.row.paused
  for k, part in ipairs(STEP_PARTS) do
    local i, last = after(ramp, begin), begin
    while k > 1 and i <= ramp.size and ramp.F[i] <= begin do
      i, last = i + 1, max(begin, ramp.L[i])
    end
    insert(ramp, i, begin, last, u.cap - ceil(u.cap / part))
    local _, stop = window(u, begin)
    begin = stop
  end
  return ramp
end

-- bucket_ramp takes all but a token of a bucket, whatever was spent of it before.
local function bucket_ramp(s)
  local begin = s.row.paused
  open(s.row)
  local ramp = copied_from(s.row, after(s.row, begin))
  for i = 1, ramp.size do
    ramp.F[i] = max(ramp.F[i], begin)
  end
  insert(ramp, 1, begin, begin, s.cap - 1)
  return ramp
end

-- ramped returns what the slow start of a search is a search for: by its own rule, or, for
-- steps that are shorter than the window, by that of as much as the window has for so long.
function ramped(s, r)
  local length, width, reserve = penalty.step(r), s.rule.width, s.reserve
  local u = setmetatable({}, {__index = s.rule})
  if length > 0 and length < width then
    local parts = floor(width / length)
    u.kind, u.span, u.boundaries, u.cap = SLIDING_WINDOW, length, false, ceil(s.cap / parts)
    u.row = window_ramp(s, u)
    u.n = ceil((s.room + s.cost + reserve) / parts) -- as much as a ceiling leaves
    u.cap, reserve = u.n, ceil(reserve / parts)
  else
    u.row = u.tokens > 0 and bucket_ramp(s) or window_ramp(s, u)
  end
  return u, s.cost, reserve, s.from, s.spread, false
end
end
