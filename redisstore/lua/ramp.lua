-- The slow start after a penalty. A ramp is a search of a row that holds, besides
-- what is booked, what is kept from being booked at first: see search.lua. That row
-- lasts for one search, and the true one knows nothing of it.

local LONGEST_RAMPED = 20 * 1000000 -- no longer window begins slowly

-- step returns when the step of a slow start is over that begins at t.
local function step(u, t)
  if u.kind == ALIGNED then
    local _, stop = window(u, t)
    return stop
  end
  return t + u.span
end

-- ramp_end returns when the slow start is over that begins when a penalty ends. If
-- there is none, it is over then.
local function ramp_end(u, begin)
  if u.kind == BUCKET then
    return begin + u.span
  elseif u.kind == PACED or u.kind == SLIDING and u.span - u.jitter - 1 > LONGEST_RAMPED
    or u.kind == ALIGNED and (#u.edges > 1 or u.edges[1] > LONGEST_RAMPED) then
    return begin
  elseif u.kind == ALIGNED then
    return begin - begin % u.edges[1] + #STEPS * u.edges[1]
  end
  return begin + #STEPS * u.span
end

-- copied_from returns an open row with the entries of r from index i on.
local function copied_from(r, i)
  open(r)
  return {F = {unpack(r.F, i, r.size)}, L = {unpack(r.L, i, r.size)}, N = {unpack(r.N, i, r.size)},
    size = r.size - i + 1, total = MAX_COUNT, lost = 0, level = 0} -- in any case more than there is room for
end

-- window_ramp takes all but its share of each of the first windows. What it takes
-- is never joined with starts around it: it would reach as far as they do, and
-- close what lies between it and the next step.
local function window_ramp(s)
  local ramp, begin = copied_from(s.row, 1), s.row.paused
  for _, part in ipairs(STEPS) do
    insert(ramp, after(ramp, begin), begin, begin, s.cap - ceil(s.cap / part))
    begin = step(s, begin)
  end
  return ramp
end

-- bucket_ramp takes all but a token of a bucket, whatever was spent of it before.
local function bucket_ramp(s)
  local begin = s.row.paused
  open(s.row)
  local ramp = copied_from(s.row, after(s.row, begin))
  if ramp.size > 0 then
    ramp.F[1] = max(ramp.F[1], begin)
  end
  insert(ramp, 1, begin, begin, s.cap - 1)
  return ramp
end
