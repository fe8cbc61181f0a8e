-- Time passing over a row, and what is known of times that it has forgotten.

local STALL = 50000 -- by so much a call may be slower than the one before
local MARKED = 10000000 -- so far ahead marks of before a step are not believed; few queues of a short limit are longer
local STEADY = 1000 -- and two clocks differ by one part in so many

-- is_late reports whether a call is here so long after it was due that what it says of
-- lengths of time must be said again. Perhaps only the clock was set.
local function is_late(now, due)
  return due ~= 0 and now - due > STALL
end

-- freeze keeps cancelled places taken of all that was booked so far: up to the last
-- start, or a mark that is so much later.
local function freeze(r, later)
  if r.size > 0 then
    r.frozen = max(r.frozen, latest(r) + (later or 0))
  end
end

-- heard says for a key where in the blob it stands what the calling program heard of
-- the row last: how long ago it asked, below 0 if it cannot tell, the time that it
-- was told, below 0 if it knows that the clock was set forward since, and birth and
-- count of the row.
local heard = {}

-- least says for a key how much time has passed at least since the moment that the
-- program was told.
local least = {}

-- is_outdated reports whether the server forgot the call that the program knows the
-- row from: then the row is that of a replica that lagged.
local function is_outdated(from)
  local record = redis.call('GETRANGE', KEYS[1], 0, 7)
  return struct.unpack('<d', blob, from - 8) > (#record == 8 and struct.unpack('<d', record) or 0)
end

-- lead returns by how much too far a clock went since the row was seen, because it
-- was set forward; 0 if it seems that it was not. Also returned is by how much
-- callers may start earlier than the row will have it, because they slept meanwhile
-- for a while that nobody knows, or because this call is slow, too; and whether the
-- program knows that the clock was set: else it may be nothing but a slow call.
local function lead(r, now)
  local from = heard[r.key]
  if not from then
    return 0
  end
  local ago, at, birth, count = struct.unpack('<dddd', blob, from)
  local sure, slack = at < 0, STALL + ago / STEADY
  at = math.abs(at)
  if not r.stored then
    -- What the program says is too old by what this call took: that may have outlived the row.
    return (not sure and ago >= 0 and now - at - ago > slack) and 1 or 0, 0, sure
  end
  if ago < 0 or at > r.seen and (birth ~= r.birth or count > r.count or is_outdated(from)) then
    return 0
  end
  local passed, ahead = now - r.seen, now - at - ago
  if at == r.seen then
    return ahead > slack and ahead or 0, ahead, sure
  elseif passed > ago + slack or (at < r.seen and ahead > slack and passed >= ahead - slack) then
    return passed, max(ago, passed), sure -- others were there since: when, nobody knows
  end
  return 0
end

-- fell_back reports whether the clock was set back since the program heard of the row,
-- and the row does not know: less time seems to have passed than the program knows of.
local function fell_back(r, now)
  local from, passed = heard[r.key], least[r.key]
  if not from then
    return false
  end
  local _, at = struct.unpack('<dd', blob, from)
  at = math.abs(at)
  return at <= r.seen and now - at < passed - STALL - passed / STEADY
end

-- was_set reports whether the clock was set since the program heard of the row.
local function was_set(r, now)
  local ago, at = struct.unpack('<dd', blob, heard[r.key])
  return ago >= 0 and math.abs(now - math.abs(at) - ago) > STALL
end

-- widen makes entries still to come begin up to so much earlier, but not before
-- now.
local function widen(r, now, by)
  local F, L, i = r.F, r.L, r.size
  while i > 0 and L[i] >= now do
    F[i] = min(F[i], max(now, F[i] - by))
    if i < r.size and F[i + 1] <= L[i] then
      join(r, i)
    end
    i = i - 1
  end
end

-- still_counts makes one entry, up to now, of those that are over but for the first
-- few: where a window began that counted them, a clock that was set has forgotten.
local function still_counts(r, now, few)
  open(r)
  local i = after(r, now) - 1
  while i > few + 1 do
    i = i - 1
    join(r, i)
  end
  if i > few then
    r.L[i] = now
  end
end

-- step moves the row by the shift, to a clock that was set. The callers of entries
-- still to come may start earlier than that, by not more than asleep.
local function step(r, now, shift, asleep, u)
  open(r)
  local F, L, few = r.F, r.L, 0
  if u.kind == ALIGNED then
    few = after(r, window(u, r.seen) or r.seen - r.span) - 1
  end
  for i = 1, r.size do
    F[i], L[i] = F[i] + shift, L[i] + shift
  end
  for _, f in ipairs({'lost', 'till', 'paused', 'opens', 't1', 't2', 't3', 'pin', 'fell'}) do
    if r[f] ~= 0 then
      r[f] = r[f] + shift
    end
  end
  -- Marks are times of the clock that they were booked by: those of before may point to
  -- starts of others, however late they come.
  freeze(r, min(max(0, -shift), max(r.span, MARKED)))
  if u.kind == ALIGNED then
    still_counts(r, now, few)
  end
  widen(r, now, asleep)
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
    local n = at_most(r, missing)
    if n > 0 then
      add(r, r.lost, r.lost, n)
    end
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
  return last + r.span <= now and (last < r.paused or now >= r.paused + r.probe)
end

-- prune drops the entries that matter to no start to come.
local function prune(r, now, u)
  if r.size == 0 or not is_over(r, r.F and r.L[1] or r.old, now) then
    return
  end
  if not r.F and r.lined == 0 and r.size > 1 and u.kind < PACED and r.unit == 0 and r.last + r.span > now then
    for _ = 1, 4 do
      forget(r, r.old, 0, u)
      pop(r)
      if r.F then
        break
      elseif not is_over(r, r.old, now) then
        return
      end
    end
  end
  open(r)
  local k = 0
  while k < r.size and is_over(r, r.L[k + 1], now)
    and not (u.kind == PACED and block_end(r, k + 1, u.span + u.pad, u.n) > now) do
    k = k + 1
    forget(r, r.L[k], r.N[k], u)
  end
  drop(r, k)
end

-- advance brings the row to the time now and makes it fit for the rule. It
-- returns false where the rule's edges end, or if the program must say first whether
-- the clock was set.
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
  elseif u.free then
    most = 0 -- what starts is not counted
  end
  if now < r.seen then
    step(r, now, now - r.seen, math.huge, u)
  else
    local shift, asleep, sure = lead(r, now)
    if shift > 0 and not sure then
      return false
    elseif shift > 0 then
      step(r, now, shift, asleep, u)
    elseif fell_back(r, now) then
      step(r, now, 0, math.huge, u) -- what was booked seems to be later than it is: there are no gaps
    end
  end
  if r.top > 0 then
    ceiling.obey(r, now, u)
  end
  if u.kind == BUCKET then
    recount(r, u)
  end
  remember(r, now, back, keep, most, u)
  r.seen = now
  prune(r, now, u)
  return true
end
