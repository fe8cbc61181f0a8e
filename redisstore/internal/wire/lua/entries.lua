-- The entries of a row: adding, joining and dropping them.
--
-- needs: frame (max, min), row (MAX_PLAIN, open)
-- defines: touch, insert, delete, join, after, later, push, one, add, drop, pop

-- touch notes that an entry is another one, and perhaps those behind it. The row is open.
local function touch(r, i)
  r.low = min(r.low, i)
  if i <= r.kept then
    r.kept, r.raw = 0, ''
  end
end

local function insert(r, i, first, last, n)
  touch(r, i)
  table.insert(r.F, i, first)
  table.insert(r.L, i, last)
  table.insert(r.N, i, n)
  r.size = r.size + 1
end

local function delete(r, i)
  touch(r, min(i, r.size - 1)) -- the last one is not in the text
  table.remove(r.F, i)
  table.remove(r.L, i)
  table.remove(r.N, i)
  r.size = r.size - 1
end

-- join makes one entry of i and i+1.
local function join(r, i)
  r.L[i] = r.L[i + 1]
  r.N[i] = r.N[i] + r.N[i + 1]
  touch(r, i)
  delete(r, i + 1)
end

-- after returns the index of the first entry that is not wholly before t. The
-- row is open.
local function after(r, t)
  local L, i = r.L, r.size + 1
  while i > 1 and L[i - 1] >= t do
    i = i - 1
  end
  return i
end

-- later returns how much of an open row lies in entries that end after t, and the first of these.
local function later(r, t)
  local L, N, sum, i = r.L, r.N, r.total, 1
  while i <= r.size and L[i] <= t do
    sum, i = sum - N[i], i + 1
  end
  return sum, i
end

-- push counts n starts in [first, last], the first of which is not before the last entry
-- begins. They share that one if it begins at shares or later.
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

-- one returns the index of the entry that has the start at t; nil if there is none. A start
-- that may be in several has them joined. The row is open.
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

-- add counts n starts in [first, last], joining what they overlap.
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
-- packed is how many bytes a number takes, at the most.
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

-- is_small reports whether the entries of an open row fit their bounds, the number of them and
-- so many bytes.
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

-- bound joins the closest neighbours until the row is small enough with its line, those
-- before tail first: the next booking is decided by what comes after it. What has
-- started is never joined with what has not, which may yet be cancelled.
function bound(r)
  open(r)
  local most = ENTRY_BYTES - r.named - min(r.lined, MAX_PLAIN)
  if is_small(r, most) then
    return
  end
  local F, L = r.F, r.L
  local tail = L[r.size] - r.span
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

-- drop forgets the first k entries of an open row.
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
-- first_two reads how long the first entry of a closed row is as it is stored, its n, and the
-- gap and the width of the second one, if there is one.
local function first_two(raw, more)
  local stop, _, _, n = cmsgpack.unpack_limit(raw, 3, 0)
  if not more then
    return stop < 0 and #raw or stop, n, 0, 0
  end
  local _, gap, width = cmsgpack.unpack_limit(raw, 2, stop)
  return stop, n, gap, width
end

-- pop forgets the first entry of a closed row with more than one.
function pop(r)
  local begin = HEAD_SIZE + r.named + r.lined + r.at
  local raw = redis.call('GETRANGE', r.key, begin, begin + 2 * TRIPLE - 1)
  local known, stop, n, gap, width = pcall(first_two, raw, r.size > 2)
  if not (known and type(n) == 'number' and type(gap) == 'number' and type(width) == 'number') then
    return open(r) -- which knows what to make of it
  end
  r.at, r.total, r.size = r.at + stop, r.total - n, r.size - 1
  r.old = r.size == 1 and r.last or r.old + gap + width
end
end
