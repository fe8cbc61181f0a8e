-- A rule u is what a charge's limit says: kind, n, span, jitter, pace, and for
-- aligned windows their boundaries (see window).

-- read_rule reads the rule of a budget, and of how many: the index of the first one's key,
-- how many keys from there on have the same rule, kind, n, span, jitter, pace, the flow
-- into a bucket, tokens in micros, the window that it learns by, 0 if it does not, and how
-- many boundaries it has, then those. The budget is so many behind the first one.
local function read_rule(behind)
  local key, many, kind, n, span, jitter, pace, tokens, micros, learns, boundaries
  key, many, kind, n, span, jitter, pace, tokens, micros, learns, boundaries, cursor = struct.unpack('<ddddddddddd', frame, cursor)
  local u = {key = key + behind, kind = kind, n = n, span = span, jitter = jitter, pace = pace, tokens = tokens, micros = micros,
    learns = learns, rate = kind == TOKEN_BUCKET and learns * tokens / micros or n, cap = n, pad = 0, boundaries = boundaries > 0 and {},
    row = false}
  -- One boundary: windows of that length, from the epoch. Several: the boundaries of
  -- successive calendar windows.
  u.boundaries = boundaries > 0 and {}
  for i = 1, boundaries do
    u.boundaries[i], cursor = struct.unpack('<d', frame, cursor)
  end
  return u, many
end

-- window returns the window that holds t, or nil where the boundaries end.
local function window(u, t)
  local e = u.boundaries
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

-- part returns the part of the time line around t in which starts may share an
-- entry.
local function part(u, t)
  local base, span = 0, u.span
  if u.kind == FIXED_WINDOW then
    local start, stop = window(u, t)
    base, span = start, stop - start
  end
  local width = ceil(span / WINDOW_PARTS)
  local start = t - (t - base) % width
  return start, start + width
end
