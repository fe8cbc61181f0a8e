-- A rule u is what a charge's limit says: kind ('sliding', 'aligned', 'paced'), n,
-- span, jitter, pace, and for aligned windows their edges (see window).

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
