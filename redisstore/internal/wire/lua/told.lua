-- What an upstream tells of its limit. A budget under the limit Told is unlimited until a note lies in its row; from then on the note is a sliding
-- window, until the note is over: see docs/use/bans.md#limits-that-answers-tell. The twin is internal/ledger/told.go. A row has of its note
--
--   told   starts in any window, 0 without a note
--   each   the window
--   heard  when an answer told it last
--
-- needs: frame (max, floor)
-- defines: note.ends, note.forget, note.obey, note.tell

-- ends returns when the note of a row is over, 0 without a note.
function note.ends(r)
  return r.told > 0 and r.heard + r.each + NOTE_KEPT or 0
end

-- forget takes the note off a row.
function note.forget(r)
  r.told, r.each, r.heard = 0, 0, 0
end

do
-- is_note reports whether a limit may be a note.
local function is_note(n, window)
  return 1 <= n and n <= MOST_TOLD and LEAST_WINDOW <= window and window <= LONGEST_WINDOW
end

-- is_tighter reports whether n starts in a window are fewer than the note has in the same time, or as many that are told for a shorter window.
local function is_tighter(r, n, window)
  local rate, held = n / window, r.told / r.each
  return rate < held or rate == held and window < r.each
end

-- pace_of returns the pace of a sliding window: see Limit.Pace in store/limit.go.
local function pace_of(n, window)
  local within = EVEN_PACE
  if window <= EVEN_WINDOW then
    within = floor(window * 9 / 10)
  end
  return floor(within / n)
end

-- obey makes a rule that leaves its number to the upstream the sliding window of the row's note, or forgets a note that is over.
function note.obey(r, now, u)
  if now >= note.ends(r) then
    note.forget(r)
    return
  end

  u.kind, u.n, u.cap, u.peak, u.rate = SLIDING_WINDOW, r.told, r.told, r.told, r.told
  u.span = r.each + u.jitter + 1
  u.width, u.pace = u.span, pace_of(r.told, r.each)
  if u.adapts then
    u.learns = r.each
  end
end

-- tell takes in that an answer told a limit, and reports whether the row's note has changed. A limit that allows more than the note replaces it
-- only when no answer has told the note for a window, and for a minute: where answers disagree, the tightest counts.
function note.tell(r, now, n, window)
  if not is_note(n, window) then
    return false
  end

  local holds = now < note.ends(r)
  if holds and r.told == n and r.each == window then
    r.heard = now
    return false
  elseif holds and not is_tighter(r, n, window) and now < r.heard + max(r.each, PREFERRED) then
    return false
  end

  -- Starts from before the note were not counted, so that none of them can be given back.
  if not holds then
    r.frozen = max(r.frozen, now + MARKED)
  end

  -- Nobody counted for a longer window, and a bound on what may have been would close the budget.
  if window > r.each or not holds then
    r.frozen = max(r.frozen, r.lost)
    r.lost = 0
  end

  -- Entries of the old window would be kept as coarsely as that needs.
  if window ~= r.each then
    r.till = now
  end

  r.told, r.each, r.heard = n, window, now
  return true
end
end
