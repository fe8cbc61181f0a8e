-- Lowers what is left of a budget to what its upstream says; see docs/internals/booking.md.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: how much was left; for how long that is all there
--         is, and how long ago it was so, in microseconds; the generation of the row that
--         the program knows, or 0; its rule
--       3 the channel of news
--
-- Result as of book.lua: 0, now, what is left as we believe, how many starts the
-- row counts, its generation, and between which times starts must be booked anew; or 1,
-- now, now if boundaries around now are needed.
-- News are those of anew.lua.

local left, reset, age, known
left, reset, age, known, cursor = struct.unpack('<dddd', frame, cursor)
local u = read_rule(0)
local r = load(KEYS[1])
if not advance(r, now, u) then
  return struct.pack('<ddd', NEEDS_BOUNDARIES, now, now)
end
open(r)

-- between sums what has started since a time, and what is to come before an end.
local function between(since, stop)
  local spent, coming = 0, 0
  for i = 1, r.size do
    if r.L[i] >= since and r.F[i] < stop then
      if r.F[i] <= now then
        spent = spent + r.N[i]
      else
        coming = coming + r.N[i]
      end
    end
  end
  return spent, coming
end

-- tokens_left returns how many whole tokens of a bucket those leave that have
-- started.
local function tokens_left()
  local at, spent, late = r.lost, r.level, 0
  local flown = now - u.jitter -- what flows in during the jitter does not count
  for i = 1, r.size do
    if r.F[i] <= now and r.L[i] > flown then
      late = late + filling(u, r.N[i])
    elseif r.F[i] <= now then
      at, spent = add_up(at, spent, r.L[i], r.N[i], u)
    end
  end
  at, spent = add_up(at, spent, flown, 0, u)
  return max(0, u.n - ceil((spent + late * u.micros) / u.micros))
end

-- spend books what others have spent.
local from, stop = 0, 0
local function spend(at, others)
  u.row = r
  book(r, at, search_for(u, others, 0, now, 0, false))
end

-- bucket_left returns what is left of a bucket, which knows by itself when there
-- will be more. Less than what flows in within a second is not worth knowing.
local function bucket_left()
  local believed = tokens_left()
  local others = believed - left
  if others <= 0 or others <= floor(1000000 * u.tokens / u.micros) then
    return believed
  end
  from, stop = now + 1, now + ceil(others * u.micros / u.tokens)
  spend(now, others)
  return left
end

-- window_left returns what is left of a window, and books what others have spent
-- of it so that it is over when the window is.
local function window_left()
  local since, at, finish
  if not u.boundaries then
    finish = now + min(reset, u.span)
    since, at = max(now, finish - DOUBT) - u.span + 1, finish - u.span
    if age > 0 then -- the upstream did not know what has started since; what others spent lies at about at
      left = max(0, left - (between(max(at + DOUBT, now - age) + 1, now + 1)))
    end
  else
    since, finish = window(u, now)
    at = now
  end
  local spent, coming = between(since, finish)
  local others = u.n - spent - left
  if others <= 0 or u.boundaries and finish - now > min(2 * reset, MAX_PENALTY) then
    return u.n - spent
  end
  from, stop = last_of(r, coming - left, finish), finish
  spend(at, others)
  return left
end

local believed = 0
if known ~= 0 and known ~= r.generation and known ~= r.g1 then
  -- The row is not the one that the program knows: the next booking repairs it, and
  -- what we spent ourselves must not count as spent by others until then.
elseif u.tokens > 0 then
  believed = bucket_left()
elseif reset > 0 and has_windows(u) then
  believed = window_left()
end
save(r, queue.write(r))
book_anew(r, from, stop, ARGV[3])
return struct.pack('<ddddddd', DONE, now, believed, r.count, r.generation, from, stop)
