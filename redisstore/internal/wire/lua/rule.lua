-- A rule u says in numbers what a charge's limit is. This file says what each kind of limit is, and search.lua how it looks for a start; all
-- other files ask the rule, and know no kinds. Its twin is internal/ledger/rule.go.
--
--   kind, n, span       as in Go, like all that follow
--   jitter, pace
--   learns, rate        the window by which an adaptive charge learns, 0 if it does not learn, and how much the limit allows in that window
--   tells, adapts       whether the number is left to the upstream, and whether such a rule may have a ceiling: see told.lua
--   cap                 n, or how much of n a ceiling allows; most in Go
--   row                 the row of the budget
--
-- Fields that only some kinds have:
--
--   boundaries          one number: windows of that length, from the epoch; several: the boundaries of successive calendar windows;
--                       false: the windows have no edges, and one ends at every moment
--   width               the length of the windows; 0 if there are none, or they differ in length
--   unit, pad           for how long each unit of a cost is alone, 0 if units may start together; and by how much more a ceiling keeps
--                       units apart
--   tokens, micros      this many tokens flow into a bucket in micros; tokens is 0 if there is no bucket
--   peak                upper bound on the starts in any half-open interval for which entries are kept; 0 if no start counts
--
-- needs: frame (ceil, floor, frame)
-- defines: read_rule, window, has_windows, part

-- read_rule reads a rule from the frame. Several budgets may share one rule: behind says how many of them come before this budget. It
-- returns the rule, for how many budgets it stands, and the index of this budget's key.
local function read_rule(behind)
  local key, many, kind, n, span, jitter, pace, tokens, micros, learns, edges
  key, many, kind, n, span, jitter, pace, tokens, micros, learns, edges, cursor = struct.unpack('<ddddddddddd', frame, cursor)

  local boundaries, width, unit, peak, rate, tells, adapts = edges > 0 and {}, 0, 0, n, n, false, false
  for i = 1, edges do
    boundaries[i], cursor = struct.unpack('<d', frame, cursor)
  end

  if kind == SLIDING_WINDOW then
    width = span
  elseif kind == FIXED_WINDOW then
    width, peak = edges == 1 and boundaries[1] or 0, 2 * n -- a span can reach over an edge
  elseif kind == LEAKY_BUCKET then
    unit, peak = span, 1
  elseif kind == TOKEN_BUCKET then
    peak, rate = 2 * n, learns * tokens / micros -- a full bucket, and as much as flows in
  elseif kind == UNLIMITED then
    peak = 0
  elseif kind == TOLD then
    kind, tells, peak = UNLIMITED, true, 0 -- until the row has a note
    adapts, learns = learns > 0, 0
  end

  return {kind = kind, n = n, span = span, jitter = jitter, pace = pace, learns = learns, rate = rate, cap = n, row = false, tells = tells, adapts = adapts,
    boundaries = boundaries, width = width, unit = unit, pad = 0, tokens = tokens, micros = micros, peak = peak},
    many, key + behind
end

-- window returns since when starts matter to a start at t, until when a start at t matters, and for how long a start can matter. It returns
-- nil where the boundaries end.
local function window(u, t)
  local e = u.boundaries
  if not e then
    return t - u.span + 1, t + u.span, u.span
  elseif #e == 1 then
    local start = floor(t / e[1]) * e[1]
    return start, start + e[1], e[1]
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
  return e[i], e[k], e[k] - e[i]
end

-- has_windows reports whether starts are counted in windows.
local function has_windows(u)
  return u.boundaries or u.width > 0
end

-- part returns the part of the time line around t in which starts may share an entry, as the half-open interval [start, stop).
local function part(u, t)
  local base, _, keep = window(u, t)
  if not u.boundaries then
    base = 0
  end

  local width = ceil(keep / WINDOW_PARTS)
  local start = t - (t - base) % width
  return start, start + width
end
