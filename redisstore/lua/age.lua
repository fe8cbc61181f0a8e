-- Time passing over a row, and what is known of times that it has forgotten.

local STALL = 50000 -- by so much a call may be slower than the one before

-- freeze keeps cancelled places taken until everything booked so far is over.
local function freeze(r)
  if r.size > 0 then
    r.frozen = max(r.frozen, latest(r) + r.span)
  end
end

-- step_back moves the row to a clock that shows less than before, as if no time
-- had passed since. Entries still to come are widened to begin now: their
-- callers have slept for an unknown while.
local function step_back(r, now)
  open(r)
  local shift, F, L = now - r.seen, r.F, r.L
  for i = 1, r.size do
    F[i], L[i] = F[i] + shift, L[i] + shift
  end
  for _, f in ipairs({'lost', 'till', 'paused', 'frozen'}) do
    if r[f] ~= 0 then
      r[f] = r[f] + shift
    end
  end
  freeze(r)
  local k = r.size
  if k == 0 or L[k] <= now then
    return
  end
  while k > 1 and L[k - 1] >= now do
    join(r, k - 1)
    k = k - 1
  end
  F[k] = min(F[k], now)
end

-- at_most is the most that a length of time can have held: what each of the spans
-- that cover it can. Beyond MAX_COUNT it makes no difference.
local function at_most(r, length)
  return min(ceil(length / r.span) * r.most, MAX_COUNT)
end

-- remember makes the row complete for as long back as the rule needs. History
-- that is not there is replaced by the most that there can have been, at the
-- latest moment it can have happened.
local function remember(r, now, back, keep, most, u)
  local missing = r.lost - (now - back)
  if missing > 0 then
    add(r, r.lost, r.lost, at_most(r, missing))
    r.lost, r.level = now - back, 0
  end
  if u.kind == PACED and keep ~= r.span and r.span > 0 then
    freeze(r) -- blocks of another unit cannot be told apart
  end
  if now >= r.till then
    r.span, r.most = keep, most
  elseif keep > r.span then
    r.span, r.most = keep, max(at_most(r, keep), most)
  else
    r.most = max(r.most, most)
  end
  if keep == r.span then
    r.till = max(r.till, now + keep)
  end
end

-- block_end returns when the units of a paced block are over: at the earliest
-- when as many as one start can have, most, had their time, even if they were
-- booked closer together. The row is open.
local function block_end(r, i, unit, most)
  return max(r.L[i] + unit, r.F[i] + min(r.N[i], most) * unit)
end

-- is_over reports whether no start to come can share an interval with an entry
-- that ends at last, and none has to stay behind it.
local function is_over(r, last, now)
  return last + r.span <= now and (last < r.paused or now >= r.paused + PROBE_TIME)
end

-- prune drops the entries that matter to no start to come.
local function prune(r, now, u)
  if r.size == 0 or not is_over(r, r.F and r.L[1] or r.old, now) then
    return
  end
  if not r.F and r.size > 1 and u.kind < PACED and r.unit == 0 and r.last + r.span > now then
    for _ = 1, 4 do
      forget(r, r.old, 0, u)
      pop(r)
      if not is_over(r, r.old, now) then
        return
      end
    end
  end
  open(r)
  local k = 0
  while k < r.size and is_over(r, r.L[k + 1], now)
    and not (u.kind == PACED and block_end(r, k + 1, u.span, u.n) > now) do
    k = k + 1
    forget(r, r.L[k], r.N[k], u)
  end
  drop(r, k)
end

-- advance brings the row to the time now and makes it fit for the rule. It
-- returns false where the rule's edges end.
local function advance(r, now, u)
  local back, keep, most = u.span, u.span, u.n
  if u.kind == ALIGNED then
    local start, stop = window(u, now)
    if not start then
      return false
    end
    back, keep, most = now - start + 1, stop - start, 2 * u.n -- its first moment counts
  elseif u.kind == PACED then
    most = 1
  elseif u.kind == BUCKET then
    most = 2 * u.n -- a full one, and what flows in
  end
  if now < r.seen then
    step_back(r, now)
  end
  if u.kind == BUCKET then
    recount(r, u)
  end
  remember(r, now, back, keep, most, u)
  r.seen = now
  prune(r, now, u)
  return true
end
