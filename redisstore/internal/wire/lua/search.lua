-- A search s looks for the earliest start of one charge under a rule. It remembers how far it came, so that to ask again for a later start
-- costs only the rest of the way. First comes the slow start after a penalty, then a search for each kind of limit, then the distance
-- that waiting starts keep. Other files call earliest, which begins a search. The twin is internal/ledger/search.go.
--
--   rule, row, n, cap, span, pace  of the rule, most: how much of the limit the charge may use
--   reserve, spread, shadow        of the charge
--   cost, each    the cost of the start that is looked for, which may be of several equal callers; the cost of a single caller
--   index, more   the index of the charge among the caller's charges; 1 for a shadow or, for SETTLE, the new cost
--   share, weight of the caller's tenant, share 0 if it has none
--   from, tail    no start earlier than from was asked for; tail is a start of others behind which the caller keeps
--   late          whether the caller replaces a start that is past
--   follows       whether the next of equal callers keeps behind this caller's start, too
--   start, back   the start that was booked if the search may go on behind it, or false; where a resumed search began, or 0
--   alone         the first start that the row alone has room for, false before held_by has asked
--   horizon       of the caller, 0 if it has none
--   single        whether the caller needs no start in a second row
--   room, length  how much may be used besides the cost; how long beyond its start the booking lasts
--   i, j, sum     the run of entries i … j-1, and its costs: in a sliding window the run that touches an interval. In a fixed window and in a leaky
--                 bucket i is the first entry that may still be in the way.
--   k             the first entry to look at for the pace, false before the first look
--   wait          the earliest start by the limit alone, false before it was looked for
--   gap           how many microseconds a unit of cost keeps clear of other starts
--   part, fits    a start is at the begin of a part of that length, or anywhere if part is 0; how many starts like it fit there
--   at, spent     of a bucket: the level when the run begins. at is false before the search has begun.
--   ramp          a search of a row that has less room, because of a slow start, false before it was needed: see ramped
--
-- needs: bucket (bucket), entries (insert, block_end, after, later), frame (max, min, ceil, floor, now), penalty (penalty.step, is_free),
--     row (penalty, open, latest), rule (window)
-- defines: ramp_end, is_slow, ramped, weigh, usable, search_for, booked, paced, behind_probe, room, sliding_paced, search, earliest, resume

local ramp_end, is_slow, ramped
do
-- ramp_end returns when the slow start of a row is over under rule u, or the end of the penalty if no slow start follows it. A step of a window is as
-- long as the window, but not longer than penalty.step: see docs/internals/bans.md.
function ramp_end(u, r)
  local begin, step, width = r.paused, penalty.step(r), u.width
  if u.tokens > 0 then
    return begin + u.span -- a bucket has no steps, and fills up within a span
  elseif width == 0 or step == 0 then
    return begin -- there is no slow start
  elseif u.boundaries and step >= width then
    return begin - begin % width + SLOW_STEPS * width -- the first step is the fixed window in which the penalty ends
  end
  return begin + SLOW_STEPS * min(step, width)
end

-- is_slow reports whether a penalty of row r, its probe or the slow start after it lasts under rule u.
function is_slow(u, r)
  return max(ramp_end(u, r), r.paused + r.probe) > now
end

-- copied_from opens row r, and returns a new open row with copies of its entries from index i on. The total of the new row is not the sum of its
-- entries: it is so large that each search looks at the entries.
local function copied_from(r, i)
  open(r)
  return {F = {unpack(r.F, i, r.size)}, L = {unpack(r.L, i, r.size)}, N = {unpack(r.N, i, r.size)},
    size = r.size - i + 1, total = MAX_COUNT, lost = 0, level = 0, low = 1, kept = 0}
end

-- window_ramp returns a row with the entries of the search's row and, for each step of the slow start, an added entry that takes all of the limit of
-- rule u but the step's share. The added entry is at the begin of its step. It is not joined with the entries around it: joined, it would reach as far
-- as they do, and close the room up to the next step.
--
-- A search needs entries in order. So if entries of the row lie around the begin of the second step, the added entry follows them and reaches to their
-- end. At the begin of the first step the order makes no difference, because no start comes before that.
local function window_ramp(s, u)
  local ramp, begin = copied_from(s.row, 1), s.row.paused
  for k, divisor in ipairs(STEP_PARTS) do
    -- Find the place of the added entry.
    local i, last = after(ramp, begin), begin
    while k > 1 and i <= ramp.size and ramp.F[i] <= begin do
      i, last = i + 1, max(begin, ramp.L[i])
    end

    -- Round the step's share up, so that each step has room for one start at least. The next step begins where the window around begin ends.
    insert(ramp, i, begin, last, u.cap - ceil(u.cap / divisor))
    local _, stop = window(u, begin)
    begin = stop
  end
  return ramp
end

-- bucket_ramp returns a row whose first entry takes all tokens of a bucket but one at the end of the penalty, whatever was spent before. Behind it are
-- the entries of the search's row that end then or later. An entry that began before the end of the penalty is taken to begin there, with its whole
-- cost.
local function bucket_ramp(s)
  local begin = s.row.paused
  open(s.row) -- for after
  local ramp = copied_from(s.row, after(s.row, begin))
  for i = 1, ramp.size do
    ramp.F[i] = max(ramp.F[i], begin)
  end
  insert(ramp, 1, begin, begin, s.cap - 1)
  return ramp
end

-- ramped returns the arguments of search_for, which is defined below, for a search like s in a new row. The new row has the entries of r, the row of s,
-- and entries that take the part of the limit that the slow start of r keeps free. The rule of the new search is the rule of s or, if steps are shorter
-- than the window, a sliding window as long as a step, with the step's part of the limit.
function ramped(s, r)
  local step, width, reserve = penalty.step(r), s.rule.width, s.reserve
  local u = setmetatable({}, {__index = s.rule}) -- a copy, which may be changed

  if step > 0 and step < width then
    -- Each step in the window has its part of the limit and of the reserve, but a start costs as much as without a slow start.
    local parts = floor(width / step)
    u.kind, u.span, u.boundaries, u.cap = SLIDING_WINDOW, step, false, ceil(s.cap / parts)
    u.row = window_ramp(s, u)

    -- window_ramp has read the step's part of the ceiling as u.cap. The new search has no ceiling: its n, and so its cap, is the step's part of what
    -- the ceiling leaves of the limit.
    u.n = ceil((s.room + s.cost + reserve) / parts)
    u.cap, reserve = u.n, ceil(reserve / parts)
  else
    u.row = u.tokens > 0 and bucket_ramp(s) or window_ramp(s, u)
  end
  return u, s.cost, reserve, s.from, s.spread, false
end
end

-- weigh begins search s afresh, for that cost, and returns s. From then on, until it is weighed again, each call must ask the search for a time no
-- earlier than the call before.
local function weigh(s, cost)
  s.cost, s.room, s.length = cost, s.most - cost, s.spread + (cost - 1) * s.rule.unit
  if s.cap < s.n then
    s.room = max(s.room, min(0, s.n - s.reserve - cost)) -- a cost above the ceiling, but within the limit, fits an idle budget
  end

  s.i, s.j, s.sum, s.k, s.wait, s.at, s.ramp = 1, 1, 0, false, false, false, false
  s.gap, s.back, s.part, s.fits = 0, 0, 0, 1
  return s
end

-- usable returns how much of the limit of rule u a charge may use that must leave a reserve free. A ceiling lowers this number, but not below 1.
local function usable(u, reserve)
  return u.cap < u.n and min(u.n - reserve, max(1, u.cap - reserve)) or u.n - reserve
end

-- search_for returns a search of the row u.row for a charge under rule u, for starts at the time from or later. It gives the table all fields at once:
-- a table that grows is expensive.
local function search_for(u, cost, reserve, from, spread, shadow)
  return weigh({rule = u, row = u.row, n = u.n, cap = u.cap, span = u.span, pace = u.pace, most = usable(u, reserve),
    reserve = reserve, spread = spread, shadow = shadow, from = from, cost = 0, room = 0, length = 0, tail = 0, late = false, horizon = 0, index = 0,
    each = cost, more = 0, i = 1, j = 1, sum = 0, k = false, wait = false, at = false, ramp = false, gap = 0, back = 0, part = 0, fits = 1,
    start = false, alone = false, single = false, follows = false, share = 0, weight = 1}, cost)
end

local booked, paced -- look for room beside the entries of the row
do
-- sliding returns the first start not before t that a sliding window log has room for. It sweeps the forbidden ranges of
-- docs/internals/booking.md: entry i and the shortest run from it that leaves no room forbid every start from which an interval of length
-- span can touch the whole run.
local function sliding(s, t)
  local r, span, room = s.row, s.span, s.room

  -- All entries together leave room.
  if r.total <= room then
    return t
  end

  open(r)
  local F, L, N, size = r.F, r.L, r.N, r.size
  local i, j, sum = s.i, s.j, s.sum
  while i <= size do
    -- An entry that ended a span before t, or earlier, forbids nothing.
    if L[i] + span > t then
      -- From entry i on, find the shortest run that leaves no room.
      while j <= size and sum <= room do
        sum = sum + N[j]
        j = j + 1
      end

      -- far is the begin of the run's last entry. The run is empty only if the room is below 0, as in the ramp of short steps for a cost above a step's
      -- part of the limit.
      local far = F[max(j - 1, 1)]

      -- There is no such run, or the start and its spread are so far before the last entry of the run that no window touches both.
      if sum <= room or t + s.spread + span <= far then
        break
      end

      -- The run forbids starts only if one window can touch all of it. The first start behind them is a span after entry i.
      if far - L[i] < span then
        t = L[i] + span
      end
    end

    -- The next run begins behind entry i. If this run is empty, the next is empty, too, and begins there.
    if j > i then
      sum = sum - N[i]
    else
      j = j + 1
    end
    i = i + 1
  end
  s.i, s.j, s.sum = i, j, sum
  return t
end

-- aligned returns the first start not before t that a fixed or calendar window has room for. It goes from window to window. Where the boundaries end,
-- it returns nil, and a time that the boundaries must reach.
local function aligned(s, t)
  local r, delay, room = s.row, s.rule.jitter + s.spread, s.room -- delay is how much later than at t the start can arrive
  while true do
    local start, stop = window(s.rule, t)
    if not start then
      return nil, t
    end

    -- A start must be in its window even if it is late by delay. In a window that is no longer than delay it may be at the first moment alone.
    local go_on = stop -- the next time to look at
    if t + min(delay, stop - start - 1) < stop then
      if r.total <= room then
        return t
      end
      open(r)

      -- Later calls ask for later starts, so the entries before this window are not looked at again.
      while s.i <= r.size and r.L[s.i] < start do
        s.i = s.i + 1
      end
      local sum, j = 0, s.i
      while j <= r.size and r.F[j] < stop do
        sum = sum + r.N[j]
        j = j + 1
      end
      if sum <= room then
        return t
      end

      -- All entries of the sum end no earlier than the first of them. So they reach into each window up to the one in which the first entry ends, and
      -- these windows are as full as this: go on behind them.
      if r.L[s.i] >= stop then
        local _, later_stop = window(s.rule, r.L[s.i])
        if not later_stop then
          return nil, r.L[s.i]
        end
        go_on = later_stop
      end
    end
    t = go_on
  end
end

-- paced returns the first start not before t for which a leaky bucket has a gap that is long enough.
function paced(s, t)
  local r, unit, pad = s.row, s.rule.unit, s.rule.pad
  open(r)

  -- Each entry is a block. The start goes into the first gap that is long enough, or behind all blocks. needed is the length of the start's own block:
  -- s.length is the time until its last unit begins, which takes a unit of time, too, and a ceiling pads each unit.
  local needed = s.length + unit + s.cost * pad
  while s.i <= r.size do
    local stop = block_end(r, s.i, unit + pad, s.n)
    if stop > t then
      -- The gap before this entry is long enough.
      if t + needed <= r.F[s.i] then
        break
      end
      t = stop
    end
    s.i = s.i + 1
  end
  return t
end

-- By kind: SLIDING_WINDOW, FIXED_WINDOW, LEAKY_BUCKET, TOKEN_BUCKET.
booked = {sliding, aligned, paced, bucket}
end

-- behind_probe returns the end of the time for which the probe, the first start after a penalty of row r, is alone. It returns t if that time is over
-- by t, or if no start is booked in that time yet: then a start at t may be the probe.
local function behind_probe(r, t)
  local stop = r.paused + r.probe
  if t >= stop then
    return t
  end
  open(r)
  local i = after(r, r.paused)
  return i <= r.size and r.F[i] < stop and stop or t
end

-- room returns the first start not before t for which the limit has room: in the row and, after a penalty, behind the probe and in the ramp
-- of the slow start. Where the boundaries end, it returns nil, and a time that the boundaries must reach.
local function room(s, t)
  local look, need = booked[s.rule.kind], nil
  if s.row.paused == 0 then
    return look(s, t)
  end

  t, need = look(s, behind_probe(s.row, t))
  local stop = ramp_end(s.rule, s.row)

  -- Ask the ramp and the row by turns, until both have room at the same time or the slow start is over. Each answer is a lower bound for the other.
  -- Only calendar windows can lack boundaries, and they have no slow start.
  while t and t < stop do
    s.ramp = s.ramp or search_for(ramped(s, s.row))
    local start = booked[s.ramp.rule.kind](s.ramp, t)
    if start == t then
      break
    end
    t = look(s, min(start, stop))
  end
  return t, need
end

local sliding_paced
do
-- even returns the gap of a start that must wait until t, in microseconds for each unit of cost. It sets s.part to the length of the window's parts if
-- the start has to be at the begin of a part, and otherwise to 0. It sets s.fits to 1.
--
-- The gap is the charge's pace if there is no horizon, or if all starts of the limit take less than half of the window at that pace. Otherwise the gap
-- depends on how full the span is that ends at the last booked start, or at t if t is later. In a full span, starts are as even as the limit lets them
-- be. The emptier the span, the smaller is the gap, down to the pace, so that room that was left is used up.
--
-- Under a large limit starts share entries. In a short window they are at the begin of the window's parts, so that the entry that they share has no
-- width and the whole window is used. This holds for callers of a single budget without a spread, while no penalty and no slow start lasts.
local function even(s, t)
  local r, span, cap = s.row, s.span, s.cap
  s.part, s.fits = 0, 1
  if s.horizon <= 0 or 2 * s.pace * cap < span then
    return s.pace
  end

  open(r)

  -- The next start comes after the last booked start, so measure the span that ends there.
  local used = min(later(r, max(t, latest(r)) - span), cap)
  local is_long = span - s.rule.jitter - 1 > MAX_EVEN_WINDOW -- span is the limit's window, the jitter and a microsecond
  local has_parts = s.single and s.n > WINDOW_PARTS and not is_long and s.spread == 0 and not is_slow(s.rule, r)
  local part = has_parts and ceil(span / WINDOW_PARTS) or 0

  -- Up to (slope-2)/slope of cap, three fifths, the pace is enough. From there the gap grows linearly to full, where all of cap is used: at full the
  -- whole limit takes 24/25 of the span. A steep slope fills a window soon after room was left in it.
  local full, slope = floor(floor(span * 24 / 25) / cap), 5
  if part > 0 then
    full, slope = floor(span / cap), 2 -- in parts the gap grows from an empty span on, and at full the whole limit takes the whole span
  elseif is_long then
    slope = 3 -- the gap grows from a third of cap on, or callers whose costs were estimated too low would start in bunches
  end

  -- The spread comes off, because the distance to the next start is the spread and the gap of one unit: see clear.
  local gap = max(s.pace, floor(full * (slope * used - (slope - 2) * cap) / (2 * cap)) - s.spread)

  -- Several starts fit into a part only if the distance of a start is no longer than the part.
  s.part = gap * s.cost <= part and part or 0
  return gap
end

-- align returns the first moment not before t at which a part of the window begins, and notes in s.fits how many starts like this one fit there: as
-- many as there are multiples of apart, the distance between such starts, in the part.
local function align(s, t, apart)
  t = ceil(t / s.part) * s.part
  s.fits = floor((t + s.part) / apart) - floor(t / apart)
  return t
end

-- clear returns the first moment not before t at which the start keeps its distance from all starts to come. If starts are in parts, that moment is the
-- begin of a part, which several starts may share, and clear notes in s.fits how many starts like this one still fit there.
local function clear(s, t)
  local r, part, apart = s.row, s.part, s.cost * s.gap
  open(r)
  local F, L, N = r.F, r.L, r.N
  local ahead = max(s.spread + s.gap, apart) -- the distance from the start to the next entry
  local behind = part > 0 and 1 or apart -- the distance from an entry to the start: in parts, align goes on from there to the next part

  -- Starts that have come need no distance any more.
  local k = s.k or after(r, r.seen + 1)
  if part > 0 then
    t = align(s, t, apart)
  end

  while k <= r.size do
    -- An entry at the begin of a part keeps other starts away until the part ends. But a start may share the entry while it has fewer starts than fit.
    local at_begin = part > 0 and F[k] == L[k] and F[k] % part == 0
    local stop = at_begin and F[k] + part or L[k] + behind
    local may_share = at_begin and F[k] == t and N[k] + s.cost <= s.fits * s.cost
    if stop > t and not may_share then
      -- The gap before this entry is long enough.
      if t + ahead <= F[k] then
        break
      end
      t = part > 0 and align(s, stop, apart) or stop
    end
    k = k + 1
  end

  s.k = k

  -- The starts of a shared entry have taken some of the places.
  if part > 0 and F[k - 1] == t then
    s.fits = s.fits - ceil(N[k - 1] / s.cost)
  end
  return t
end

-- sliding_paced returns the first start not before t for which the limit has room and, if the charge has a pace, which keeps the gap that even returns.
-- A pace counts only if the limit, a penalty or the starts for which others waited put the start off, to a time later than s.from.
function sliding_paced(s, t)
  if not s.wait then
    -- Only a start that is put off keeps a pace, so look first for a start by the limit alone.
    local last_gap, last_part = s.gap, s.part -- in a resumed search, the gap and the part of the last caller
    s.wait = room(s, max(s.from, s.row.paused, s.row.opens, s.tail, s.back))
    s.gap = s.pace > 0 and s.wait > s.from and even(s, s.wait) or 0

    -- A resumed search began at the last start, s.back. Begin afresh if an earlier start is possible: with a smaller gap an earlier moment may be
    -- clear; where starts are in parts, a larger gap may have a part in which more starts fit; and if s.wait is behind all entries, the gap depends on
    -- s.wait. A tail at s.back or later allows no earlier start.
    local gap_changed = s.gap < last_gap or last_part > 0 and s.gap > last_gap
    if s.back > s.tail and (gap_changed or s.wait > latest(s.row)) then
      return sliding_paced(weigh(s, s.cost), t)
    end
  end

  -- Without a pace, or a wait, the limit alone decides.
  t = t > s.wait and room(s, t) or s.wait
  if s.pace == 0 or s.wait == s.from then
    return t
  end

  -- Each answer is a lower bound: go on until the limit has room at a moment that is clear.
  while true do
    local free = clear(s, t)
    if free == t then
      return t
    end
    t = room(s, free)
  end
end
end

-- By kind: SLIDING_WINDOW, FIXED_WINDOW, LEAKY_BUCKET, TOKEN_BUCKET, none for slots, UNLIMITED.
local search = {sliding_paced, room, paced, room, false, function(s, t)
  return s.row.paused > 0 and behind_probe(s.row, t) or t
end}

-- earliest returns the first start not before t that has room for the cost, and is not before the end of a pause, the row's opens or the tail. Where
-- the boundaries end, it returns nil, and a time that the boundaries must reach.
local function earliest(s, t)
  if is_free(s.rule, s.row) then
    return t
  end
  return search[s.rule.kind](s, max(t, s.row.paused, s.row.opens, s.tail))
end

-- resume prepares a search whose start was booked to look for the start of the next of equal callers. If the entries that the search has counted
-- have not changed, it goes on where it stands: the next start is rarely earlier than the last, and if it may be, sliding_paced begins afresh.
-- Otherwise resume begins the search afresh.
local function resume(s)
  local r, t = s.row, s.start
  s.start, s.alone = false, false

  -- Begin afresh if a different row set the start, for a shadow, under a limit that is no sliding window (only sliding_paced sets s.wait), during a
  -- penalty or its slow start, if an entry has changed before the place where the search stands, or if the row is closed, so that no entry was counted.
  if not t or s.shadow or not s.wait or is_slow(s.rule, r)
    or r.low < s.j or not r.F then
    return weigh(s, s.each)
  end

  -- If the booked start was added to an entry that the search has counted, count the start, too.
  local behind_grown = min(r.low, r.size + 1) -- the index behind that entry
  if r.grown > 0 and behind_grown <= s.j then
    s.sum = s.sum + r.grown
  end
  s.k, s.wait, s.back = false, false, t
end

-- part: bucket
-- Token buckets. A row knows the starts of the last span as entries, and all starts before them as a level: at and spent, how full of spent
-- tokens the bucket was at a moment. The level is counted in units that make all arithmetic whole: a token is u.micros units, and in each
-- microsecond u.tokens units flow back. The twin is internal/ledger/search.go.
--
-- needs: frame (max, min, ceil, floor), row (open)
-- defines: filling, add_up, due, spent, recount, forget, filled, bucket

-- filling returns an upper bound on the tokens that the n starts of an entry can have taken. It is never more than the whole bucket, even for an entry
-- that was joined of several.
local function filling(u, n)
  return min(n, u.n)
end

-- add_up takes a level, at and spent, on to the end of an entry of n starts. It returns the level there as two numbers: the end, and what is spent by
-- then, the entry included. Entries come in the order of time.
local function add_up(at, spent, last, n, u)
  return last, max(0, spent - (last - at) * u.tokens) + filling(u, n) * u.micros
end

-- due returns when the spent tokens of a level, at and spent, and excess more tokens have flowed back in, or 0 if they are there already. excess may be
-- below 0: then that many tokens may be missing. Tokens that flow in during the jitter do not count: the starts of the level may arrive later by the
-- jitter, and the next start at once.
local function due(at, spent, excess, u)
  local missing = spent + excess * u.micros
  if missing <= 0 then
    return 0
  end
  return at + u.jitter + ceil(missing / u.tokens)
end

-- spent returns the sum of the costs that may still matter in a row: the costs of its entries and, if the row has a bucket's level, its tokens.
local function spent(r)
  return r.total + (r.unit ~= 0 and ceil(r.level / math.abs(r.unit)) or 0)
end

-- recount converts the row's level to the units of the rule. A level of other units, or one to which other limits added, becomes a full bucket of this
-- limit at most: more tokens than a bucket holds cannot be spent. A level in the rule's own units stays as it is.
local function recount(r, u)
  if r.unit == u.micros then
    return
  end

  -- Convert the whole tokens apart from the rest: the product for all of them at once could be too large for a Lua number.
  if r.unit ~= 0 then
    local old_unit = math.abs(r.unit) -- units of a token
    local tokens = floor(r.level / old_unit)
    r.level = tokens >= u.n and u.n * u.micros
      or tokens * u.micros + ceil((r.level - tokens * old_unit) * u.micros / old_unit)
  end
  r.unit = u.micros
end

-- forget notes in r.lost that an entry of n starts, which ends at last, is about to leave the row. If the limit is or was a token bucket, the row's
-- level keeps the entry's cost: the bucket owes these tokens until it has had the time to fill up.
local function forget(r, last, n, u)
  if u.tokens > 0 then
    local _
    _, r.level = add_up(r.lost, r.level, last, n, u)
  elseif r.unit ~= 0 then
    -- The limit was a bucket and may be one again: until then nothing flows in. A unit below 0 says that other limits added to the level, which stops
    -- at MAX_LEVEL.
    local unit = math.abs(r.unit)
    r.unit, r.level = -unit, min(MAX_LEVEL, r.level + min(n, floor(MAX_LEVEL / unit)) * unit)
  end
  r.lost = max(r.lost, last)
end

-- filled returns the first moment not before t at which the bucket has room for the start of search s and for all entries that begin by then. Of
-- these entries, i … j-1 are counted in sum, as if no token flowed in while they lasted. The entries before i are counted in the level, with what has
-- flowed in meanwhile.
local function filled(s, t)
  local r, u = s.row, s.rule
  local F, L, N, size = r.F, r.L, r.N, r.size
  while true do
    -- Entries that begin by t take their tokens before the start does.
    while s.j <= size and F[s.j] <= t do
      s.sum = s.sum + filling(u, N[s.j])
      s.j = s.j + 1
    end

    -- As long as sum alone leaves no room for the start, move its earliest entry to the level: there the tokens count that flowed in before the end of
    -- that entry.
    while s.sum > s.room and s.i < s.j do
      s.at, s.spent = add_up(s.at, s.spent, L[s.i], N[s.i], u)
      s.sum = s.sum - filling(u, N[s.i])
      s.i = s.i + 1
    end

    local start = due(s.at, s.spent, s.sum - s.room, u)
    if start <= t then
      return t
    end
    t = start -- by then, further entries may have begun
  end
end

local bucket
do
-- overdrawn returns the begin of the first entry behind t whose tokens would not be there at its begin if a start at t took its own, or nil if there is
-- no such entry. No start before that begin has room: it would take the same tokens. Call overdrawn after filled has returned t.
local function overdrawn(s, t)
  local r, u = s.row, s.rule
  local F, L, N = r.F, r.L, r.N
  local i, sum, at, spent = s.i, s.sum, s.at, s.spent -- copies of the bucket as the entries before t leave it
  local sum_behind = 0 -- the cost of the entries behind t
  for k = s.j, r.size do
    local n = filling(u, N[k])
    sum, sum_behind = sum + n, sum_behind + n

    -- As in filled: move the earliest entries from sum to the level.
    while sum > s.room and i < s.j do
      at, spent = add_up(at, spent, L[i], N[i], u)
      sum = sum - filling(u, N[i])
      i = i + 1
    end

    -- The entry is overdrawn if its tokens are there too late in one of two buckets: the bucket as it is, or a second one, which is full until the
    -- start takes its tokens, as late as its spread allows.
    if due(at, spent, sum - s.room, u) > F[k] or due(t + s.spread, 0, sum_behind - s.room, u) > F[k] then
      return F[k]
    end
  end
  return nil
end

-- bucket returns the first start not before t for which a token bucket has room. With this start no run of entries breaks the rule, whether the start
-- is the last of the run, lies within it, or is the first.
function bucket(s, t)
  local r = s.row

  -- All entries together leave room, and no forgotten start owes a token.
  if r.level == 0 and r.total <= s.room then
    return t
  end

  -- Until filled moves an entry to it, the level has only the starts that the row has forgotten.
  open(r)
  if not s.at then
    s.at, s.spent = r.lost, r.level
  end

  -- At a moment with enough tokens the start may leave too few for an entry behind it: then look from the begin of that entry on.
  while true do
    t = filled(s, t)
    local stop = overdrawn(s, t)
    if not stop then
      return t
    end
    t = stop
  end
end
end

-- part: turn
-- When waiters will have their turn, as far as anybody can tell: if nothing changes. A rank is the sum of the costs up to a waiter in its line, its
-- own cost included. most is how much of the limit of rule u the waiters may use. The twin is internal/ledger/search.go. The end of this file says
-- when callers who left with their places come again.
--
-- needs: bucket (add_up, filled), entries (block_end, later), frame (max, min, floor, now), row (open), rule (window), search (usable)
-- defines: turn, turn.at, turn.units

local turn = {}
do
-- sliding_turn returns the turn of a rank in sliding windows, not before from. Room comes back as entries leave the window, and each window after that
-- is taken to be like the window before.
local function sliding_turn(u, most, from, rank)
  local r, span = u.row, u.span
  local N, cycles = r.N, floor((rank - 1) / most) -- cycles is how many whole windows pass before the window of the turn
  local used, i = later(r, from - span)

  -- The turn comes when entries that cost missing have left the window: then the rest of the rank fits.
  local missing = used + (rank - cycles * most) - most
  local first = i
  while missing > 0 and i <= r.size do
    missing, i = missing - N[i], i + 1
  end
  return (i > first and r.L[i - 1] + span or from) + cycles * span
end

-- paced_turn returns two numbers: the turn by the pace alone, counted from the last start for which a caller waited, and that pace, the distance for
-- each unit of cost. The pace is smaller where the window has room. ahead is the sum of the costs before the waiter.
local function paced_turn(u, from, ahead)
  local r = u.row
  local pace = u.pace * min(1, later(r, from - u.span) / u.cap)
  return max(from, r.t1, r.t2, r.t3) + floor(ahead * pace), pace
end

-- left_in returns left less the costs of all entries that reach into the window [start, stop). The result may be below 0.
local function left_in(r, left, start, stop)
  for i = 1, r.size do
    if r.L[i] >= start and r.F[i] < stop then
      left = left - r.N[i]
    end
  end
  return left
end

-- aligned_turn returns the turn of a rank in fixed or calendar windows, not before from: the waiters fill one window after the other. Windows behind
-- the last known boundaries, or after FAR_WINDOWS windows, are taken to be empty, and as long as the last window before them. If no boundaries reach
-- from, the turn is from.
local function aligned_turn(u, most, from, rank)
  local t, length = from, 0 -- at first from, then the end of the last window that was looked at; the length of this window
  for _ = 1, FAR_WINDOWS do
    local start, stop = window(u, t)
    if not start then
      break
    end
    local left = left_in(u.row, most, start, stop)
    if rank <= left then
      return t
    end

    -- Waiters before this one take what is left of the window, which may be less than nothing. rank is the rest.
    rank, t, length = rank - max(0, left), stop, stop - start
  end

  return t + floor((rank - 1) / most) * length
end

-- bucket_turn returns the turn of a rank in a token bucket, not before from: when the tokens for the whole rank have flowed in.
local function bucket_turn(u, most, from, rank)
  return filled({rule = u, row = u.row, i = 1, j = 1, sum = 0, at = u.row.lost, spent = u.row.level, room = most - rank}, from)
end

-- at returns an estimate of when a waiter with that cost and rank, which must leave a reserve free, will start under rule u: a time of the server,
-- neither before from nor before a pause ends. It opens the row.
function turn.at(u, reserve, from, cost, rank)
  local r, most = u.row, usable(u, reserve)
  open(r)
  from = max(from, r.paused, r.opens)

  if u.unit > 0 then
    if r.size > 0 then
      from = max(from, block_end(r, r.size, u.unit + u.pad, u.n)) -- behind the last block
    end
    return from + (rank - cost) * (u.unit + u.pad) -- each unit of the costs before the waiter takes its distance
  elseif u.tokens > 0 then
    return bucket_turn(u, most, from, rank)
  elseif u.boundaries then
    return aligned_turn(u, most, from, rank)
  elseif u.peak == 0 then
    return from
  end

  -- In a sliding window the latest of three lower bounds counts. The waiter starts neither before the window has room for its rank, nor before the
  -- pace has let all costs before it start. The second result of paced_turn, that pace, is not needed here.
  local by_room = sliding_turn(u, most, from, rank)
  local by_pace = paced_turn(u, from, rank - cost)

  -- Third, the first start in the window of the turn may have to wait for room, and the waiters behind it keep the pace from there on. first_rank is
  -- the rank of that start, but not below the waiter's own cost, which its rank includes.
  local first_rank = max(floor((rank - 1) / most) * most + 1, cost)
  local by_both = sliding_turn(u, most, from, first_rank) + (rank - first_rank) * u.pace
  return max(by_room, by_pace, by_both)
end

-- gap_units returns how many units of a leaky bucket can begin in [from, t]: the whole units in the gaps before blocks, and the units behind the last
-- block, the last of which may begin at t.
local function gap_units(u, from, t)
  local r, sum, unit = u.row, 0, u.unit + u.pad
  for i = 1, r.size do
    sum = sum + max(0, floor((min(r.F[i], t) - from) / unit))
    from = max(from, block_end(r, i, unit, u.n))
  end
  return sum + max(0, floor((t - from) / unit) + 1)
end

-- bucket_units returns how many tokens may be taken at t from a bucket of most tokens, beside all entries of the row, and at least 0.
local function bucket_units(u, most, t)
  local r = u.row
  local at, spent = r.lost, r.level
  for i = 1, r.size do
    at, spent = add_up(at, spent, r.L[i], r.N[i], u)
  end

  -- Tokens that flow in during the jitter do not count.
  spent = max(0, spent - max(0, t - u.jitter - at) * u.tokens)
  return max(0, floor((most * u.micros - spent) / u.micros))
end

-- aligned_units returns the sum of the costs that can start in the fixed or calendar windows from the window around from to the window around t, if
-- starts may use most of each. Windows behind the last known boundaries, or after FAR_WINDOWS windows, are not counted.
local function aligned_units(u, most, from, t)
  local sum = 0
  for _ = 1, FAR_WINDOWS do
    local start, stop = window(u, from)
    if not start or from > t then
      break
    end
    sum, from = sum + max(0, left_in(u.row, most, start, stop)), stop
  end
  return sum
end

-- units returns an estimate of the sum of the costs that can start from now up to t, a time that is near, if they leave a reserve of the limit of rule
-- u free: MAX_COUNT under an unlimited budget. It knows of no slow start, and so counts room that no caller may take yet. It opens the row.
function turn.units(u, reserve, t)
  local r, most = u.row, usable(u, reserve)
  open(r)
  local from = max(now, r.paused, r.opens)

  if from > t then
    return 0
  elseif u.peak == 0 then
    return MAX_COUNT
  elseif u.unit > 0 then
    return gap_units(u, from, t)
  elseif u.tokens > 0 then
    return bucket_units(u, most, t)
  elseif u.boundaries then
    return aligned_units(u, most, from, t)
  end

  -- The room until t is most in one window, and most in each of cycles further windows, less the starts that are counted: the starts in the last span
  -- before t and, with further windows, all starts to come.
  local cycles = floor((t - from) / u.span)
  local since = t - u.span
  if cycles > 0 then
    since = min(since, now)
  end
  local counted = later(r, since)
  local room = max(0, most * (1 + cycles) - counted)

  -- From first on, waiters start at the pace.
  local first, pace = paced_turn(u, from, 0)
  if pace > 0 then
    room = max(0, min(room, floor((t - first) / pace) + 1))
  end
  return room
end
end

-- part: appoint
-- Says when a caller that leaves with its place should come again. Callers come again one by one, as the limit lets them start: see
-- docs/internals/places.md, and Appointments in internal/ledger/search.go. The script reads and changes no budget.
--
-- KEYS  1 the appointments of a budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: how long the caller would wait, how long the limit takes for its cost, and 1 if it came back and leaves once
--         more
--
-- Result as of book.lua: DONE, now, in how long it should come.
--
-- Stored form: two numbers of 8 bytes, until when callers that left for the first time have appointments, and until when callers that came back
-- have. Both are times of the server.
--
-- needs: frame (max, min, ceil, IDLE, frame, now)

local wait, length, again = struct.unpack('<ddd', frame)
local raw, tails = redis.call('GET', KEYS[1]), {0, 0}
if raw and #raw == 16 then
  tails = {struct.unpack('<dd', raw)}
end

-- The appointment follows the last appointment of callers of the same kind, which may seem too far ahead if the clock was set back since.
local i = again == 1 and 2 or 1
local at = max(now + wait, min(tails[i], now + FARTHEST))
tails[i] = at + length

redis.call('SET', KEYS[1], struct.pack('<dd', tails[1], tails[2]), 'PX',
  string.format('%.0f', ceil((min(max(tails[1], tails[2]) - now, FARTHEST) + IDLE) / 1000)))
return struct.pack('<ddd', DONE, now, at - now)
