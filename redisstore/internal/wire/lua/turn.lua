-- When waiters will have their turn, as far as one can tell: if nothing changes, and no
-- start keeps a pace. A turn is asked of a search s that has not begun.

local turn = {}
do
local FAR_WINDOWS = 64 -- no more windows are looked at one by one

-- sliding: room comes back as entries leave the window, and each window after that is
-- like the one before.
local function sliding_turn(s, from, rank)
  local r, most, span = s.row, s.most, s.span
  local cycles = floor((rank - 1) / most)
  local missing, t = rank - cycles * most - most, from
  for i = 1, r.size do
    if r.L[i] + span > from then
      missing = missing + r.N[i]
    end
  end
  for i = 1, r.size do
    if missing <= 0 then
      break
    end
    if r.L[i] + span > from then
      t, missing = r.L[i] + span, missing - r.N[i]
    end
  end
  return t + cycles * span
end

-- paced_turn: they keep a distance, from the last one on that others waited for; a smaller one
-- where the window has room.
local function paced_turn(s, from, rank)
  local r, used = s.row, 0
  for i = 1, r.size do
    if r.L[i] + s.span > from then
      used = used + r.N[i]
    end
  end
  local pace = s.pace * min(1, used / s.cap)
  return max(from, r.t1, r.t2, r.t3) + floor((rank - s.cost) * pace), pace
end

-- left_in returns how much of the limit a window leaves.
local function left_in(s, start, stop)
  local r, left = s.row, s.most
  for i = 1, r.size do
    if r.L[i] >= start and r.F[i] < stop then
      left = left - r.N[i]
    end
  end
  return left
end

-- aligned fills window after window, and believes the last one that it knows to be like
-- all that come after it.
local function aligned_turn(s, from, rank)
  local t, length = from, 0
  for _ = 1, FAR_WINDOWS do
    local start, stop = window(s, t)
    if not start then
      break
    end
    local left = left_in(s, start, stop)
    if rank <= left then
      return t
    end
    rank, t, length = rank - max(0, left), stop, stop - start
  end
  return t + floor((rank - 1) / s.most) * length
end

-- bucket: the level at the last entry before from, then what flows in.
local function bucket_turn(s, from, rank)
  local v = search_for(s, s.cost, s.reserve, s.from, 0, false)
  v.at, v.spent, v.room = s.row.lost, s.row.level, s.most - rank
  return filled(v, from)
end

-- at returns when a waiter starts with so much of the limit before it, its own cost
-- included.
function turn.at(s, rank)
  local r = s.row
  open(r)
  local from = max(s.from, r.paused, r.opens)
  if s.kind == SLIDING_WINDOW then
    return max(sliding_turn(s, from, rank), (paced_turn(s, from, rank)))
  elseif s.kind == FIXED_WINDOW then
    return aligned_turn(s, from, rank)
  elseif s.kind == TOKEN_BUCKET then
    return bucket_turn(s, from, rank)
  elseif s.kind == UNLIMITED then
    return from
  end
  if r.size > 0 then
    from = max(from, block_end(r, r.size, s.span + s.pad, s.n))
  end
  return from + (rank - s.cost) * (s.span + s.pad)
end

-- units returns how much of the limit can start up to a time, which is not long from
-- now.
function turn.units(s, now, t)
  local r = s.row
  open(r)
  local from = max(now, r.paused, r.opens)
  if from > t then
    return 0
  elseif s.kind == UNLIMITED then
    return MAX_COUNT
  elseif s.kind == LEAKY_BUCKET then
    local sum, unit = 0, s.span + s.pad
    for i = 1, r.size do
      sum = sum + max(0, floor((min(r.F[i], t) - from) / unit))
      from = max(from, block_end(r, i, unit, s.n))
    end
    return sum + max(0, floor((t - from) / unit) + 1)
  elseif s.kind == TOKEN_BUCKET then
    local at, spent = r.lost, r.level
    for i = 1, r.size do
      at, spent = add_up(at, spent, r.L[i], r.N[i], s)
    end
    spent = max(0, spent - max(0, t - s.jitter - at) * s.tokens)
    return max(0, floor((s.most * s.micros - spent) / s.micros))
  elseif s.kind == FIXED_WINDOW then
    local sum = 0
    for _ = 1, FAR_WINDOWS do
      local start, stop = window(s, from)
      if not start or from > t then
        break
      end
      sum, from = sum + max(0, left_in(s, start, stop)), stop
    end
    return sum
  end
  local cycles = floor((t - from) / s.span)
  local back, counted = t - s.span, 0
  for i = 1, r.size do
    if r.L[i] > back or (cycles > 0 and r.L[i] > now) then
      counted = counted + r.N[i]
    end
  end
  local first, pace = paced_turn(s, from, s.cost)
  local room = max(0, s.most * (1 + cycles) - counted)
  return pace > 0 and max(0, min(room, floor((t - first) / pace) + 1)) or room
end
end
