-- The entries of a row: the window of starts that still matter, in few bytes. First comes how entries are added, joined, bounded and dropped,
-- then how a start is booked in them and taken out again. The twin is internal/ledger/entries.go; functions that only this file has are
-- about columns, and about rows that are not open.
--
-- needs: frame (max, min, floor), row (MAX_PLAIN, open), rule (window, part)
-- defines: touch, insert, delete, block_end, join, after, later, push, one, add, drop, pop, widen, fuse, book, remove, counts

-- touch notes, for resume and save, that entry i of an open row has changed, and perhaps all entries behind it.
local function touch(r, i)
  r.low = min(r.low, i)

  -- The text r.raw has the entry as it was, so save must pack all entries anew.
  if i <= r.kept then
    r.kept, r.raw = 0, ''
  end
end

-- insert puts an entry at index i of an open row. The caller adds n to r.total.
local function insert(r, i, first, last, n)
  touch(r, i)
  table.insert(r.F, i, first)
  table.insert(r.L, i, last)
  table.insert(r.N, i, n)
  r.size = r.size + 1
end

-- delete takes entry i out of an open row. The caller takes the starts of the entry off r.total.
local function delete(r, i)
  touch(r, min(i, r.size - 1)) -- a new last entry has changed, too: it moves from the text to the head
  table.remove(r.F, i)
  table.remove(r.L, i)
  table.remove(r.N, i)
  r.size = r.size - 1
end

-- block_end returns when the units of entry i of a leaky bucket are over. If the entry has more units than it has time for, the units count one after
-- the other from its begin on, but at most max_units of them, the limit: these take at least a window, after which no start at that begin matters. The
-- row is open.
local function block_end(r, i, unit, max_units)
  return max(r.L[i] + unit, r.F[i] + min(r.N[i], max_units) * unit)
end

-- join makes one entry of the entries i and i+1 of an open row.
local function join(r, i)
  r.L[i] = r.L[i + 1]
  r.N[i] = r.N[i] + r.N[i + 1]
  touch(r, i)
  delete(r, i + 1)
end

-- after returns the index of the first entry that ends at t or later, r.size + 1 if there is none. The row is open.
local function after(r, t)
  local L, i = r.L, r.size + 1
  while i > 1 and L[i - 1] >= t do
    i = i - 1
  end
  return i
end

-- later returns the sum of the costs of all entries that end after t, and the index of the first of these entries. The row is open.
local function later(r, t)
  local L, N = r.L, r.N
  local sum, i = r.total, 1
  while i <= r.size and L[i] <= t do
    sum, i = sum - N[i], i + 1
  end
  return sum, i
end

-- push counts n starts in [first, last], where first is not before the begin of the last entry. The starts share the last entry if this entry begins
-- at shares_from or later. Otherwise they become a new last entry, which ends no earlier than the entry before. A closed row stays closed.
local function push(r, first, last, n, shares_from)
  local k = r.size
  r.total = r.total + n

  if not r.F and r.first >= shares_from then
    r.last, r.n = max(r.last, last), r.n + n
  elseif not r.F then
    -- The last entry goes from the head to the text that save appends, and the new one takes its place.
    r.pushed = r.pushed .. cmsgpack.pack(r.first - r.before, r.last - r.first, r.n)
    r.before, r.first, r.last, r.n, r.size = r.last, first, max(r.last, last), n, k + 1
  elseif k > 0 and r.F[k] >= shares_from then
    -- grown counts these starts unless the entry is new, or has changed in a different way, since the last caller was served: see resume.
    r.L[k], r.N[k], r.grown = max(r.L[k], last), r.N[k] + n, r.grown + (k < r.low and n or 0)
  else
    insert(r, k + 1, first, max(r.L[k] or last, last), n)
  end

  if r.size == 1 then
    r.old = r.last -- the only entry is also the first. In an open row both fields mean nothing: close sets them.
  end
end

-- one returns the index of the entry that has the start at t, nil if there is none. If t lies in several entries, it joins them first. The row is
-- open.
local function one(r, t)
  local i = after(r, t)
  if i > r.size or r.F[i] > t then
    return nil
  end
  while i < r.size and r.F[i + 1] <= t do
    join(r, i)
  end
  return i
end

-- add counts n starts in [first, last], and joins them with all entries that touch this interval. It opens a closed row, unless the starts are behind
-- all entries.
local function add(r, first, last, n)
  if not r.F then
    if first > r.last then
      return push(r, first, last, n, first)
    end
    open(r)
  end

  local i = after(r, first)
  r.total = r.total + n
  if i > r.size or r.F[i] > last then
    insert(r, i, first, last, n)
    return
  end

  while i < r.size and r.F[i + 1] <= last do
    join(r, i)
  end
  r.F[i], r.L[i], r.N[i] = min(r.F[i], first), max(r.L[i], last), r.N[i] + n
  touch(r, i)
end

do
-- packed returns an upper bound on how many bytes a number takes in MessagePack.
local function packed(number)
  -- A negative number takes no more bytes than a positive one of twice its size. Only numbers down to -32 take a single byte, so count two at least.
  if number < 0 then
    number = max(128, -2 * number)
  end
  if number < 256 then
    return number < 128 and 1 or 2
  elseif number < 65536 then
    return 3
  end
  return number < 4294967296 and 5 or 9
end

-- is_small reports whether an open row has at most MAX_ENTRIES entries, which take at most max_bytes bytes as they are stored. It adds up the bytes
-- only if two upper bounds are too high.
local function is_small(r, max_bytes)
  local size = r.size

  -- Either the entries fit even with TRIPLE bytes each, the most that an entry takes, or there are too many.
  if size * TRIPLE <= max_bytes or size > MAX_ENTRIES then
    return size <= MAX_ENTRIES
  end

  -- The entries fit even if each number is as large as it can be: a distance and a width as long as the time from the first entry to the last, n the
  -- total. Take twice that time, because packed doubles a distance below 0.
  local F, L, N = r.F, r.L, r.N
  if size * (2 * packed(2 * (L[size] - F[1])) + packed(r.total)) <= max_bytes then
    return true
  end

  local bytes, before = 0, F[1] -- before is the end of the previous entry
  for i = 1, size do
    bytes, before = bytes + packed(F[i] - before) + packed(L[i] - F[i]) + packed(N[i]), L[i]
  end
  return bytes <= max_bytes
end

-- bound opens a row, and joins neighbours until the entries are small enough beside the names and the line. It begins with entries that end a span or
-- more before the last entry ends, because the entries behind these decide the next booking. It never joins an entry that is over with an entry that is
-- not, whose starts may yet be cancelled.
function bound(r)
  open(r)
  local max_bytes = ENTRY_BYTES - r.named - min(r.lined, MAX_PLAIN) -- a line with shares has bytes of its own: see MAX_SHARED
  if is_small(r, max_bytes) then
    return
  end

  local F, L = r.F, r.L
  local tail = L[r.size] - r.span -- where the last span begins

  -- A pair that ends before the tail is better than a pair that reaches into it. Otherwise the narrower pair is better: joined, it closes less room. At
  -- most one pair of neighbours is not alike, so there is a pair to join.
  repeat
    local best, best_width, best_in_tail
    for i = 1, r.size - 1 do
      local width, in_tail = L[i + 1] - F[i], L[i + 1] > tail
      local alike = L[i] > r.seen or L[i + 1] <= r.seen -- neither of the two is over, or both are
      local is_better = not best or (best_in_tail and not in_tail) or (best_in_tail == in_tail and width < best_width)
      if alike and is_better then
        best, best_width, best_in_tail = i, width, in_tail
      end
    end
    join(r, best)
  until is_small(r, max_bytes)
end
end

-- drop takes the first k entries out of an open row.
local function drop(r, k)
  if k == 0 then
    return
  end

  touch(r, 1)
  local F, L, N, size = r.F, r.L, r.N, r.size
  for i = 1, k do
    r.total = r.total - N[i]
  end

  -- The other entries move to the begin, and the places behind them become nil.
  for i = 1, size do
    F[i], L[i], N[i] = F[i + k], L[i + k], N[i + k]
  end
  r.size = size - k
end

local pop
do
-- first_two returns four numbers: how many bytes the first entry in the text raw takes, and its n; the distance of the second entry from the end of
-- the first, and the width of the second. The last two are 0 if has_second is false: then the text has one entry.
local function first_two(raw, has_second)
  local next_at, _, _, n = cmsgpack.unpack_limit(raw, 3, 0)
  if not has_second then
    return next_at < 0 and #raw or next_at, n, 0, 0 -- a negative next_at says that the text is over
  end
  local _, gap, width = cmsgpack.unpack_limit(raw, 2, next_at)
  return next_at, n, gap, width
end

-- pop takes the first entry out of a closed row that has more than one entry, without opening the row. If the stored text is not that of entries, pop
-- opens the row instead, and takes nothing out.
function pop(r)
  local begin = HEAD_SIZE + r.named + r.lined + r.at
  local raw = redis.call('GETRANGE', r.key, begin, begin + 2 * TRIPLE - 1) -- enough for two entries

  -- The last entry is in the head, so the text has a second entry only if the row has three.
  local sound, next_at, n, gap, width = pcall(first_two, raw, r.size > 2)
  if not (sound and type(n) == 'number' and type(gap) == 'number' and type(width) == 'number') then
    return open(r)
  end

  -- The stored text stays as it is: at says where its first entry begins.
  r.at, r.total, r.size = r.at + next_at, r.total - n, r.size - 1
  r.old = r.size == 1 and r.last or r.old + gap + width
end
end

-- widen returns the interval [first, last] of a new start, extended to the entries before and behind it that lie in the same part of the window,
-- [part_start, part_stop): add then joins all of them. A start that begins within an entry needs no extension: add counts it in that entry. The row
-- is open.
local function widen(r, first, last, part_start, part_stop)
  local i = after(r, first)
  if i <= r.size and r.F[i] <= first then
    return first, last
  end

  -- Entry i-1 ends before first, and entry i begins after first. If entry i begins by last, add joins it anyway.
  if i > 1 and r.F[i - 1] >= part_start then
    first = r.L[i - 1]
  end
  if i <= r.size and r.L[i] < part_stop and r.F[i] > last then
    last = r.F[i]
  end
  return first, last
end

-- fuse returns [first, last], which is a start of a leaky bucket from the begin of its first unit to the begin of its last unit. If a block ends right
-- before the start, or begins right behind it, the interval is widened to touch this block, so that add makes one entry of both. The row is open.
local function fuse(r, first, last, unit)
  local i = after(r, first)
  if i > 1 and r.L[i - 1] == first - unit then
    first = first - unit
  end
  local k = after(r, last + 1)
  if k <= r.size and r.F[k] == last + unit then
    last = last + unit
  end
  return first, last
end

local book
do
-- book_probe counts a start in [t, last] of an unlimited budget, as 1 whatever it costs, if it can be in the time of the probe after a penalty. No
-- other start of an unlimited budget is counted.
local function book_probe(r, t, last)
  if r.paused > 0 and t < r.paused + r.probe and last >= r.paused then
    add(r, t, last, 1)
  end
end

-- book counts the cost of search s as a start at t, in an entry of its own or in an entry that the start shares with others. The row keeps its span at
-- least until this start no longer matters. An unlimited budget counts only the probe.
function book(r, t, s)
  local u, first, last = s.rule, t, t + s.length
  if u.peak == 0 then
    return book_probe(r, t, last)
  elseif u.unit > 0 then
    open(r)
    first, last = fuse(r, first, last, u.unit)
  elseif u.boundaries then
    -- Months and days differ in length, so the span is the longest of the windows with starts.
    local _, _, keep = window(u, t)
    r.span = max(r.span, keep)
  end

  -- Under a large limit the starts of one part of the window share an entry.
  local part_start, part_stop = t, t
  if s.n > WINDOW_PARTS then
    part_start, part_stop = part(u, t)
  end

  local last_begin = r.first -- the begin of the last entry, nil if there is none
  if r.F then
    last_begin = r.F[r.size]
  end

  -- fuse has widened a leaky bucket's start already. Of other starts most begin no earlier than the last entry.
  if u.unit > 0 then
    add(r, first, last, s.cost)
  elseif not last_begin or last_begin <= t then
    push(r, first, last, s.cost, part_start)
  else
    open(r)
    first, last = widen(r, first, last, part_start, part_stop)
    add(r, first, last, s.cost)
  end
  r.till = max(r.till, last + r.span)
end
end

local remove
do
-- overfull reports whether the n units of a block, [first, last], are more than it has time for: then a unit that is taken out frees no time. The last
-- unit begins at last, so the block's time ends a unit later.
local function overfull(first, last, n, unit)
  return first + n * unit > last + unit
end

-- split puts back the rest of a block, [first, last], from which the booking of search s at t was taken out: a piece before the booking and a piece
-- behind it, if the block reaches so far. rest is how many units are left. How many of them lie in which piece is not known, so each piece gets as many
-- as it has time for, at least 1 and at most rest. Together these may be more than rest, which is safe.
local function split(r, first, last, rest, t, s)
  local unit = s.rule.unit
  local stop = t + s.length + unit
  if first < t then
    add(r, first, max(first, t - unit), max(1, min(rest, floor((t - first) / unit))))
  end
  if last >= stop then
    add(r, stop, last, max(1, min(rest, floor((last - stop) / unit) + 1)))
  end
end

-- remove takes the booking of search s at t out of its entry, and reports whether it did. It takes nothing out if the booking is frozen, if no entry
-- has it, or if the row may have forgotten it: then an entry that overlaps the booking may have only starts of other callers.
function remove(r, t, s)
  if t <= r.frozen or t + s.length <= r.lost then
    return false
  end
  open(r)
  local i = one(r, t)
  if not i then
    return false
  end

  local first, last, n, unit = r.F[i], r.L[i], r.N[i], s.rule.unit
  local rest = max(0, n - s.cost) -- an operator may have lowered n: see set_used in reconcile.lua

  -- The entry keeps its width if starts remain that can be anywhere in it.
  if rest > 0 and (unit == 0 or overfull(first, last, n, unit)) then
    r.N[i] = rest
    touch(r, i)
    r.total = r.total - s.cost
    return true
  end

  delete(r, i)
  r.total = r.total - n

  -- In a block of a leaky bucket each unit has a time of its own, so the start leaves a gap.
  if unit > 0 then
    split(r, first, last, rest, t, s)
  end
  return true
end
end

-- counts reports whether a booking of search s at t still counts at now. In a fixed or calendar window the start decides. Otherwise the end of the
-- booking does: s.length is the time until its last unit or its spread is over.
local function counts(s, t, now)
  if not s.rule.boundaries then
    t = t + s.length
  end
  return t >= window(s.rule, now)
end

-- part: rule
-- A rule u says in numbers what a charge's limit is. This part knows what each kind of limit means, and search.lua how to look for a start under it;
-- all other parts read the rule, and know no kinds. Its twin is internal/ledger/entries.go.
--
--   kind, n, span       the kind of the limit; the largest cost that ever fits; and the time after which a start matters to no other start
--   jitter, pace        of the charge: see store/store.go
--   learns, rate        the window by which an adaptive charge learns, 0 if it does not learn, and how much the limit allows in that window
--   tells, adapts       whether the upstream tells the number, and whether such a rule may have a ceiling: see age.lua
--   cap                 n, or less where a ceiling allows less; most in Go
--   row                 the row of the budget, false before the script has set it
--
-- Fields that only some kinds have:
--
--   boundaries          one number means windows of that length, from the epoch. Several are the boundaries of successive calendar windows.
--                       With false the windows have no edges, and one ends at every moment.
--   width               the length of the windows, or 0 if there are none, or they differ in length
--   unit, pad           for how long each unit of a cost is alone, 0 if units may start together; and for how much longer under a ceiling
--   tokens, micros      the number of tokens that flow into a token bucket in micros. For other kinds tokens is 0.
--   peak                upper bound on the starts in any half-open interval of the length for which entries are kept, or 0 if no start counts
--
-- needs: frame (ceil, floor, frame)
-- defines: read_rule, window, has_windows, part

-- read_rule reads a rule from the frame, and moves the cursor behind it. One or several budgets share the rule: before is how many of these come before
-- the present budget. It returns the rule, how many budgets share it, and the index of the present budget's key.
local function read_rule(before)
  -- key is the index of the first budget's key, many is how many budgets share the rule, and edges is how many boundaries follow.
  local key, many, kind, n, span, jitter, pace, tokens, micros, learns, edges
  key, many, kind, n, span, jitter, pace, tokens, micros, learns, edges, cursor = struct.unpack('<ddddddddddd', frame, cursor)

  local boundaries = edges > 0 and {}
  for i = 1, edges do
    boundaries[i], cursor = struct.unpack('<d', frame, cursor)
  end

  -- The rest follows from the kind.
  local width, unit = 0, 0
  local peak, rate = n, n
  local tells, adapts = false, false
  if kind == SLIDING_WINDOW then
    width = span
  elseif kind == FIXED_WINDOW then
    width, peak = edges == 1 and boundaries[1] or 0, 2 * n -- a span can reach over an edge, into two windows
  elseif kind == LEAKY_BUCKET then
    unit, peak = span, 1 -- units are a span apart
  elseif kind == TOKEN_BUCKET then
    peak, rate = 2 * n, learns * tokens / micros -- a full bucket, and as much as flows in
  elseif kind == UNLIMITED then
    peak = 0
  elseif kind == TOLD then
    kind, tells, peak = UNLIMITED, true, 0 -- until the row has a note
    adapts, learns = learns > 0, 0 -- a ceiling of such a rule is learned in the window of the note: see note.obey
  end

  return {kind = kind, n = n, span = span, jitter = jitter, pace = pace, learns = learns, rate = rate, cap = n, row = false, tells = tells, adapts = adapts,
    boundaries = boundaries, width = width, unit = unit, pad = 0, tokens = tokens, micros = micros, peak = peak},
    many, key + before
end

-- window returns start and stop of the half-open interval [start, stop) in which other starts matter to a start at t, or this start to them; and for
-- how long a start can matter to others. It returns nil if the boundaries do not reach t.
local function window(u, t)
  local e = u.boundaries
  if not e then
    return t - u.span + 1, t + u.span, u.span -- starts that are a span apart do not matter to each other
  end

  -- A single number is no boundary: it is the length of windows that follow each other from 1970 on.
  if #e == 1 then
    local length = e[1]
    local start = floor(t / length) * length
    return start, start + length, length
  end

  local i, k = 1, #e
  if t < e[1] or t >= e[k] then
    return nil
  end

  -- Halve the range until the boundaries around t are left: always e[i] <= t < e[k].
  while k - i > 1 do
    local middle = floor((i + k) / 2)
    if e[middle] <= t then
      i = middle
    else
      k = middle
    end
  end
  return e[i], e[k], e[k] - e[i]
end

-- has_windows reports whether starts are counted in windows: not in a bucket, and not under an unlimited budget.
local function has_windows(u)
  return u.boundaries or u.width > 0
end

-- part returns the part of a window around t, in which starts may share an entry, as the half-open interval [start, stop).
local function part(u, t)
  -- Parts are counted from the begin of a fixed window, and otherwise from the time 0.
  local base, _, keep = window(u, t)
  if not u.boundaries then
    base = 0
  end

  local width = ceil(keep / WINDOW_PARTS)
  local start = t - (t - base) % width
  return start, start + width
end

-- part: short
-- The short way of a simple call: it books starts now, in sliding windows alone, and all of them have room behind all that was booked before. Most
-- calls for busy budgets are simple. The parts behind this one would do the same in several times as many steps; all other calls are left to them.
-- This part writes nothing before the whole call is known to be simple.
--
-- Lua makes each function of a script anew in each call. So this part comes before the others, and has few functions. A table with names would
-- cost as much as all the rest, so the head of a row is a list of numbers, v: ROW_SEEN and so on are their indexes, and row.lua says what each
-- means.
--
-- needs: book (seed, rule_count, budgets, recorded, out, finish), frame (max, min, ceil, IDLE, frame, cursor, now)
-- defines: texts, earlier

local texts = {} -- the stored heads of the rows, by the index of the row's key
local earlier = {} -- the stored names and counts of the rows' generations before the last two, by the same index
do
-- read_head reads the head of the row of key number i, and the program's history of the row, which begins at the byte at of the frame. It returns the
-- head as a list of numbers, zeros for a new row, and where the next history begins. In place of the list it returns nil if the long way must look at
-- the row: because the row has a line or lacks starts that the program knows, the clock was set, or the text of the names is cut off. It notes the
-- stored head in texts[i], and the names of generations in earlier[i].
local function read_head(key, at, i)
  -- read_history in repair.lua says what these numbers are. told_in is the number call there, and told_at the time at.
  local told_in, ago, clock, told_at, generation, count, g1, n1, _, _, more, list = struct.unpack('<ddddddddddd', frame, at)
  local head = redis.call('GETRANGE', key, '0', HEAD_END)

  -- Only the long way reads the rest of the history: skip its two lists of pairs, and the number behind them.
  local size, samples = struct.unpack('<d', frame, list + PAIR * more)
  at, earlier[i] = samples + PAIR * size + 8, ''

  -- A row without a head is new. If the program knows a generation of it all the same, starts were lost.
  if #head ~= HEAD_SIZE then
    return generation == 0 and {struct.unpack(HEAD, string.rep('\0', HEAD_SIZE))} or nil, at
  end
  texts[i] = head

  -- The long way serves lines. Number k of the head begins at byte 8 * k - 7.
  if struct.unpack('<d', head, 8 * ROW_LINED - 7) ~= 0 then
    return nil, at
  end

  -- up_to_date is whether the clock was not set, as far as it shows here, and the row has all starts that the program knows. A step back that only
  -- stepped_back finds concerns starts to come, and is_plain leaves rows with such starts to the long way.
  local v = {struct.unpack(HEAD, head)}
  local clock_is_kept = now >= v[ROW_SEEN] and (clock == ELAPSED_UNKNOWN or now - told_at - ago <= STALL + ago / STEADY)
  local up_to_date = told_in <= recorded and clock_is_kept
    and (generation == 0 or generation == v[ROW_GENERATION] and count <= v[ROW_COUNT] and g1 == v[ROW_G1] and n1 <= v[ROW_N1])

  local named = v[ROW_NAMED]
  if named > 0 and named <= MAX_NAMED then
    earlier[i] = redis.call('GETRANGE', key, HEAD_SIZE, HEAD_SIZE + named - 1)
  end
  return up_to_date and #earlier[i] == named and v or nil, at
end

-- note_ends returns when the note of a row with the head v is over: see age.lua.
local function note_ends(v)
  return v[ROW_HEARD] + v[ROW_EACH] + NOTE_KEPT
end

-- is_plain reports whether a booking now under a sliding window only appends a start to a row with the head v. See age.lua, search.lua and book.lua.
local function is_plain(v, span)
  -- The row keeps entries for just this span, or is new; it has all starts of the last span; and no bucket counts.
  local is_complete = (v[ROW_SPAN] == span or v[ROW_SEEN] == 0) and v[ROW_LOST] <= now - span and v[ROW_UNIT] == 0

  -- No entry begins after now, and no start for which others waited does.
  local is_past = v[ROW_FIRST] <= now and max(v[ROW_T1], v[ROW_T2], v[ROW_T3]) <= now

  -- No loss is being reported, no ceiling counts, and the last penalty, its probe and its slow start are over. Each of the two steps of a slow start
  -- takes at most a span, and at most half of the ban.
  local is_open = v[ROW_OPENS] <= now and v[ROW_TOP] == 0
    and (v[ROW_PAUSED] == 0 or v[ROW_PAUSED] + max(min(SLOW_STEPS * span, v[ROW_BAN]), v[ROW_PROBE]) <= now)
  return is_complete and is_past and is_open
end

-- drop_over drops the entries of a row that are over. It changes the head v alone: the stored text keeps them. The first entry is over, and at least
-- one is not. drop_over raises an error if the stored text is not that of entries.
local function drop_over(key, v, span)
  local raw = redis.call('GETRANGE', key, HEAD_SIZE + v[ROW_NAMED] + v[ROW_AT], -1)
  local at, first_end = 0, v[ROW_OLD] -- where in the text the first entry begins, and when the first entry ends
  repeat
    -- Go behind the first entry that is left. unpack_limit returns a negative place at the end of the text.
    local next_at, _, _, n = cmsgpack.unpack_limit(raw, 3, at)
    at = next_at
    if next_at < 0 then
      at = #raw
    end

    -- Take the entry out of the head's numbers.
    v[ROW_LOST] = max(v[ROW_LOST], first_end)
    v[ROW_TOTAL], v[ROW_SIZE] = v[ROW_TOTAL] - n, v[ROW_SIZE] - 1

    -- The last entry is in the head. The others are stored as distances, so the end of an entry follows from the end of the entry before it.
    if v[ROW_SIZE] > 1 then
      local _, gap, width = cmsgpack.unpack_limit(raw, 2, at)
      first_end = first_end + gap + width
    else
      first_end = v[ROW_LAST]
    end
  until first_end + span > now
  v[ROW_AT], v[ROW_OLD] = v[ROW_AT] + at, first_end
end

-- prepare_entry drops entries that are over, and prepares the head v so that its last entry can take the starts of now, under a limit of n: see push,
-- above. It returns two texts for write: the new text of all other entries, nil if the stored text stays, and a text to be appended to the stored text,
-- nil if there is none. If the row must be read as a whole, it returns false, and v is of no use.
local function prepare_entry(key, v, n, span)
  -- No start counts any more: the row has one entry, of now.
  if v[ROW_LAST] + span <= now then
    v[ROW_LOST] = max(v[ROW_LOST], v[ROW_LAST])
    v[ROW_TOTAL], v[ROW_SIZE], v[ROW_N] = 0, 1, 0
    v[ROW_AT], v[ROW_BEFORE] = 0, now
    v[ROW_FIRST], v[ROW_LAST] = now, now
    return ''
  elseif v[ROW_OLD] + span <= now and not pcall(drop_over, key, v, span) then
    return false -- the stored text is not that of entries
  end

  -- Starts at one moment share an entry and, under a large limit, all starts of one part of the window.
  if v[ROW_FIRST] == now or n > WINDOW_PARTS and v[ROW_FIRST] >= now - now % ceil(span / WINDOW_PARTS) then
    return nil
  end

  -- The last entry moves from the head to the text, and the head gets a new one.
  local pushed = cmsgpack.pack(v[ROW_FIRST] - v[ROW_BEFORE], v[ROW_LAST] - v[ROW_FIRST], v[ROW_N])
  v[ROW_SIZE], v[ROW_BEFORE] = v[ROW_SIZE] + 1, v[ROW_LAST]
  v[ROW_FIRST], v[ROW_LAST], v[ROW_N] = now, max(now, v[ROW_LAST]), 0

  -- Dropped entries stay in the text until it is long. Then the text is written anew without them. An entry has at most TRIPLE bytes.
  local entries_at = HEAD_SIZE + v[ROW_NAMED] + v[ROW_AT]
  if entries_at + TRIPLE * v[ROW_SIZE] <= MAX_APPENDED then
    return nil, pushed
  elseif v[ROW_SIZE] > MAX_ENTRIES then
    return false -- some entries must be joined
  end

  -- Most entries have fewer bytes, so the text may still be short. Ask Redis for its length.
  local bytes = redis.call('STRLEN', key) + #pushed
  if bytes <= MAX_APPENDED then
    return nil, pushed
  elseif bytes - v[ROW_AT] > MAX_APPENDED then
    return false -- too long even without the dropped entries
  end

  local rest = redis.call('GETRANGE', key, entries_at, -1)
  v[ROW_AT] = 0
  return rest .. pushed
end

-- write stores a row with the head v. It completes v first: the time, the span, the end of an only entry, the generation of a new row, and the key's
-- lifetime. names is the text of the row's earlier generations; body and pushed are the texts that prepare_entry returned.
local function write(key, v, names, body, pushed, span)
  v[ROW_SEEN], v[ROW_SPAN] = now, span
  v[ROW_OLD] = v[ROW_SIZE] == 1 and v[ROW_LAST] or v[ROW_OLD]
  v[ROW_GENERATION] = v[ROW_GENERATION] == 0 and seed or v[ROW_GENERATION]

  -- Most starts leave the key's lifetime as it is, because it is longer than the row needs. SET, which writes a new body, needs a lifetime each time.
  -- Programs remember the starts under a note for NODE_KEEPS.
  local ms -- the new lifetime in milliseconds, nil if it stays
  local stop = v[ROW_TOLD] > 0 and max(v[ROW_TILL], note_ends(v) + NODE_KEEPS) or v[ROW_TILL]
  if body or stop > v[ROW_EXPIRES] then
    v[ROW_EXPIRES] = stop + IDLE
    ms = string.format('%.0f', ceil((v[ROW_EXPIRES] - now) / 1000))
  end

  if body then
    redis.call('SET', key, struct.pack(HEAD, unpack(v)) .. names .. body, 'PX', ms)
    return
  end

  redis.call('SETRANGE', key, '0', struct.pack(HEAD_CHANGED, unpack(v, 1, ROW_EXPIRES))) -- the rest of the head is as it was
  if pushed then
    redis.call('APPEND', key, pushed)
  end
  if ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- simple becomes false as soon as the call turns out not to be simple: here, if it has slots or pauses, or a gate's key exists.
local simple = not ARGV[4]
for i = simple and budgets + 1 or #KEYS + 1, #KEYS do
  simple = simple and redis.call('GETRANGE', KEYS[i], '0', '0') == ''
end

-- Read all heads. No budget may have a line, or need a repair. All lists are by the index of the budget's key, and begin with places for a few: a
-- table that grows is expensive.
local heads, limits, spans = {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}
local bodies, pushed = {}, {}
local at = cursor
for i = 2, simple and budgets or 0 do
  heads[i], at = read_head(KEYS[i], at, i)
  if not heads[i] then
    simple = false
    break
  end
end

-- Read all rules: one plain sliding window for each budget. Prepare the last entries for the starts of now.
local ruled = 1 -- the index of the last key that has a rule
for _ = 1, simple and rule_count or 0 do
  local key, many, kind, n, span, jitter, _, _, _, _, boundaries
  key, many, kind, n, span, jitter, _, _, _, _, boundaries, at = struct.unpack('<ddddddddddd', frame, at)

  -- Rules come in the order of their keys.
  simple = key == ruled + 1 and (kind == SLIDING_WINDOW or kind == TOLD) and boundaries == 0
  ruled = ruled + many
  for i = key, simple and ruled or 0 do
    local v = heads[i]

    -- The limit that the upstream told lies in the row: see age.lua.
    if kind == TOLD then
      simple = simple and v[ROW_TOLD] > 0 and now < note_ends(v)
      n, span = v[ROW_TOLD], v[ROW_EACH] + jitter + 1
    end
    simple = simple and is_plain(v, span)
    if simple then
      -- The bound of an older limit counts until no entry needs it: see remember.
      local blank = v[ROW_SIZE] == 0 and v[ROW_LOST] == 0
      v[ROW_MOST] = (blank or now >= v[ROW_TILL]) and n or max(v[ROW_MOST], n)
      limits[i], spans[i] = n, span
      bodies[i], pushed[i] = prepare_entry(KEYS[i], v, n, span)
      simple = bodies[i] ~= false
    end
  end
  if not simple then
    break
  end
end
simple = simple and ruled == budgets

-- Read all operations: bookings of new callers, for which there is room. They are counted in the heads.
while simple and at <= #frame do
  local kind, informed, booked, arrival, not_before, spread, _, _, _, tickets, count, many
  kind, informed, booked, arrival, not_before, spread, _, _, _, tickets, count, many, at =
    struct.unpack('<dddddddddddd', frame, at)
  simple = kind == RESERVE and informed + booked + arrival + not_before + tickets == 0

  for _ = 1, simple and many or 0 do
    local callers
    callers, _, at = struct.unpack('<dd', frame, at)
    for _ = 1, count do
      local i, cost, reserve, shadow
      i, cost, reserve, shadow, _, _, at = struct.unpack('<dddddd', frame, at)
      i, cost = i + 1, callers * cost -- each budget has one rule, and the first key is the record
      local v = heads[i]
      simple = simple and i > 1 and shadow == 0 and v[ROW_TOTAL] + cost <= limits[i] - reserve
      if not simple then
        break
      end

      v[ROW_TOTAL], v[ROW_N], v[ROW_COUNT] = v[ROW_TOTAL] + cost, v[ROW_N] + cost, v[ROW_COUNT] + cost
      v[ROW_LAST], v[ROW_TILL] = max(v[ROW_LAST], now + spread), max(v[ROW_TILL], now + spread + spans[i])
    end
  end
end

-- The whole call is simple: write the rows, and answer.
if simple then
  out[2] = struct.pack('<dd', ALL_NOW, now)
  for i = 2, budgets do
    local v = heads[i]
    write(KEYS[i], v, earlier[i], bodies[i], pushed[i], spans[i])
    out[#out + 1] = struct.pack('<ddddd', v[ROW_GENERATION], v[ROW_COUNT], v[ROW_TOTAL], v[ROW_LAST], v[ROW_G1] == 0 and 0 or 1)
    if v[ROW_G1] ~= 0 then
      out[#out + 1] = struct.pack('<ddddd', v[ROW_G1], v[ROW_N1], v[ROW_OLDER], v[ROW_MARK], v[ROW_NAMED] / PAIR) .. earlier[i]
    end
  end
  return finish()
end
end
