-- Time passes over a row: what is forgotten, what stays, and what happens when the server's clock is set. advance, at the end, is how all of
-- it begins. The twin is internal/ledger/age.go; functions that only this file has find out that a clock was set, see docs/internals/clocks.md.
--
-- needs: bucket (recount, forget), entries (touch, block_end, join, after, add, drop, pop), frame (max, min, ceil), penalty (ceiling.obey),
--     row (ceiling, note, open, latest), rule (window, has_windows), told (note.obey)
-- defines: is_late, pin_until, forward_step, stepped_back, was_set, widen_pending, carry_over, step, at_most, is_blank, remember, is_over,
--     prune, advance

-- is_late reports whether a call comes so far behind its due time that the program must say again what it says of lengths of time. Perhaps
-- only the clock was set. A due time of 0 means that there is none.
local function is_late(now, due)
  return due ~= 0 and now - due > STALL
end

-- pin_until keeps the places of all that was booked before now taken, also when they are cancelled: up to the last start, or a mark that is
-- later by a time.
local function pin_until(r, later)
  if r.size > 0 then
    r.frozen = max(r.frozen, latest(r) + (later or 0))
  end
end

-- forward_step returns by how much the clock was set forward since the row was seen, 0 if it seems that it was not. It also returns by how
-- much callers may start earlier than the row will have it, because they slept meanwhile for an unknown time, or because this call is slow
-- too; and whether the program knows that the clock was set: if it does not, this may be nothing but a slow call.
local function forward_step(r, now)
  local h = r.history
  if not h then
    return 0
  end

  local ago, at, known, slack = h.ago, h.at, h.clock == SET_FORWARD, STALL + h.ago / STEADY
  if not r.stored then
    -- The program's word is older by the time that this call took, and the row may have expired in that time.
    return (h.clock == ELAPSED_KNOWN and now - at - ago > slack) and 1 or 0, 0, known
  end
  if h.clock == ELAPSED_UNKNOWN or at > r.seen and (h.generation ~= r.generation or h.count > r.count or h.outdated) then
    return 0
  end

  local passed, ahead = now - r.seen, now - at - ago
  if at == r.seen then
    return ahead > slack and ahead or 0, ahead, known
  elseif passed > ago + slack or (at < r.seen and ahead > slack and passed >= ahead - slack) then
    return passed, max(ago, passed), known -- others were there since, at an unknown time
  end
  return 0
end

-- stepped_back reports whether the clock was set back since the program heard of the row, and the row does not know: less time seems to have
-- passed than the program knows of.
local function stepped_back(r, now)
  local h = r.history
  return h and h.at <= r.seen and now - h.at < h.elapsed - STALL - h.elapsed / STEADY
end

-- was_set reports whether the clock was set since the program heard of the row.
local function was_set(r, now)
  local h = r.history
  return h.clock ~= ELAPSED_UNKNOWN and math.abs(now - h.at - h.ago) > STALL
end

-- widen_pending widens the entries to come so that they begin earlier by at most that time, but not before now.
local function widen_pending(r, now, by)
  local F, L, i = r.F, r.L, r.size
  while i > 0 and (L[i] > now or F[i] >= now) do -- no two entries begin together
    F[i] = min(F[i], max(now, F[i] - by))
    touch(r, i)
    if i < r.size and F[i + 1] <= L[i] then
      join(r, i)
    end
    i = i - 1
  end
end

-- carry_over makes one entry, up to now, of all entries that are over except the first few. The upstream's window that has counted them may
-- still last, although it is over by the clock that was set.
local function carry_over(r, now, few)
  open(r)
  local i = after(r, now) - 1
  while i > few + 1 do
    i = i - 1
    join(r, i)
  end
  if i > few then
    r.L[i] = now
    touch(r, i)
  end
end

-- step moves the row by the shift to a clock that was set, as if no time had passed. The callers of entries to come may start earlier, by at
-- most the time asleep. The upstream's windows stay where they are, so after a small step back the entries of the present window, and entries
-- to come, still reach to where they were. Otherwise starts at the edge of a window would count in the window before it alone.
local function step(r, now, shift, asleep, u)
  open(r)
  touch(r, 1)
  local F, L, few, reach = r.F, r.L, 0, r.size

  -- In a fixed window, entries up to few are in windows that are over.
  if u.boundaries then
    few = after(r, window(u, r.seen) or r.seen - r.span) - 1
    reach = shift < 0 and -shift <= STALL and few or reach
  end

  for i = 1, r.size do
    F[i], L[i] = F[i] + shift, i > reach and L[i] or L[i] + shift
  end
  for _, f in ipairs({'lost', 'till', 'paused', 'opens', 't1', 't2', 't3', 'pin', 'fell', 'heard'}) do
    if r[f] ~= 0 then
      r[f] = r[f] + shift
    end
  end

  -- Marks are times of the clock by which they were booked: older marks may point to starts of other callers, however late they come.
  pin_until(r, min(max(0, -shift), max(r.span, MARKED)))

  if u.boundaries then
    carry_over(r, now, few)
  end
  widen_pending(r, now, asleep)
end

-- at_most returns an upper bound on the starts in a length of time: the sum of the bounds of the spans that cover it. Beyond MAX_COUNT it
-- makes no difference.
local function at_most(r, length)
  return min(ceil(length / r.span) * r.most, MAX_COUNT)
end

-- is_blank reports whether the row neither has nor has forgotten a start that a limit counts.
local function is_blank(r)
  return r.most == 0 or r.size == 0 and r.lost == 0
end

-- remember makes the row complete for as long back as the rule needs. History that is missing is replaced by an upper bound on its starts, at
-- the latest moment at which they can have been.
local function remember(r, now, since, keep, u)
  local missing = r.lost - since + 1
  if missing > 0 then
    local n = at_most(r, missing)
    if n > 0 then
      add(r, r.lost, r.lost, n)
    end
    r.lost, r.level = since - 1, 0
  end
  if u.unit > 0 and keep ~= r.span and r.span > 0 then
    pin_until(r) -- blocks of a different unit cannot be told apart
  end

  -- The span and the bound of an older limit count until no entry needs them.
  if now >= r.till or is_blank(r) then
    r.span, r.most = keep, u.peak
  elseif keep > r.span then
    r.span, r.most = keep, max(at_most(r, keep), u.peak)
  else
    r.most = max(r.most, u.peak)
  end
  if keep == r.span then
    r.till = max(r.till, now + keep)
  end
end

-- is_over reports whether no start to come can share an interval with an entry that ends at last, and none has to stay behind it.
local function is_over(r, last, now)
  return last + r.span <= now and (last < r.paused or now >= r.paused + r.probe)
end

-- prune drops the entries that matter to no start to come.
local function prune(r, now, u)
  if r.size == 0 or not is_over(r, r.F and r.L[1] or r.old, now) then
    return
  end

  -- A few entries are dropped one by one, so that a row with many of them is not read.
  if not r.F and r.lined == 0 and r.size > 1 and has_windows(u) and r.unit == 0 and r.last + r.span > now then
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
    and not (u.unit > 0 and block_end(r, k + 1, u.unit + u.pad, u.n) > now) do
    k = k + 1
    forget(r, r.L[k], r.N[k], u)
  end
  drop(r, k)
end

-- advance brings the row to the time now, and makes it fit for the rule. It may give the rule the number of the row's note, and lower it to the row's ceiling. It returns nil, or what
-- the call needs first: NEEDS_BOUNDARIES where the rule's boundaries end, NEEDS_TIME if the program must say whether the clock was set.
local function advance(r, now, u)
  local since, _, keep = window(u, now)
  if not since then
    return NEEDS_BOUNDARIES
  end

  if now < r.seen then
    step(r, now, now - r.seen, math.huge, u)
  else
    local shift, asleep, known = forward_step(r, now)
    if shift > 0 and not known then
      return NEEDS_TIME
    elseif shift > 0 then
      step(r, now, shift, asleep, u)
    elseif stepped_back(r, now) then
      step(r, now, 0, math.huge, u) -- the entries to come seem to be later than they are, so starts could not go between them
    end
  end

  if u.tells and r.told > 0 then
    note.obey(r, now, u)
    since, _, keep = window(u, now)
  end
  if r.top > 0 then
    ceiling.obey(r, now, u)
  end
  if u.tokens > 0 then
    recount(r, u)
  end
  remember(r, now, since, keep, u)
  r.seen = now
  prune(r, now, u)
end
