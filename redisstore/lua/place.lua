-- Booking a place in a row for a search s, and taking it out again.

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
