-- A rule u is what a charge's limit says: kind, n, span, jitter, pace, and for
-- aligned windows their edges (see window). An unlimited one, of kind 6, has a number
-- that nothing reaches, and is free: see free_now.

local SLIDING, ALIGNED, PACED, BUCKET = 1, 2, 3, 4
local SLOTS = 128 -- parts of a window that share an entry when n is larger

-- What a script is told comes as one string of numbers, 8 bytes each: here is
-- where the next one begins.
local blob, here = ARGV[2], 1

-- rule reads one rule: the index of its key, kind, n, span, jitter, pace, the flow
-- into a bucket, tokens in micros, the window that it learns by, 0 if it does not, and how
-- many edges it has, then those.
local function rule()
  local u = {key = 0, kind = 0, n = 0, span = 0, jitter = 0, pace = 0, tokens = 0, micros = 0, learns = 0, rate = 0, cap = 0, pad = 0, edges = false, row = false, free = false}
  local edges
  u.key, u.kind, u.n, u.span, u.jitter, u.pace, u.tokens, u.micros, u.learns, edges, here =
    struct.unpack('<dddddddddd', blob, here)
  u.cap, u.rate = u.n, u.kind == BUCKET and u.learns * u.tokens / u.micros or u.n
  u.free = u.kind == 6
  -- One edge: windows of that length, from the epoch. Several: the edges of
  -- successive calendar windows.
  u.edges = edges > 0 and {}
  for i = 1, edges do
    u.edges[i], here = struct.unpack('<d', blob, here)
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
  local i, k = 1, #e
  if t < e[1] or t >= e[k] then
    return nil
  end
  while k - i > 1 do -- e[i] <= t < e[k]
    local m = floor((i + k) / 2)
    if e[m] <= t then
      i = m
    else
      k = m
    end
  end
  return e[i], e[k]
end

-- slot returns the part of the time line around t in which starts may share an
-- entry.
local function slot(u, t)
  local base, span = 0, u.span
  if u.kind == ALIGNED then
    local start, stop = window(u, t)
    base, span = start, stop - start
  end
  local width = ceil(span / SLOTS)
  local start = t - (t - base) % width
  return start, start + width
end
