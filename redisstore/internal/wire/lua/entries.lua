-- The entries of a row: the window of starts that still matter, in few bytes. First comes how entries are added, joined, bounded and dropped,
-- then how a start is booked in them and taken out again. The twin is internal/ledger/entries.go; functions that only this file has are
-- about columns, and about rows that are not open.
--
-- needs: frame (max, min, floor), row (MAX_PLAIN, open), rule (window, part)
-- defines: touch, insert, delete, block_end, join, after, later, push, one, add, drop, pop, widen, fuse, book, remove, counts

-- touch notes that entry i of an open row, and perhaps all behind it, have changed, so that save writes them again.
local function touch(r, i)
  r.low = min(r.low, i)
  if i <= r.kept then
    r.kept, r.raw = 0, ''
  end
end

-- insert puts an entry at index i.
local function insert(r, i, first, last, n)
  touch(r, i)
  table.insert(r.F, i, first)
  table.insert(r.L, i, last)
  table.insert(r.N, i, n)
  r.size = r.size + 1
end

-- delete takes entry i out.
local function delete(r, i)
  touch(r, min(i, r.size - 1)) -- the last one is not in the text
  table.remove(r.F, i)
  table.remove(r.L, i)
  table.remove(r.N, i)
  r.size = r.size - 1
end

-- block_end returns when the units of a leaky bucket's entry are over: at the earliest when as many of them as one start can have, most,
-- had their time, even if they were booked closer together. The row is open.
local function block_end(r, i, unit, most)
  return max(r.L[i] + unit, r.F[i] + min(r.N[i], most) * unit)
end

-- join makes one entry of i and i+1.
local function join(r, i)
  r.L[i] = r.L[i + 1]
  r.N[i] = r.N[i] + r.N[i + 1]
  touch(r, i)
  delete(r, i + 1)
end

-- after returns the index of the first entry that does not lie wholly before t. The row is open.
local function after(r, t)
  local L, i = r.L, r.size + 1
  while i > 1 and L[i - 1] >= t do
    i = i - 1
  end
  return i
end

-- later returns the costs of all entries that end after t, and the index of the first of these. The row is open.
local function later(r, t)
  local L, N, sum, i = r.L, r.N, r.total, 1
  while i <= r.size and L[i] <= t do
    sum, i = sum - N[i], i + 1
  end
  return sum, i
end

-- push counts n starts in [first, last], where first is not before the begin of the last entry. The starts share the last entry if that
-- begins at shares or later.
local function push(r, first, last, n, shares)
  local k = r.size
  r.total = r.total + n

  if not r.F and r.first >= shares then
    r.last, r.n = max(r.last, last), r.n + n
  elseif not r.F then
    r.pushed = r.pushed .. cmsgpack.pack(r.first - r.before, r.last - r.first, r.n)
    r.before, r.first, r.last, r.n, r.size = r.last, first, max(r.last, last), n, k + 1
  elseif k > 0 and r.F[k] >= shares then
    r.L[k], r.N[k], r.grown = max(r.L[k], last), r.N[k] + n, r.grown + (k < r.low and n or 0)
  else
    insert(r, k + 1, first, max(r.L[k] or last, last), n)
  end

  if r.size == 1 then
    r.old = r.last
  end
end

-- one returns the index of the entry that has the start at t, nil if there is no such entry. If the start may be in several entries they
-- are joined. The row is open.
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

-- add counts n starts in [first, last], and joins the entries that these overlap.
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
-- packed returns an upper bound on the bytes that a number takes.
local function packed(x)
  if x < 0 then
    x = max(128, -2 * x)
  end
  if x < 256 then
    return x < 128 and 1 or 2
  elseif x < 65536 then
    return 3
  end
  return x < 4294967296 and 5 or 9
end

-- is_small reports whether an open row has at most MAX_ENTRIES entries, in at most that many bytes.
local function is_small(r, most)
  local size = r.size
  if size * TRIPLE <= most or size > MAX_ENTRIES then
    return size <= MAX_ENTRIES
  end
  local F, L, N = r.F, r.L, r.N
  if size * (2 * packed(2 * (L[size] - F[1])) + packed(r.total)) <= most then
    return true -- even if each of its numbers were the largest
  end

  local bytes, prev = 0, F[1]
  for i = 1, size do
    bytes, prev = bytes + packed(F[i] - prev) + packed(L[i] - F[i]) + packed(N[i]), L[i]
  end
  return bytes <= most
end

-- bound joins the closest neighbours until the entries are small enough beside the line. It begins with entries that are more than a span
-- before the last one, because the next booking is decided by the entries behind these. A start that has come is never joined with a start
-- to come, which may yet be cancelled.
function bound(r)
  open(r)
  local most = ENTRY_BYTES - r.named - min(r.lined, MAX_PLAIN)
  if is_small(r, most) then
    return
  end

  local F, L = r.F, r.L
  local tail = L[r.size] - r.span

  -- Any pair before the tail is better than a pair in it. Otherwise the narrowest pair is best: joined, it closes the least room.
  repeat
    local best, width, in_tail
    for i = 1, r.size - 1 do
      local w, late = L[i + 1] - F[i], L[i + 1] > tail
      local alike = L[i] > r.seen or L[i + 1] <= r.seen
      if alike and (not best or (in_tail and not late) or (in_tail == late and w < width)) then
        best, width, in_tail = i, w, late
      end
    end
    join(r, best)
  until is_small(r, most)
end
end

-- drop takes the first k entries out of an open row.
local function drop(r, k)
  touch(r, k > 0 and 1 or r.size + 1)
  local F, L, N, size = r.F, r.L, r.N, r.size
  for i = 1, k do
    r.total = r.total - N[i]
  end

  for i = 1, size do
    F[i], L[i], N[i] = F[i + k], L[i + k], N[i + k]
  end
  r.size = size - k
end

local pop
do
-- first_two returns of the first entry of a row that is not open how many bytes it takes, and its n; and the gap and the width of the second
-- entry, 0 and 0 if there is none.
local function first_two(raw, more)
  local stop, _, _, n = cmsgpack.unpack_limit(raw, 3, 0)
  if not more then
    return stop < 0 and #raw or stop, n, 0, 0
  end
  local _, gap, width = cmsgpack.unpack_limit(raw, 2, stop)
  return stop, n, gap, width
end

-- pop takes the first entry out of a row that is not open, and has more than one. Text that is no entry is left to open.
function pop(r)
  local begin = HEAD_SIZE + r.named + r.lined + r.at
  local raw = redis.call('GETRANGE', r.key, begin, begin + 2 * TRIPLE - 1)
  local known, stop, n, gap, width = pcall(first_two, raw, r.size > 2)
  if not (known and type(n) == 'number' and type(gap) == 'number' and type(width) == 'number') then
    return open(r)
  end

  r.at, r.total, r.size = r.at + stop, r.total - n, r.size - 1
  r.old = r.size == 1 and r.last or r.old + gap + width
end
end

-- widen returns [first, last], the interval of a new start in an open row, widened to touch a neighbour in the same part of the window,
-- [start, stop): then both become one entry. A start that begins within an entry shares that entry as it is.
local function widen(r, first, last, start, stop)
  local i = after(r, first)
  if i <= r.size and r.F[i] <= first then
    return first, last
  end
  if i > 1 and r.F[i - 1] >= start then
    first = r.L[i - 1]
  end
  if i <= r.size and r.L[i] < stop and r.F[i] > last then
    last = r.F[i]
  end
  return first, last
end

-- fuse returns [first, last], the units of a start of a leaky bucket, widened to touch the blocks of the open row to which there is no gap:
-- they become one entry.
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
-- book_probe counts a start of an unlimited budget, if the start goes first after a penalty. No row counts any other start of an unlimited
-- budget.
local function book_probe(r, t, last)
  if r.paused > 0 and t < r.paused + r.probe and last >= r.paused then
    add(r, t, last, 1)
  end
end

-- book counts the cost of search s at t.
function book(r, t, s)
  local u, first, last = s.rule, t, t + s.length
  if u.peak == 0 then
    return book_probe(r, t, last)
  elseif u.unit > 0 then
    open(r)
    first, last = fuse(r, first, last, u.unit)
  elseif u.boundaries then
    local _, _, keep = window(u, t)
    r.span = max(r.span, keep) -- months and days differ in length
  end

  -- Under a large limit the starts of one part of the window share an entry.
  local shares, stop, newest = t, t, r.first
  if s.n > WINDOW_PARTS then
    shares, stop = part(u, t)
  end
  if r.F then
    newest = r.F[r.size]
  end

  if u.unit > 0 then
    add(r, first, last, s.cost)
  elseif not newest or newest <= t then
    push(r, first, last, s.cost, shares)
  else
    open(r)
    first, last = widen(r, first, last, shares, stop)
    add(r, first, last, s.cost)
  end
  r.till = max(r.till, last + r.span)
end
end

local remove
do
-- overfull reports whether a block has more units than time for them, so that taking a unit out frees nothing.
local function overfull(first, last, n, unit)
  return first + n * unit > last + unit
end

-- split puts back the rest of a block, [first, last], from which the booking of search s at t was taken out: up to two halves, each with at
-- most as many units as it has time for. How many exactly only matters to a limit of a different kind.
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

-- remove takes the booking of search s at t out again, and reports whether it could. A booking that may have been forgotten stays: an entry
-- that overlaps it may hold only starts of other callers.
function remove(r, t, s)
  if t <= r.frozen or t + s.length <= r.lost then
    return false
  end
  open(r)
  local i = one(r, t)
  if not i then
    return false
  end

  local first, last, all, unit = r.F[i], r.L[i], r.N[i], s.rule.unit
  local rest = max(0, all - s.cost)

  -- The entry keeps its width if starts remain that can be anywhere in it.
  if rest > 0 and (unit == 0 or overfull(first, last, all, unit)) then
    r.N[i] = rest
    touch(r, i)
    r.total = r.total - s.cost
    return true
  end

  delete(r, i)
  r.total = r.total - all

  -- A block of a leaky bucket has the time of each unit, so the start leaves a gap in it.
  if unit > 0 then
    split(r, first, last, rest, t, s)
  end
  return true
end
end

-- counts reports whether a booking of search s at t still counts.
local function counts(s, t, now)
  if not s.rule.boundaries then
    t = t + s.length
  end
  return t >= window(s.rule, now)
end
