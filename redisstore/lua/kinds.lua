-- The kinds of limits: how each searches a row, books in it and gives back.
-- A rule u has kind ('sliding', 'aligned', 'paced'), n, span, jitter, pace, and for
-- aligned windows their edges (see window). A search s is one charge under a
-- rule: it has also cost, spread, shadow and the row.

local SLOTS = 128 -- parts of a window that share an entry when n is larger

-- rule reads one rule from ARGV, starting at i: kind, n, span, jitter, pace,
-- edges. RULE is how many those are.
local RULE = 6
local function rule(i)
  local u = {kind = ARGV[i], n = tonumber(ARGV[i + 1]), span = tonumber(ARGV[i + 2]),
    jitter = tonumber(ARGV[i + 3]), pace = tonumber(ARGV[i + 4])}
  if u.kind == 'aligned' then
    -- One number: windows of that length, from the epoch. Several: the edges
    -- of successive calendar windows, in seconds.
    u.edges = {}
    for edge in string.gmatch(ARGV[i + 5], '%-?%d+') do
      u.edges[#u.edges + 1] = tonumber(edge)
    end
  end
  return u
end

-- window returns the window that holds t, or nil where the edges end.
local function window(u, t)
  local e = u.edges
  if #e == 1 then
    local start = floor(t / e[1]) * e[1]
    return start, start + e[1]
  end
  for i = #e - 1, 1, -1 do
    local start = e[i] * 1000000
    if t >= start then
      local stop = e[i + 1] * 1000000
      if t < stop then
        return start, stop
      end
      return nil
    end
  end
  return nil
end

-- slot returns the part of the time line around t in which starts may share an
-- entry.
local function slot(u, t)
  local base, span = 0, u.span
  if u.kind == 'aligned' then
    local start, stop = window(u, t)
    base, span = start, stop - start
  end
  local width = ceil(span / SLOTS)
  local start = t - (t - base) % width
  return start, start + width
end

-- advance brings the row to the time now and makes it fit for the rule. It
-- returns false if the rule's edges do not hold now.
local function advance(r, now, u)
  local back, keep, most = u.span, u.span, u.n
  if u.kind == 'aligned' then
    local start, stop = window(u, now)
    if not start then
      return false
    end
    back, keep, most = now - start + 1, stop - start, 2 * u.n -- its first moment counts
  elseif u.kind == 'paced' then
    most = 1
  end
  if now < r.seen then
    step_back(r, now)
  end
  remember(r, now, back, keep, most, u)
  r.seen = now
  prune(r, now, u)
  return true
end

-- search_for starts a search for a charge under rule u. It remembers how far it
-- came: i is the entry it stands at, and for a sliding window j the first behind
-- the run from i, whose sum is sum; k is where the pace stands. Successive
-- questions must not go back in time.
local function search_for(u, cost, spread, shadow)
  local length = spread -- what one booking occupies beyond its start
  if u.kind == 'paced' then
    length = length + (cost - 1) * u.span
  end
  return {kind = u.kind, n = u.n, span = u.span, jitter = u.jitter, pace = u.pace, edges = u.edges,
    row = u.row, cost = cost, spread = spread, shadow = shadow, length = length,
    i = 1, j = 1, sum = 0, k = 1}
end

-- sweep goes over the forbidden ranges of docs/booking.md: entry i and the
-- shortest run from it that leaves no room forbid every start from which an
-- interval of length span can touch the whole run.
local function sweep(s, t)
  local r, span, room = s.row, s.span, s.n - s.cost
  local F, L, N, size = r.F, r.L, r.N, r.size
  if r.total <= room then
    return t
  end
  local i, j, sum = s.i, s.j, s.sum
  while i <= size do
    if L[i] + span > t then
      while j <= size and sum <= room do
        sum = sum + N[j]
        j = j + 1
      end
      local far = F[j - 1]
      if sum <= room or t + s.spread + span <= far then
        break
      end
      if far - L[i] < span then
        t = L[i] + span
      end
    end
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

-- clear returns the first moment not before t that is clear of all starts still
-- to come.
local function clear(s, t)
  local r, pace = s.row, s.pace
  local length = max(s.spread + pace, s.cost * pace)
  while s.k <= r.size do
    if r.L[s.k] > r.seen then
      local stop = block_end(r, s.k, pace)
      if stop > t then
        if t + length <= r.F[s.k] then
          break
        end
        t = stop
      end
    end
    s.k = s.k + 1
  end
  return t
end

local search = {}

-- sliding keeps the pace, if there is one, when the limit alone or a penalty
-- makes the request wait.
function search.sliding(s, t)
  local now = s.row.seen
  s.wait = s.wait or sweep(s, max(now, s.row.paused))
  t = sweep(s, max(t, s.wait))
  if s.pace == 0 or s.wait == now then
    return t
  end
  while true do
    local free = clear(s, t)
    if free == t then
      return t
    end
    t = sweep(s, free)
  end
end

-- aligned goes from window to window. It returns nil where the edges end.
function search.aligned(s, t)
  local r, tail, room = s.row, s.jitter + s.spread, s.n - s.cost
  while true do
    local start, stop = window(s, t)
    if not start then
      return nil, t
    end
    if t + tail < stop then
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
      if r.N[s.i] > room and r.L[s.i] >= stop then
        -- It fills every window that it touches.
        local _, last = window(s, r.L[s.i])
        if not last then
          return nil, r.L[s.i]
        end
        stop = last
      end
    end
    t = stop
  end
end

-- paced looks for the first gap that is long enough.
function search.paced(s, t)
  local r, span = s.row, s.span
  while s.i <= r.size do
    local stop = block_end(r, s.i, span)
    if stop > t then
      if t + s.length + span <= r.F[s.i] then
        break
      end
      t = stop
    end
    s.i = s.i + 1
  end
  return t
end

-- earliest returns the first start not before t that has room for the cost; or
-- nil and the time up to which more edges are needed.
local function earliest(s, t)
  return search[s.kind](s, max(t, s.row.paused))
end

-- share widens [first, last] to touch a neighbour that lies in the same slot
-- [start, stop), so that both become one entry.
local function share(r, i, first, last, start, stop)
  if i > 1 and r.F[i - 1] >= start then
    first = r.L[i - 1]
  end
  if i <= r.size and r.L[i] < stop and r.F[i] > last then
    last = r.F[i]
  end
  return first, last
end

-- book counts the cost of search s at t.
local function book(r, t, s)
  local first, last, i = t, t + s.length, after(r, t)
  if s.kind == 'paced' then
    -- Blocks without a gap between them become one.
    if i > 1 and r.L[i - 1] == first - s.span then
      first = first - s.span
    end
    local k = after(r, last + 1)
    if k <= r.size and r.F[k] == last + s.span then
      last = last + s.span
    end
  elseif s.n > SLOTS then
    local start, stop = slot(s, t)
    first, last = share(r, i, first, last, start, stop)
  end
  add(r, first, last, s.cost)
  r['until'] = max(r['until'], last + r.span)
  bound(r)
end

-- remove takes the booking of search s at t back out.
local function remove(r, t, s)
  local i = after(r, t)
  if i > r.size or r.F[i] > t or r.seen < r.frozen then
    return
  end
  local first, last, all = r.F[i], r.L[i], r.N[i]
  local rest = max(0, all - s.cost)
  -- In a block with more units than time for them, taking one out frees nothing.
  if rest > 0 and (s.kind ~= 'paced' or first + all * s.span > last + s.span) then
    r.N[i] = rest
    r.total = r.total - s.cost
    return
  end
  delete(r, i)
  r.total = r.total - all
  if s.kind ~= 'paced' then
    return
  end
  -- The block splits in two. Each half may have up to as many units as fit: how
  -- many is only of interest to a limit of another kind.
  local stop = t + s.length + s.span
  if first < t then
    add(r, first, t - s.span, max(1, min(rest, floor((t - first) / s.span))))
  end
  if last >= stop then
    add(r, stop, last, max(1, min(rest, floor((last - stop) / s.span) + 1)))
  end
end
