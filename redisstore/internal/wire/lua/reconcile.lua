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
-- row counts, its generation, and between which times starts must be booked anew; or
-- NEEDS_BOUNDARIES, now, now.
-- News are those of anew.lua.
--
-- needs: age (advance), anew (last_of, book_anew), bucket (filling, add_up), frame (max, min, ceil, floor, frame, now), place (book), queue
--     (queue, queue.write), row (load, open, save), rule (read_rule, window, has_windows), search (search_for)

local left, reset, age, known
left, reset, age, known, cursor = struct.unpack('<dddd', frame, cursor)
local u = read_rule(0)
local r = load(KEYS[1])
local needs = advance(r, now, u)
if needs then
  return struct.pack('<ddd', needs, now, now)
end
open(r)
local asked = now - age -- when the upstream counted: see Reconcile in internal/ledger/reconcile.go for what is known of that time

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

-- begun_since sums the entries that began after a time, and not after now: all of their starts are later than
-- that time.
local function begun_since(t)
  local sum = 0
  for i = 1, r.size do
    if t < r.F[i] and r.F[i] <= now then
      sum = sum + r.N[i]
    end
  end
  return sum
end

-- tokens_left returns how many whole tokens of a bucket those left at a time that had started by then. That time
-- is at least the jitter after what the row has forgotten.
local function tokens_left(t)
  local at, spent, late = r.lost, r.level, 0
  local flown = t - u.jitter -- what flows in during the jitter does not count
  for i = 1, r.size do
    if r.F[i] <= t and r.L[i] > flown then
      late = late + filling(u, r.N[i])
    elseif r.F[i] <= t then
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
  local believed = tokens_left(now)
  if asked - u.jitter < r.lost then
    return believed
  end

  -- What flowed in or was started since then may leave less than others spent: no bucket is more than empty.
  local others = min(tokens_left(asked) - left, believed)
  if others <= 0 or others <= floor(1000000 * u.tokens / u.micros) then
    return believed
  end

  from, stop = now + 1, asked + ceil(others * u.micros / u.tokens)
  spend(asked, others)
  return tokens_left(now)
end

-- stated_window returns the window that the statement is about: since when own starts may be counted in it, at
-- which time others are taken to have spent, and when it ends; and whether it is the window of now. The end is late
-- by DOUBT at the most, and by the age, because the reset may have been true when the upstream counted.
local function stated_window()
  if not u.boundaries then
    local rest = min(reset, u.span)
    return asked + max(0, rest - DOUBT) - u.span + 1, now + rest - u.span, now + rest, true
  end

  local since, finish = window(u, now)
  return since, since, finish, asked >= since and finish - now <= min(2 * reset, MAX_PENALTY)
end

-- window_left returns what is left of a window, and books what others have spent
-- of it so that it is over when the window is.
local function window_left()
  local since, at, finish, told = stated_window()
  local spent, coming = between(since, finish)
  if not told or r.lost >= since then
    return u.n - spent
  end

  -- What is booked for others lies close behind at, and is no start of ours since then.
  left = max(0, left - begun_since(max(asked, u.boundaries and at or at + DOUBT + age)))

  local others = u.n - spent - left
  if others <= 0 then
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
