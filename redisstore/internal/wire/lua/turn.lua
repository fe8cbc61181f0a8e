-- When waiters will have their turn, as far as anybody can tell: if nothing changes. A rank is the sum of the costs up to a waiter in its line, its
-- own cost included; most is how much of the limit of rule u the waiters may use. The twin is internal/ledger/turn.go. When callers come again that
-- left with their places is at the end of this file.
--
-- needs: bucket (add_up, filled), entries (block_end, later), frame (max, min, floor, now), row (open), rule (window), search (usable)
-- defines: turn, turn.at, turn.units

local turn = {}
do
-- sliding_turn returns the turn in sliding windows: room comes back as entries leave the window, and each window after that is like the window
-- before.
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

-- paced_turn returns the turn by the distance alone that waiting starts keep, and that distance for each unit of cost: from the last start behind which
-- callers waited, with a smaller distance where the window has room. before is the sum of the costs before the waiter.
local function paced_turn(u, from, before)
  local r = u.row
  local pace = u.pace * min(1, later(r, from - u.span) / u.cap)
  return max(from, r.t1, r.t2, r.t3) + floor(before * pace), pace
end

-- left_in returns how much of a limit of left the starts in a window leave.
local function left_in(r, left, start, stop)
  for i = 1, r.size do
    if r.L[i] >= start and r.F[i] < stop then
      left = left - r.N[i]
    end
  end
  return left
end

-- aligned_turn returns the turn in fixed windows: it fills window after window. Windows behind the last known boundaries are taken to be empty, and
-- as long as the last known window.
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

-- bucket_turn returns the turn in a token bucket: from its level on, when the tokens of all ranks have flowed in.
local function bucket_turn(u, most, from, rank)
  return filled({rule = u, row = u.row, i = 1, j = 1, sum = 0, at = u.row.lost, spent = u.row.level, room = most - rank}, from)
end

-- at returns when a waiter of that cost, reserve and rank will start, not before the time from.
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

  -- It keeps its distance from the first start of the window in which it starts.
  local first = max(floor((rank - 1) / most) * most + 1, cost)
  return max(sliding_turn(u, most, from, rank), (paced_turn(u, from, rank - cost)), sliding_turn(u, most, from, first) + (rank - first) * u.pace)
end

-- units returns how much of the limit can start up to the time t, which is near, if a reserve is left.
function turn.units(u, reserve, t)
  local r, most = u.row, usable(u, reserve)
  open(r)
  local from = max(now, r.paused, r.opens)

  if from > t then
    return 0
  elseif u.peak == 0 then
    return MAX_COUNT
  elseif u.unit > 0 then
    -- Count the units that fit into the gaps between blocks, and behind the last block.
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

    -- Tokens that flow in during the jitter do not count.
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

  -- Each further window until t has room for the whole limit once more.
  local cycles = floor((t - from) / u.span)
  local counted = later(r, cycles > 0 and min(t - u.span, now) or t - u.span)
  local first, pace = paced_turn(u, from, 0)
  local room = max(0, most * (1 + cycles) - counted)
  return pace > 0 and max(0, min(room, floor((t - first) / pace) + 1)) or room
end
end

-- part: appoint
-- Says when a caller should come again that leaves with its place. Callers come one by one, as the limit lets them start: see
-- docs/internals/places.md, and Appointments in internal/ledger/turn.go. The script reads and changes no budget.
--
-- KEYS  1 the appointments of a budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: how long the caller would wait, how long the limit takes for its cost, and 1 if it came back and leaves once
--         more
--
-- Result as of book.lua: DONE, now, in how long it should come.
--
-- Stored form: two numbers of 8 bytes, until when callers that left for the first time have appointments, and until when callers that came back
-- have. Both are times of the server.
--
-- needs: frame (max, min, ceil, IDLE, frame, now)

local wait, length, again = struct.unpack('<ddd', frame)
local raw, tails = redis.call('GET', KEYS[1]), {0, 0}
if raw and #raw == 16 then
  tails = {struct.unpack('<dd', raw)}
end

-- The appointment follows the last one of the same kind of callers. The clock may have been set back since that was made.
local k = again == 1 and 2 or 1
local at = max(now + wait, min(tails[k], now + FARTHEST))
tails[k] = at + length

redis.call('SET', KEYS[1], struct.pack('<dd', tails[1], tails[2]), 'PX',
  string.format('%.0f', ceil((min(max(tails[1], tails[2]) - now, FARTHEST) + IDLE) / 1000)))
return struct.pack('<ddd', DONE, now, at - now)
