-- Booking a place in a row for a search s, and taking it out again.
--
-- needs: entries (touch, delete, after, push, one, add), frame (max, min, floor), row (open), rule (window, part)
-- defines: share, fuse, book, remove, counts

-- share widens [first, last] to touch a neighbour of the open row that lies in the same part
-- of the window, [start, stop), so that both become one entry. One that begins within an
-- entry shares that one.
local function share(r, first, last, start, stop)
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

-- fuse widens [first, last], the units of a paced start, to touch the blocks of
-- the open row without a gap between.
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

-- book counts the cost of search s at t. Of an unlimited budget only the probe is
-- counted.
local function book(r, t, s)
  local u, first, last = s.rule, t, t + s.length
  if u.peak == 0 then
    if r.paused > 0 and t < r.paused + r.probe and last >= r.paused then
      add(r, first, last, 1)
    end
    return
  elseif u.unit > 0 then
    open(r)
    first, last = fuse(r, first, last, u.unit)
  elseif u.boundaries then
    local _, _, keep = window(u, t)
    r.span = max(r.span, keep) -- months and days differ in length
  end
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
    first, last = share(r, first, last, shares, stop)
    add(r, first, last, s.cost)
  end
  r.till = max(r.till, last + r.span)
end

-- remove takes the booking of search s at t back out, and reports whether there
-- was anything to take. One that may have been forgotten stays: an entry that overlapped its
-- own holds only starts of others.
local function remove(r, t, s)
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
  -- In a block with more units than time for them, taking one out frees nothing.
  if rest > 0 and (unit == 0 or first + all * unit > last + unit) then
    r.N[i] = rest
    touch(r, i)
    r.total = r.total - s.cost
    return true
  end
  delete(r, i)
  r.total = r.total - all
  if unit == 0 then
    return true
  end
  -- The block splits in two. Each half may have up to as many units as fit: how
  -- many is only of interest to a limit of another kind.
  local stop = t + s.length + unit
  if first < t then
    add(r, first, max(first, t - unit), max(1, min(rest, floor((t - first) / unit))))
  end
  if last >= stop then
    add(r, stop, last, max(1, min(rest, floor((last - stop) / unit) + 1)))
  end
  return true
end

-- counts reports whether the start at t still counts.
local function counts(s, t, now)
  if not s.rule.boundaries then
    t = t + s.length
  end
  return t >= window(s.rule, now)
end
