-- When waiters will have their turn, as far as one can tell: if nothing changes. They may use as much as most of the limit of rule u.
--
-- needs: bucket (add_up, filled), entries (block_end, later), frame (max, min, floor, now), row (open), rule (window), search (usable)
-- defines: turn, turn.at, turn.units

local turn = {}
do
-- sliding: room comes back as entries leave the window, and each window after that is
-- like the one before.
local function sliding_turn(u, most, from, rank)
  local r, span = u.row, u.span
  local N, cycles = r.N, floor((rank - 1) / most)
  local used, i = later(r, from - span)
  local missing, size, first = used + rank - cycles * most - most, r.size, i
  while missing > 0 and i <= size do
    missing, i = missing - N[i], i + 1
  end
  return (i > first and r.L[i - 1] + span or from) + cycles * span
end

-- paced_turn: they keep a distance, from the last one on that others waited for; a smaller one
-- where the window has room. The cost before goes ahead of the waiter that is asked for.
local function paced_turn(u, from, before)
  local r = u.row
  local pace = u.pace * min(1, later(r, from - u.span) / u.cap)
  return max(from, r.t1, r.t2, r.t3) + floor(before * pace), pace
end

-- left_in returns how much of the limit a window leaves.
local function left_in(r, left, start, stop)
  for i = 1, r.size do
    if r.L[i] >= start and r.F[i] < stop then
      left = left - r.N[i]
    end
  end
  return left
end

-- aligned fills window after window, and believes the last one that it knows to be like
-- all that come after it.
local function aligned_turn(u, most, from, rank)
  local t, length = from, 0
  for _ = 1, FAR_WINDOWS do
    local start, stop = window(u, t)
    if not start then
      break
    end
    local left = left_in(u.row, most, start, stop)
    if rank <= left then
      return t
    end
    rank, t, length = rank - max(0, left), stop, stop - start
  end

  return t + floor((rank - 1) / most) * length
end

-- bucket: the level at the last entry before from, then what flows in.
local function bucket_turn(u, most, from, rank)
  return filled({rule = u, row = u.row, i = 1, j = 1, sum = 0, at = u.row.lost, spent = u.row.level, room = most - rank}, from)
end

-- at returns when a waiter of a cost and a reserve starts, not before the time from. Its rank is the cost of all waiters
-- before it and its own.
function turn.at(u, reserve, from, cost, rank)
  local r, most = u.row, usable(u, reserve)
  open(r)
  from = max(from, r.paused, r.opens)
  if u.unit > 0 then
    if r.size > 0 then
      from = max(from, block_end(r, r.size, u.unit + u.pad, u.n))
    end
    return from + (rank - cost) * (u.unit + u.pad)
  elseif u.tokens > 0 then
    return bucket_turn(u, most, from, rank)
  elseif u.boundaries then
    return aligned_turn(u, most, from, rank)
  elseif u.peak == 0 then
    return from
  end

  -- In the window in which it starts it keeps its distance to the first of that.
  local first = max(floor((rank - 1) / most) * most + 1, cost)
  return max(sliding_turn(u, most, from, rank), (paced_turn(u, from, rank - cost)), sliding_turn(u, most, from, first) + (rank - first) * u.pace)
end

-- units returns how much of the limit can start up to a time, which is not long from
-- now, if that reserve is left.
function turn.units(u, reserve, t)
  local r, most = u.row, usable(u, reserve)
  open(r)
  local from = max(now, r.paused, r.opens)
  if from > t then
    return 0
  elseif u.peak == 0 then
    return MAX_COUNT
  elseif u.unit > 0 then
    local sum, unit = 0, u.unit + u.pad
    for i = 1, r.size do
      sum = sum + max(0, floor((min(r.F[i], t) - from) / unit))
      from = max(from, block_end(r, i, unit, u.n))
    end

    return sum + max(0, floor((t - from) / unit) + 1)
  elseif u.tokens > 0 then
    local at, spent = r.lost, r.level
    for i = 1, r.size do
      at, spent = add_up(at, spent, r.L[i], r.N[i], u)
    end

    spent = max(0, spent - max(0, t - u.jitter - at) * u.tokens)
    return max(0, floor((most * u.micros - spent) / u.micros))
  elseif u.boundaries then
    local sum = 0
    for _ = 1, FAR_WINDOWS do
      local start, stop = window(u, from)
      if not start or from > t then
        break
      end
      sum, from = sum + max(0, left_in(r, most, start, stop)), stop
    end
    return sum
  end

  local cycles = floor((t - from) / u.span)
  local counted = later(r, cycles > 0 and min(t - u.span, now) or t - u.span)
  local first, pace = paced_turn(u, from, 0)
  local room = max(0, most * (1 + cycles) - counted)
  return pace > 0 and max(0, min(room, floor((t - first) / pace) + 1)) or room
end
end
