-- Time passes over a row: which starts are forgotten, which stay, and what happens when the server's clock is set. Other files call advance, at the end
-- of this part. The twin is internal/ledger/age.go; functions that only this file has find out that a clock was set: see docs/internals/clocks.md.
--
-- needs: bucket (recount, forget), entries (touch, block_end, join, after, add, drop, pop), frame (max, min, ceil), penalty (ceiling.obey),
--     row (ceiling, note, open, latest), rule (window, has_windows), told (note.obey)
-- defines: is_late, pin_until, forward_step, stepped_back, was_set, widen_pending, carry_over, step, at_most, is_blank, remember, is_over,
--     prune, advance

-- is_late reports whether a call comes more than STALL after its due time, because it is late or the clock was set: then the program must state its
-- lengths of time anew. A due time of 0 means that the call has none.
local function is_late(now, due)
  return due ~= 0 and now - due > STALL
end

-- pin_until freezes all starts that are booked, and all marks up to beyond microseconds after the end of the last entry: they stay booked when they are
-- cancelled. If beyond is left out it is 0. Without entries pin_until does nothing.
local function pin_until(r, beyond)
  if r.size > 0 then
    r.frozen = max(r.frozen, latest(r) + (beyond or 0))
  end
end

-- forward_step finds out whether the server's clock was set forward since the row was seen. It returns three values, or a 0 alone:
--
--   shift   by how much to move the row, 0 if the clock does not seem to have been set
--   asleep  by how much entries to come may begin earlier than the moved row says. The shift can be too large: this call may be slow, too, or it may
--           be unknown for how long the callers of these entries slept.
--   known   whether the program knows that the clock was set. Otherwise this call may only be slow.
local function forward_step(r, now)
  local h = r.history
  if not h then
    return 0
  end

  -- ahead is how much more time has passed by the server's clock than by the program's clock, since the answer that told the program of the row. Up to
  -- slack the two clocks may disagree.
  local ahead = now - h.at - h.ago
  local slack = STALL + h.ago / STEADY
  local known = h.clock == SET_FORWARD

  -- Without a row there is nothing to move. But if this call was slow, the row may have expired on time meanwhile, and nothing was lost. A shift of 1
  -- makes advance ask the program, which then states the ages of its starts anew.
  if not r.stored then
    local asks = h.clock == ELAPSED_KNOWN and ahead > slack
    return asks and 1 or 0, 0, known
  end

  -- There is nothing to compare if the program cannot tell lengths of time, or if it may have heard of a later state than this row has.
  local may_be_older = h.generation ~= r.generation or h.count > r.count or h.outdated
  if h.clock == ELAPSED_UNKNOWN or h.at > r.seen and may_be_older then
    return 0
  end

  -- The row was last seen in that answer: no other program has called since.
  if h.at == r.seen then
    return ahead > slack and ahead or 0, ahead, known
  end

  -- The row was last seen in a different call, usually of another program since that answer. The clock was set after r.seen if more time has passed
  -- since r.seen than the program counts since the answer, or if all of ahead fits between r.seen and now.
  local passed = now - r.seen
  local too_long = passed > h.ago + slack
  local fits = h.at < r.seen and ahead > slack and passed >= ahead - slack
  if too_long or fits then
    return passed, max(h.ago, passed), known
  end
  return 0
end

-- stepped_back reports whether the clock was set back since the program heard of the row, though now is not before r.seen: then less time has passed by
-- the clock than the program knows of. It returns false without a history, and if the program heard of the row after r.seen: then the row was moved
-- back already.
local function stepped_back(r, now)
  local h = r.history
  return h and h.at <= r.seen and now - h.at < h.elapsed - STALL - h.elapsed / STEADY
end

-- was_set reports whether the clock was set since the program heard of the row. It returns false if the program cannot tell lengths of time.
local function was_set(r, now)
  local h = r.history
  return h.clock ~= ELAPSED_UNKNOWN and math.abs(now - h.at - h.ago) > STALL
end

-- widen_pending has the entries to come of an open row begin earlier by that time, but not before now. It joins entries that touch then.
local function widen_pending(r, now, time)
  local F, L, i = r.F, r.L, r.size

  -- Look at an entry that begins and ends now, too: later entries may begin now afterwards, and no two entries begin together.
  while i > 0 and (L[i] > now or F[i] >= now) do
    F[i] = min(F[i], max(now, F[i] - time))
    touch(r, i)
    if i < r.size and F[i + 1] <= L[i] then
      join(r, i)
    end
    i = i - 1
  end
end

-- carry_over opens a row, and joins all entries that end before now, except the first past_count entries, into one entry that ends now. So the joined
-- starts count in the window that contains now: the upstream may still be in the window in which it counted them, although that window is over by
-- the clock that was set. The first past_count entries lie in windows that were over before.
local function carry_over(r, now, past_count)
  open(r)
  local i = after(r, now) - 1
  while i > past_count + 1 do
    i = i - 1
    join(r, i)
  end
  if i > past_count then
    r.L[i] = now
    touch(r, i)
  end
end

-- step opens a row, moves its times by the shift because the clock was set, and freezes all starts. A shift below 0 is a step back; a shift of 0 means
-- that nobody knows by how much the clock was set back. Entries to come begin earlier by asleep, but not before now, because their callers may start as
-- early as that.
--
-- The upstream's fixed windows do not move. So starts that have come are carried over to now: see carry_over. And after a step back of at most STALL
-- the entries of the present window, and entries to come, still end where they ended before. Otherwise starts at the edge of a window would count only
-- in the window before the edge.
local function step(r, now, shift, asleep, u)
  open(r)
  touch(r, 1)
  local F, L = r.F, r.L

  -- The first past_count entries lie in fixed or calendar windows that were over when the row was seen. If the boundaries that the program sent do not
  -- reach back to that moment, only entries that were older than a span count as over.
  local past_count = 0
  if u.boundaries then
    past_count = after(r, window(u, r.seen) or r.seen - r.span) - 1
  end

  -- After a step back of at most STALL, only the first moved_ends entries end earlier.
  local moved_ends = r.size
  if u.boundaries and shift < 0 and -shift <= STALL then
    moved_ends = past_count
  end

  for i = 1, r.size do
    F[i] = F[i] + shift
    if i <= moved_ends then
      L[i] = L[i] + shift
    end
  end

  -- These times of the row keep their distance to now, too. Zero stands for no time. frozen stays: marks are times of the clock as it was.
  for _, field in ipairs({'lost', 'till', 'paused', 'opens', 't1', 't2', 't3', 'pin', 'fell', 'heard'}) do
    if r[field] ~= 0 then
      r[field] = r[field] + shift
    end
  end

  -- A mark is the time of a start by the clock as it was when the start was booked. A mark from before the step may name the start of a different
  -- caller now, so freeze all marks. Such a mark is later than the last entry, which has moved, by at most the step back. Marks that are later by more
  -- than both MARKED and a span are not frozen, or too many starts that are booked later would stay taken when they are cancelled.
  pin_until(r, min(max(0, -shift), max(r.span, MARKED)))

  if u.boundaries then
    carry_over(r, now, past_count)
  end
  widen_pending(r, now, asleep)
end

-- at_most returns an upper bound on the starts in a length of time: the sum of the bounds of the spans that cover it, but at most MAX_COUNT, which
-- fills any window.
local function at_most(r, length)
  return min(ceil(length / r.span) * r.most, MAX_COUNT)
end

-- is_blank reports whether the row neither has nor has forgotten a start that a limit counts.
local function is_blank(r)
  return r.most == 0 or r.size == 0 and r.lost == 0
end

-- remember makes the row complete from since on, the time from which the rule needs starts, and has the row keep entries for at least the time keep.
-- If the row may have forgotten starts of that time, remember adds an upper bound on these, at the latest moment at which they can have been.
local function remember(r, now, since, keep, u)
  local missing = r.lost - since + 1 -- the length of time of which starts may be forgotten
  if missing > 0 then
    local n = at_most(r, missing)
    if n > 0 then
      add(r, r.lost, r.lost, n)
    end
    r.lost, r.level = since - 1, 0 -- the added entry also stands for the starts that the level counted
  end

  -- The starts in blocks of a different unit cannot be told apart, so freeze these starts.
  if u.unit > 0 and keep ~= r.span and r.span > 0 then
    pin_until(r)
  end

  -- The span and the bound of an older limit count until no entry needs them. A longer span may have as many starts as the older spans that cover it.
  if now >= r.till or is_blank(r) then
    r.span, r.most = keep, u.peak
  elseif keep > r.span then
    r.span, r.most = keep, max(at_most(r, keep), u.peak)
  else
    r.most = max(r.most, u.peak)
  end

  -- This limit needs the whole span, so the row keeps the span for that long from now on.
  if keep == r.span then
    r.till = max(r.till, now + keep)
  end
end

-- is_over reports whether an entry that ends at last is over for all starts to come: it ended a span ago or earlier, and cannot be a probe behind which
-- starts must still stay.
local function is_over(r, last, now)
  return last + r.span <= now and (last < r.paused or now >= r.paused + r.probe)
end

-- prune drops the first entries, up to an entry that can still hold back a start. forget keeps what must be remembered of a dropped entry: the time of
-- its end and, for a bucket, the tokens that it owes.
local function prune(r, now, u)
  if r.size == 0 or not is_over(r, r.F and r.L[1] or r.old, now) then
    return
  end

  -- Drop up to four entries of a closed row without reading all of it. If more are over, the row is opened below. A row with a line is read as a whole
  -- anyway. Under a bucket, or with a bucket's level, forget and block_end need the costs of entries. pop needs a second entry: where the last entry is
  -- not over, the loop ends before it.
  local needs_costs = not has_windows(u) or r.unit ~= 0
  if not r.F and r.lined == 0 and not needs_costs and r.size > 1 and r.last + r.span > now then
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

  -- Drop all other entries that are over. The units of a leaky bucket's entry may last longer than the entry itself.
  open(r)
  local k = 0
  while k < r.size and is_over(r, r.L[k + 1], now)
    and not (u.unit > 0 and block_end(r, k + 1, u.unit + u.pad, u.n) > now) do
    k = k + 1
    forget(r, r.L[k], r.N[k], u)
  end
  drop(r, k)
end

-- advance brings row r to the time now, and makes it fit for rule u. It may change the rule: to the limit of the row's note, and down to the row's
-- ceiling. It returns nil, or, with nothing changed, what the call needs first: NEEDS_BOUNDARIES if the rule's boundaries do not reach now, NEEDS_TIME
-- if the program must say whether the clock was set.
local function advance(r, now, u)
  local since, _, keep = window(u, now)
  if not since then
    return NEEDS_BOUNDARIES
  end

  -- If the clock was set, move all times of the row. After a step back nobody knows for how long the callers of entries to come have slept: these
  -- entries may begin now.
  if now < r.seen then
    step(r, now, now - r.seen, math.huge, u)
  else
    local shift, asleep, known = forward_step(r, now)
    if shift > 0 and not known then
      return NEEDS_TIME
    elseif shift > 0 then
      step(r, now, shift, asleep, u)
    elseif stepped_back(r, now) then
      step(r, now, 0, math.huge, u)
    end
  end

  -- The row's note and its ceiling change the rule.
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

-- part: penalty
-- What an upstream's refusals do to a budget. A penalty closes it for a time: see docs/internals/bans.md. A ceiling lowers its limit: see
-- docs/use/bans.md#learn-from-refusals. The twin is internal/ledger/age.go.
--
-- A row, or a budget of slots, remembers of its last penalty
--
--   ban     for how long it closed the budget
--   probe   for how long the first start afterwards is alone
--   times   how often in a row it was met, the first refusal included; 0 if it was a pause
--
-- and a row of its ceiling
--
--   top     the level of use that was refused, 0 without a ceiling
--   fell    when the ceiling fell from there
--   learns  the window of the limit that was refused
--
-- The height of a ceiling at any moment follows from these, so it rises without being written.
--
-- needs: frame (max, min, ceil, floor), row (open), rule (window, has_windows)
-- defines: penalty.step, penalty.remembered, penalty.repeated, penalty.forgive, penalty.shut, is_free, ceiling.is_of, ceiling.forgotten,
--     ceiling.at, ceiling.forget, ceiling.obey, ceiling.learn

do
-- step returns the longest step of the slow start after a penalty.
function penalty.step(r)
  return min(floor(r.ban / 2), MAX_STEP)
end

-- remembered returns for how long after the end of a penalty a refusal may still mean that the penalty was met again.
function penalty.remembered(r)
  return max(penalty.step(r), r.probe)
end

-- repeated returns how often the penalty of r was met again, 0 once it is forgotten. left is for how many microseconds the penalty still lasts, below 0
-- after its end.
function penalty.repeated(r, left)
  return left + penalty.remembered(r) > 0 and max(0, r.times - 1) or 0
end

-- grown returns an upper bound on the length to which a penalty of this length, in microseconds, grows by being met again: the length times its whole
-- seconds, but at most MAX_GROWN. It is 0 for a length below a second, which does not grow.
local function grown(length)
  length = min(length, MAX_GROWN)
  return min(length * floor(length / 1000000), MAX_GROWN)
end

-- forgive takes the penalty off r, a row or a budget of slots. It does not open r.
function penalty.forgive(r)
  r.ban, r.probe, r.times = 0, 0, 0
end

-- shut notes in r, a row or a budget of slots, a penalty of that length. It returns for how long r is to be closed from now on: the caller closes r.
-- left is for how long r is still closed, below 0 after the end of the last penalty. refused is how long ago the refused request was sent, or 0 for a
-- pause, which has no such request. took is how long the answer took: less than refused, if the store was away since. All are microseconds.
--
-- A request that was sent after the end of the last penalty, or in its last half because clocks drift, and whose answer finds r open, has met that
-- penalty again. A request that was sent earlier belongs to the last penalty: its answer came late.
function penalty.shut(r, left, length, refused, took)
  -- The last penalty is so long ago that a new one is the first.
  if left + penalty.remembered(r) <= 0 then
    penalty.forgive(r)
  end

  local ban = length
  local times = refused > 0 and 1 or 0 -- a refusal counts as the first in a row, and a pause as none

  -- late is whether the request was sent before the last half of the last penalty.
  local late = refused > 0 and -refused < left - floor(r.ban / 2)

  -- A penalty that is met again lasts twice as long, within bounds.
  local met_again = refused > 0 and r.times > 0 and left <= 0 and not late
  if met_again then
    ban, times = max(length, min(2 * r.ban, grown(length))), r.times + 1
  end

  -- The first start afterwards is alone until its answer can be there: for twice the time of the last answer, within bounds.
  local probe = max(MIN_PROBE, min(2 * took, MAX_PROBE, ban))
  local closed = max(left, ban)

  -- A penalty during another, or from a late answer, is the same penalty: keep the longer ban, the longer probe and the higher count of the two.
  if late or left > 0 then
    ban, probe, times = max(r.ban, ban), max(r.probe, probe), max(r.times, times)
  end
  r.ban, r.probe, r.times = ban, probe, times
  return closed
end
end

-- is_free reports whether a rule is unlimited, its row has no note for it, and the row is open, also for its probe: then the row counts no start of the
-- rule.
local function is_free(u, r)
  return u.peak == 0 and r.paused + r.probe <= now and r.opens <= now and not (u.tells and r.told > 0)
end

do
-- rising returns how long a ceiling takes to come back to its top.
local function rising(r)
  return MIN_RISING + RISING_WINDOWS * r.learns
end

-- is_of reports whether a row has a ceiling for a rule, learned in the rule's window.
function ceiling.is_of(r, u)
  return r.top > 0 and u.learns > 0 and u.learns == r.learns
end

-- forgotten returns when the ceiling of a row is forgotten, even if it has not risen to the limit.
function ceiling.forgotten(r)
  return r.fell + CEILING_RISEN * rising(r)
end

-- at returns the height of the ceiling: a cubic that is flat around its top, as in the congestion control CUBIC.
function ceiling.at(r, now)
  local risen = max(-1, (now - r.fell - rising(r)) / rising(r)) -- from -1, when it fell, to 0 at the top, and above
  return r.top + r.top / CEILING_FALL * risen * risen * risen
end

-- forget takes the ceiling off a row.
function ceiling.forget(r)
  r.top, r.fell, r.learns = 0, 0, 0
end

-- obey lowers a rule to the row's ceiling, if the ceiling is for this rule. If such a ceiling has risen to the limit or is too old, obey forgets it
-- instead.
function ceiling.obey(r, now, u)
  if not ceiling.is_of(r, u) then
    return
  end
  local height = ceiling.at(r, now)
  if height >= u.rate or now >= ceiling.forgotten(r) then
    ceiling.forget(r)
    return
  end

  -- Lower the numbers of the rule to the ceiling's fraction of the limit. A leaky bucket flows at the distance of its units, so pad them. A rule
  -- without tokens keeps 0.
  local fraction = height / u.rate
  u.cap = max(1, floor(u.n * fraction))
  u.tokens = min(u.tokens, max(1, floor(u.tokens * fraction)))
  u.pad = floor(u.unit / fraction) - u.unit
end

-- used returns how much of the limit was in use when the start at mark came, the start included, and at least 1. For a rule without windows, such as a
-- token bucket, it returns the rate. It returns 0 if the refusal of that start is no evidence: because the start has not come, because it lies before
-- the present fixed window and the window before that, or before the known boundaries, or because more than the limit was in use.
local function used(r, mark, u)
  if mark > r.seen then
    return 0
  elseif not has_windows(u) then
    return u.rate
  end
  local since = window(u, mark)
  local previous = u.boundaries and window(u, window(u, r.seen) - 1) -- when the window before the present one began; nil if that is not known
  if not since or (previous and mark < previous) then
    return 0
  end

  open(r)
  local sum = 0
  for i = 1, r.size do
    local first, last, n = r.F[i], r.L[i], r.N[i]
    if last >= since and first <= mark then
      -- Of an entry that reaches beyond the mark, only the part up to the mark counts.
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

-- believed returns the top of the ceiling after a refusal at a level of use. height is the height of the ceiling before. A refusal below half of that
-- height may have a different reason, so it takes off only a quarter.
local function believed(level, height)
  return level < height / 2 and height * 3 / 4 or level
end

-- learn lowers the ceiling, if the refusal of the start at mark is evidence. It returns the height before and after, in whole thousandths; without a
-- ceiling the height is the rate of the rule. It returns 0 and 0 if the rule does not learn.
function ceiling.learn(r, mark, u, now)
  if u.learns == 0 then
    return 0, 0
  end

  local from = ceiling.is_of(r, u) and ceiling.at(r, now) or u.rate
  local to, level = from, used(r, mark, u)

  -- A start from before the last fall of the ceiling, or from before the end of the probe, says nothing new.
  local is_new = mark > r.fell and (r.paused == 0 or mark >= r.paused + r.probe)
  if level > 0 and is_new then
    r.top, r.fell, r.learns = max(1, min(from, believed(level, from))), now, u.learns
    to = min(from, ceiling.at(r, now))
  end
  return floor(from * 1000), floor(to * 1000)
end
end

-- part: told
-- What an upstream tells of its limit. A budget under the limit Told is unlimited until a note lies in its row; from then on the note is a sliding
-- window, until the note is over: see docs/use/bans.md#limits-that-answers-tell. The twin is internal/ledger/age.go. A row has of its note
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
-- is_note reports whether a limit of n starts in a window is within the bounds of a note.
local function is_note(n, window)
  return 1 <= n and n <= MAX_TOLD and MIN_TOLD_WINDOW <= window and window <= MAX_TOLD_WINDOW
end

-- is_tighter reports whether n starts in a window are a lower rate than that of the note, or the same rate in a shorter window.
local function is_tighter(r, n, window)
  local rate, told_rate = n / window, r.told / r.each
  return rate < told_rate or rate == told_rate and window < r.each
end

-- pace_of returns the pace of a sliding window: see Limit.Pace in store/limit.go.
local function pace_of(n, window)
  local within = EVEN_PACE -- the time over which n starts are spread
  if window <= MAX_EVEN_WINDOW then
    within = floor(window * 9 / 10)
  end
  return floor(within / n)
end

-- obey turns a rule that leaves its number to the upstream into the sliding window of the row's note. If the note is over, obey forgets it instead.
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

-- tell records a limit that an answer told, of n starts in a window, and reports whether the row's note has a new limit. It ignores a limit outside of
-- the bounds of a note. If the note has this limit already, tell only renews the time of the note. Where answers disagree, the tightest limit counts: a
-- limit that is no tighter than the note replaces it only once no answer has told the note for its window, and for PREFERRED, a minute.
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

  -- The starts before this note were not counted, so none of them may be given back: that would free the room of a counted start. Hardly any of
  -- their marks is farther ahead than MARKED.
  if not holds then
    r.frozen = max(r.frozen, now + MARKED)
  end

  -- The row has counted for a shorter time than the new window. An upper bound on the missing starts would close the budget, so count none of them.
  -- Starts up to r.lost may be missing, so they stay booked when they are cancelled, as before.
  if window > r.each or not holds then
    r.frozen = max(r.frozen, r.lost)
    r.lost = 0
  end

  -- Nothing needs the old window any more, so let it end: as long as the row kept it, new entries would be joined as coarsely as the longer of the two
  -- windows allows.
  if window ~= r.each then
    r.till = now
  end

  r.told, r.each, r.heard = n, window, now
  return true
end
end

-- part: pause
-- Closes one budget for a time, or opens it again. Of several ends the latest counts. All programs that listen are told.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds; 1 to open it instead; when the call should be here, or 0; how long ago the
--         request was sent that was refused, or 0; how long its answer took; the mark of its start, by which the row learns, or 0; the rule
--       3 the channel of such news
--
-- Result as of book.lua: DONE, now, the end of the pause, or 0, whether that is new, and the ceiling before and after, in thousandths; or
-- NEEDS_BOUNDARIES, now, now; or NEEDS_TIME, now, now if the call is too late for the length to be true.
-- News are the end, how long that is from now, and the key.
--
-- needs: age (is_late, advance), entries (drop), frame (max, frame, now), offers (queue.free), penalty (penalty.forgive, penalty.shut,
--     ceiling.forget, ceiling.learn), queue (queue, queue.write), row (penalty, ceiling, note, load, open, save), rule (read_rule), told
--     (note.forget)

local length, lift, due, refused, took, mark
length, lift, due, refused, took, mark, cursor = struct.unpack('<dddddd', frame, cursor)
local r = load(KEYS[1])
local u = read_rule(0)
local needs = is_late(now, due) and NEEDS_TIME or advance(r, now, u)
if needs then
  return struct.pack('<ddd', needs, now, now)
end

local old = r.paused -- the end of the pause before this call
local from, to = 0, 0 -- the ceiling before and after
if mark > 0 then
  from, to = ceiling.learn(r, mark, u, now)
end

-- Open the budget, or close it.
if lift == 1 then
  r.paused = 0
  penalty.forgive(r)
  ceiling.forget(r)
  note.forget(r)
  queue.free(r)

  -- The only start of an unlimited row is the probe, which is forgotten. Rows in which a program counts by a number keep their starts.
  if u.peak == 0 and r.most == 0 then
    open(r)
    drop(r, r.size)
  end

  -- The row stays until the old end, to know better than a program that did not hear that the pause was lifted: such a program would tell an
  -- empty Redis of the pause.
  r.till = max(r.till, old)
elseif length > 0 then
  r.paused = now + penalty.shut(r, old - now, length, refused, took)
end

if r.stored or r.paused > 0 or r.top > 0 then
  save(r, queue.write(r))
end

local changed = r.paused > old or lift == 1 and old > now
if changed then
  -- It does no harm if the server forbids publishing, or no program hears: callers that are not sure to get news ask before they start.
  redis.pcall('PUBLISH', ARGV[3], string.format('%.0f %.0f %s', r.paused, max(0, r.paused - now), KEYS[1]))
end
return struct.pack('<dddddd', DONE, now, r.paused, changed and 1 or 0, from, to)

-- part: slots_pause
-- Closes one budget of requests in flight for a time, or opens it again. Of several ends the latest counts. All programs that listen are told.
--
-- KEYS  1 the budget of slots
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds; 1 to open it instead; when the call should be here, or 0; how long ago the
--         request was sent that was refused, or 0; how long its answer took; and the rest, for budgets that are no slots
--       3 the channel of such news
--
-- Result and news as above.
--
-- needs: age (is_late), frame (max, frame, now), leases (load_slots, check_generation, save_slots), penalty (penalty.forgive, penalty.shut),
--     row (penalty)

local length, lift, due, refused, took = struct.unpack('<ddddd', frame)
if is_late(now, due) then
  return struct.pack('<ddd', NEEDS_TIME, now, now)
end

local slots = load_slots(KEYS[1], now)
check_generation(slots, 0, 0, now) -- the call has no random number, so the time is the name of a new generation
local old = slots.pause -- for how long the budget was still closed before this call
if lift == 1 then
  slots.ends = 0
  penalty.forgive(slots)
elseif length > 0 then
  slots.ends = penalty.shut(slots, slots.ends, length, refused, took)
end
slots.pause = max(0, slots.ends)
save_slots(slots)

local changed = slots.pause > old or lift == 1 and old > 0
local ends_at = slots.pause > 0 and now + slots.pause or 0
if changed then
  redis.pcall('PUBLISH', ARGV[3], string.format('%.0f %.0f %s', ends_at, slots.pause, KEYS[1]))
end
return struct.pack('<dddd', DONE, now, ends_at, changed and 1 or 0)

-- part: closed
-- Says until when budgets are closed. It changes nothing.
--
-- KEYS  the budgets
-- ARGV  1 the time in microseconds, or '' for the server's clock
--
-- Result as of book.lua: DONE, now, then for each budget the end of its pause, or 0, and how long that is from now.
--
-- needs: frame (now), leases (load_slots), row (load)

-- row_pause returns when a row was seen last, or now if there is no row; and the end of the row's pause, or 0.
local function row_pause(key)
  local r = load(key)
  return r.stored and r.seen or now, r.paused
end

-- slots_pause returns now; and the end of the pause of a budget of slots, or 0.
local function slots_pause(key)
  local slots = load_slots(key, now)
  return now, slots.pause > 0 and now + slots.pause or 0
end

local out = {struct.pack('<dd', DONE, now)}
for i, key in ipairs(KEYS) do
  local has_slots = key:sub(-7) == ':flight' -- no row's key ends like that
  local pause_of = has_slots and slots_pause or row_pause
  local seen, paused = pause_of(key)

  -- If the clock was set back, the pause in the row is still by the clock as it was.
  out[i + 1] = struct.pack('<dd', paused, math.max(0, paused - math.max(now, seen)))
end
return table.concat(out)
