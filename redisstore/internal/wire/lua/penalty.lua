-- What an upstream's refusals do to a budget. A penalty closes it for a time: see docs/internals/bans.md. A ceiling lowers its limit: see
-- docs/use/bans.md#learn-from-refusals. The twin is internal/ledger/penalty.go.
--
-- A row, or a budget of slots, remembers of its last penalty
--
--   ban     for how long it closed the budget
--   probe   for how long the first start afterwards is alone
--   times   how often in a row it was met, 0 if it was no refusal
--
-- and a row of its ceiling
--
--   top     the level of use that was refused, 0 without a ceiling
--   fell    when the ceiling fell from there
--   learns  the window that both are about
--
-- The height of a ceiling at any moment follows from these, so it rises without being written.
--
-- needs: frame (max, min, ceil, floor), row (open), rule (window, has_windows)
-- defines: penalty.step, penalty.remembered, penalty.repeated, penalty.forgive, penalty.shut, is_free, ceiling.is_of, ceiling.forgotten,
--     ceiling.at, ceiling.forget, ceiling.obey, ceiling.learn

do
-- step returns the longest step of the slow start after a penalty.
function penalty.step(r)
  return min(floor(r.ban / 2), LONGEST_STEP)
end

-- remembered returns for how long after the end of a penalty a refusal has to do with it.
function penalty.remembered(r)
  return max(penalty.step(r), r.probe)
end

-- repeated returns how often a penalty was met again, until it is forgotten. left is for how long it still lasts, below 0 since its end.
function penalty.repeated(r, left)
  return left + penalty.remembered(r) > 0 and max(0, r.times - 1) or 0
end

-- grown returns an upper bound on a penalty of that length that is met again: as many times the length as the length has whole seconds.
local function grown(length)
  length = min(length, LONGEST_GROWN)
  return min(length * floor(length / 1000000), LONGEST_GROWN)
end

-- forgive forgets a penalty.
function penalty.forgive(r)
  r.ban, r.probe, r.times = 0, 0, 0
end

-- shut returns for how long r is closed now. It was closed for left, below 0 since the end of that, and is to be closed for length. A
-- request was refused that was sent a time refused before now, or none was if refused is 0; its answer took the time took. The store may
-- have been away since.
--
-- A request that was sent after the last penalty has met that again. So has one sent in the last half of the penalty, because clocks drift.
-- A request that was sent before belongs to the penalty, and its answer came late.
function penalty.shut(r, left, length, refused, took)
  if left + penalty.remembered(r) <= 0 then
    penalty.forgive(r)
  end

  local ban, times = length, refused > 0 and 1 or 0
  local late = refused > 0 and -refused < left - floor(r.ban / 2)
  if refused > 0 and r.times > 0 and left <= 0 and not late then
    ban, times = max(length, min(2 * r.ban, grown(length))), r.times + 1
  end
  local probe, closed = max(LEAST_PROBE, min(2 * took, LONGEST_PROBE, ban)), max(left, ban)

  -- Two penalties that overlap are one, with the longer times of both.
  if late or left > 0 then
    ban, probe, times = max(r.ban, ban), max(r.probe, probe), max(r.times, times)
  end
  r.ban, r.probe, r.times = ban, probe, times
  return closed
end
end

-- is_free reports whether a rule is unlimited and its row closes nothing: then the row holds no start, and counts none.
local function is_free(u, r)
  return u.peak == 0 and r.paused + r.probe <= now and r.opens <= now and not (u.tells and r.told > 0)
end

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

-- at returns the height of the ceiling: a cubic that is flat around its top, as in the congestion control CUBIC.
function ceiling.at(r, now)
  local x = max(-1, (now - r.fell - rising(r)) / rising(r))
  return r.top + r.top / CEILING_FALL * x * x * x
end

-- forget takes the ceiling off a row.
function ceiling.forget(r)
  r.top, r.fell, r.learns = 0, 0, 0
end

-- obey lowers a rule to the row's ceiling, or forgets a ceiling that has risen to the limit.
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

-- used returns how much of the limit was in use when the start at mark came, the start included. It returns 0 if the refusal of that start
-- is no evidence: more than the limit was in use, the start has not come, or it lies in a fixed window that is over for long. A leaky bucket
-- and a token bucket count by their rate alone. Where a part of the window is forgotten, that part is taken to have been as full as the
-- rest.
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
      -- Of an entry that reaches beyond the mark, the part up to the mark counts.
      if last > mark then
        n = ceil(n * ((mark - first + 1) / (last - first + 1)))
      end
      sum = sum + n
    end
  end

  -- More than the limit was in use, so the refusal says nothing of the limit.
  if sum > u.rate then
    return 0
  end

  -- The forgotten part of the window is taken to have been as full as the rest.
  if r.lost >= since then
    sum = sum * ((mark - since + 1) / max(1, mark - r.lost))
  end
  return max(1, sum)
end

-- believed returns to which level a refusal at a level of use lowers a ceiling that was at from. A refusal below half of that may have a
-- different reason.
local function believed(level, from)
  return level < from / 2 and from * 3 / 4 or level
end

-- learn lowers the ceiling, if the refusal of the start at mark is evidence, and returns the height before and after, in thousandths.
function ceiling.learn(r, mark, u, now)
  if u.learns == 0 then
    return 0, 0
  end

  local from = ceiling.is_of(r, u) and ceiling.at(r, now) or u.rate
  local to, level = from, used(r, mark, u)
  if level > 0 and mark > r.fell and (r.paused == 0 or mark >= r.paused + r.probe) then
    r.top, r.fell, r.learns = max(1, min(from, believed(level, from))), now, u.learns
    to = min(from, ceiling.at(r, now))
  end
  return floor(from * 1000), floor(to * 1000)
end
end
