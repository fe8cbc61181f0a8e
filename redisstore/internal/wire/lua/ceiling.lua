-- Ceilings: what was learned of how much the upstream allows; docs/learning.md says the
-- rule, and memstore has the same in Go. A row keeps top, the level of use that was
-- refused, 0 if there is no ceiling; fell, when the ceiling fell from there; and learns,
-- the window that both are about. How high the ceiling is at any moment follows from
-- that, so that it rises without being written.
--
-- needs: frame (max, min, ceil, floor), row (open), rule (window, has_windows)
-- defines: ceiling.is_of, ceiling.forgotten, ceiling.at, ceiling.forget, ceiling.obey, ceiling.learn

do
-- rising returns how long a ceiling takes to come back to its top.
local function rising(r)
  return RISING_LEAST + RISING_WINDOWS * r.learns
end

-- is_of reports whether a row has a ceiling for a rule.
function ceiling.is_of(r, u)
  return r.top > 0 and u.learns > 0 and u.learns == r.learns
end

-- forgotten returns when the ceiling of a row means nothing any more.
function ceiling.forgotten(r)
  return r.fell + CEILING_RISEN * rising(r)
end

-- at returns the height of the ceiling: a cubic that is flat around its top.
function ceiling.at(r, now)
  local x = max(-1, (now - r.fell - rising(r)) / rising(r))
  return r.top + r.top / CEILING_FALL * x * x * x
end

-- forget makes the row one without a ceiling.
function ceiling.forget(r)
  r.top, r.fell, r.learns = 0, 0, 0
end

-- obey lowers a rule to the row's ceiling, or forgets one that has risen to the limit.
function ceiling.obey(r, now, u)
  if not ceiling.is_of(r, u) then
    return
  end
  local level = ceiling.at(r, now)
  if level >= u.rate or now >= ceiling.forgotten(r) then
    ceiling.forget(r)
    return
  end
  local share = level / u.rate
  u.cap = max(1, floor(u.n * share))
  u.tokens = min(u.tokens, max(1, floor(u.tokens * share)))
  u.pad = floor(u.unit / share) - u.unit
end

-- used returns how much of the limit was in use when the start at mark came, itself
-- included; 0 if that was more than all of it, so that a refusal is no surprise, if it
-- has not begun, or in a fixed window that is long over. Of a pace and a bucket
-- only the rate is of interest. Where a part of the window is forgotten, it is taken to
-- have been as full as the rest.
local function used(r, mark, u)
  if mark > r.seen then
    return 0
  elseif not has_windows(u) then
    return u.rate
  end
  local since = window(u, mark)
  local before = u.boundaries and window(u, window(u, r.seen) - 1)
  if not since or (before and mark < before) then
    return 0
  end
  open(r)
  local sum = 0
  for i = 1, r.size do
    local first, last, n = r.F[i], r.L[i], r.N[i]
    if last >= since and first <= mark then
      if last > mark then
        n = ceil(n * ((mark - first + 1) / (last - first + 1)))
      end
      sum = sum + n
    end
  end
  if sum > u.rate then
    return 0
  end
  if r.lost >= since then
    sum = sum * ((mark - since + 1) / max(1, mark - r.lost))
  end
  return max(1, sum)
end

-- learn lowers the ceiling, if the refusal of the start at mark is evidence, and returns
-- how high it was and is, in thousandths.
function ceiling.learn(r, mark, u, now)
  if u.learns == 0 then
    return 0, 0
  end
  local from = ceiling.is_of(r, u) and ceiling.at(r, now) or u.rate
  local to, level = from, used(r, mark, u)
  if level > 0 and mark > r.fell and (r.paused == 0 or mark >= r.paused + r.probe) then
    if level < from / 2 then
      level = from * 3 / 4 -- it may be about something else
    end
    r.top, r.fell, r.learns = max(1, min(from, level)), now, u.learns
    to = min(from, ceiling.at(r, now))
  end
  return floor(from * 1000), floor(to * 1000)
end
end
