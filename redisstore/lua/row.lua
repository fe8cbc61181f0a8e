-- A row is one budget; docs/booking.md says what it promises, and memstore has
-- the same in Go. This file reads, ages and writes rows; search.lua searches them.
--
-- All times are whole microseconds of the server's clock. They fit a Lua number
-- without loss until the year 2255.
--
-- Stored form, one string a budget: a MessagePack array
--   seen, lost, span, most, until, paused, frozen, then for each entry
--   first, last, n
-- with times as distances: from seen in the header (0: none), first from the
-- last before it (the first one from seen), last from first. Small numbers take
-- few bytes. The form's version is part of the key.

local MAX_ENTRIES = 152 -- bounds a row to 4 KB, whatever the limit and the queue
local MAX_COUNT = 2 ^ 40 -- the largest n of a limit, enough to fill any window
local HEADER = 7
local IDLE_MS = 1000 -- a key outlives what it holds by this much

local max, min, ceil, floor = math.max, math.min, math.ceil, math.floor

-- clock returns the time: the server's, unless a test passes its own.
local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- load reads the row of a key; a key that is not there is an empty row.
local function load(key)
  local F, L, N = {}, {}, {}
  local r = {key = key, F = F, L = L, N = N, size = 0, total = 0, seen = 0,
    lost = 0, span = 0, most = 0, ['until'] = 0, paused = 0, frozen = 0}
  local raw = redis.call('GET', key)
  if not raw then
    return r
  end
  r.stored = true
  local v = cmsgpack.unpack(raw)
  local seen = v[1]
  local function at(i)
    return v[i] ~= 0 and seen + v[i] or 0
  end
  r.seen, r.span, r.most = seen, v[3], v[4]
  r.lost, r['until'], r.paused, r.frozen = at(2), at(5), at(6), at(7)
  local prev, size, total = seen, 0, 0
  for i = HEADER + 1, #v, 3 do
    size = size + 1
    F[size] = prev + v[i]
    prev = F[size] + v[i + 1]
    L[size] = prev
    N[size] = v[i + 2]
    total = total + N[size]
  end
  r.size, r.total = size, total
  return r
end

-- save writes the row, with an expiry after which nothing in it can matter.
local function save(r)
  local seen, F, L, N = r.seen, r.F, r.L, r.N
  local function from(t)
    return t ~= 0 and t - seen or 0
  end
  local v = {seen, from(r.lost), r.span, r.most, from(r['until']), from(r.paused), from(r.frozen)}
  local prev, k, stop = seen, HEADER, max(seen, r.paused)
  for i = 1, r.size do
    v[k + 1], v[k + 2], v[k + 3] = F[i] - prev, L[i] - F[i], N[i]
    prev, k = L[i], k + 3
  end
  if r.size > 0 then
    stop = max(stop, prev + r.span)
  end
  redis.call('SET', r.key, cmsgpack.pack(v), 'PX',
    string.format('%.0f', ceil((stop - seen) / 1000) + IDLE_MS))
end

local function insert(r, i, first, last, n)
  table.insert(r.F, i, first)
  table.insert(r.L, i, last)
  table.insert(r.N, i, n)
  r.size = r.size + 1
end

local function delete(r, i)
  table.remove(r.F, i)
  table.remove(r.L, i)
  table.remove(r.N, i)
  r.size = r.size - 1
end

-- join makes one entry of i and i+1.
local function join(r, i)
  r.L[i] = r.L[i + 1]
  r.N[i] = r.N[i] + r.N[i + 1]
  delete(r, i + 1)
end

-- after returns the index of the first entry that is not wholly before t.
local function after(r, t)
  local L, i = r.L, r.size + 1
  while i > 1 and L[i - 1] >= t do
    i = i - 1
  end
  return i
end

-- add counts n starts in [first, last], joining what they overlap.
local function add(r, first, last, n)
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
end

-- bound joins the closest neighbours until the row is small enough, those
-- before tail first: the next booking is decided by what comes after it. What has
-- started is never joined with what has not, which may yet be cancelled.
local function bound(r)
  local F, L = r.F, r.L
  local tail = L[r.size] - r.span
  while r.size > MAX_ENTRIES do
    local best, width, in_tail
    for i = 1, r.size - 1 do
      local w, late = L[i + 1] - F[i], L[i + 1] > tail
      local alike = L[i] > r.seen or L[i + 1] <= r.seen
      if alike and (not best or (in_tail and not late) or (in_tail == late and w < width)) then
        best, width, in_tail = i, w, late
      end
    end
    join(r, best)
  end
end

-- freeze keeps cancelled places taken until everything booked so far is over.
local function freeze(r)
  if r.size > 0 then
    r.frozen = max(r.frozen, r.L[r.size] + r.span)
  end
end

-- step_back moves the row to a clock that shows less than before, as if no time
-- had passed since. Entries still to come are widened to begin now: their
-- callers have slept for an unknown while.
local function step_back(r, now)
  local shift, F, L = now - r.seen, r.F, r.L
  for i = 1, r.size do
    F[i], L[i] = F[i] + shift, L[i] + shift
  end
  for _, f in ipairs({'lost', 'until', 'paused', 'frozen'}) do
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
    r.lost = now - back
  end
  if u.kind == 'paced' and keep ~= r.span and r.span > 0 then
    freeze(r) -- blocks of another unit cannot be told apart
  end
  if now >= r['until'] then
    r.span, r.most = keep, most
  elseif keep > r.span then
    r.span, r.most = keep, max(at_most(r, keep), most)
  else
    r.most = max(r.most, most)
  end
  if keep == r.span then
    r['until'] = max(r['until'], now + keep)
  end
end

-- block_end returns when the units of a paced block are over: at the earliest
-- when as many as one start can have, most, had their time, even if they were
-- booked closer together.
local function block_end(r, i, unit, most)
  return max(r.L[i] + unit, r.F[i] + min(r.N[i], most) * unit)
end

-- prune drops the entries that no start to come can share an interval with.
local function prune(r, now, u)
  local k = 0
  while k < r.size and r.L[k + 1] + r.span <= now
    and not (u.kind == 'paced' and block_end(r, k + 1, u.span, u.n) > now) do
    k = k + 1
    r.lost = max(r.lost, r.L[k])
    r.total = r.total - r.N[k]
  end
  if k == 0 then
    return
  end
  local F, L, N, size = r.F, r.L, r.N, r.size
  for i = 1, size do
    F[i], L[i], N[i] = F[i + k], L[i + k], N[i + k]
  end
  r.size = size - k
end
