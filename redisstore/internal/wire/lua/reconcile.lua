-- part: anew
-- Starts to come that do not fit any more, and are booked anew by their programs.
--
-- defines: ANEW, last_of, book_anew

local ANEW = 'anew %.0f %.0f %s'

-- last_of returns from when on the last starts of an open row before stop cost at least needed together: the begin of the entry of the first of these
-- starts. It returns stop if needed is not above 0. The starts to come cost at least as much, so that no start that has come is among them.
local function last_of(r, needed, stop)
  local from, i = stop, r.size
  while i > 0 and needed > 0 do
    if r.F[i] < stop then
      from, needed = r.F[i], needed - r.N[i]
    end
    i = i - 1
  end
  return from
end

-- book_anew tells all programs to book anew the starts of a row in [from, stop), and does nothing if this interval is empty. The message is ANEW with
-- from, stop and the key. A program that does not hear the message finds out from the upstream.
local function book_anew(r, from, stop, channel)
  if from < stop then
    redis.pcall('PUBLISH', channel, string.format(ANEW, from, stop, r.key))
  end
end

-- part: reconcile
-- Lowers the room of a budget to the number that its upstream says is left; see docs/internals/booking.md. Its twin is Reconcile in
-- internal/ledger/reconcile.go, which says what is known of the time at which the upstream counted.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: how much was left; in how long the upstream's window ends, and how long ago the upstream counted, in
--         microseconds; the generation of the row that the program knows, or 0; the limit that the upstream told, starts and window, or 0 and 0;
--         the rule
--       3 the channel of news
--
-- Result as of book.lua: DONE, now, how much is left by the row, how many starts the row counts, its generation, and between which times
-- starts must be booked anew; or NEEDS_BOUNDARIES, now, now.
-- News are those of book_anew.
--
-- needs: age (advance), anew (last_of, book_anew), bucket (filling, add_up), entries (book), frame (max, min, ceil, floor, frame, now),
--     queue (queue, queue.write), row (note, load, open, save), rule (read_rule, window, has_windows), search (search_for), told (note.tell)

local left, reset, age, known, n, each
left, reset, age, known, n, each, cursor = struct.unpack('<dddddd', frame, cursor)
local rule_at = cursor -- where the rule begins in the frame
local u = read_rule(0)
local r = load(KEYS[1])
local needs = advance(r, now, u)
if needs then
  return struct.pack('<ddd', needs, now, now)
end

-- If the limit that was told is new to the row, the rest of the call is under that limit: begin again.
if u.tells and note.tell(r, now, n, each) then
  cursor = rule_at
  u = read_rule(0)
  advance(r, now, u)
end
open(r)
local asked = now - age -- when the upstream counted

-- between returns two sums over the entries that reach into the interval [since, stop): the costs of entries that have begun, and the costs of entries
-- to come. An entry counts as a whole, even if it begins before since or ends after stop.
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

-- begun_since returns the sum of the costs of entries that began after t, and not after now: all starts in these entries are later than t.
local function begun_since(t)
  local sum = 0
  for i = 1, r.size do
    if t < r.F[i] and r.F[i] <= now then
      sum = sum + r.N[i]
    end
  end
  return sum
end

-- tokens_left returns how many whole tokens the starts up to t have left in a bucket at the time t, at least 0. Tokens that flow in during the last
-- jitter before t do not count. The result is too low if the row has forgotten a start later than the begin of that jitter.
local function tokens_left(t)
  -- Take the tokens of the entries that have begun by t. Entries that end after level_until count in late: no tokens flow in behind them.
  local level_at, spent, late = r.lost, r.level, 0
  local level_until = t - u.jitter
  for i = 1, r.size do
    local begun = r.F[i] <= t
    if begun and r.L[i] > level_until then
      late = late + filling(u, r.N[i])
    elseif begun then
      level_at, spent = add_up(level_at, spent, r.L[i], r.N[i], u)
    end
  end

  -- An entry without starts brings the level to level_until.
  level_at, spent = add_up(level_at, spent, level_until, 0, u)

  -- A token is u.micros units of spent.
  return max(0, u.n - ceil((spent + late * u.micros) / u.micros))
end

-- Starts that do not fit any more are in [from, stop).
local from, stop = 0, 0

-- spend books a cost that others have spent, as a start at the time at.
local function spend(at, cost)
  u.row = r
  book(r, at, search_for(u, cost, 0, now, 0, false))
end

-- bucket_left returns how many tokens of a bucket are left now. If the row has more than the upstream said, others have spent the difference: if that
-- is more than flows in within a second, bucket_left books it, and sets from and stop. A bucket needs no reset: the row knows when tokens flow in.
local function bucket_left()
  local by_row = tokens_left(now)

  -- The row has forgotten starts around the time at which the upstream counted, so what others spent is not known.
  if asked - u.jitter < r.lost then
    return by_row
  end

  -- Do not book more tokens for others than the row has now: no bucket is more than empty. What flows in within a second may have flowed in while the
  -- answer travelled.
  local others = min(tokens_left(asked) - left, by_row)
  if others <= 0 or others <= floor(1000000 * u.tokens / u.micros) then
    return by_row
  end

  -- The starts to come give way, until as many tokens have flowed in as others spent.
  from, stop = now + 1, asked + ceil(others * u.micros / u.tokens)
  spend(asked, others)
  return tokens_left(now)
end

-- stated_window returns four values of the window in which the upstream counted: since when own starts may count in it; at which time others are taken
-- to have spent; when it ends; and whether it is surely the present window. The end may be too late by DOUBT, and by the age, because the upstream may
-- have counted the reset from the time asked.
local function stated_window()
  -- A statement about a sliding window is always about the present window, which ends at the reset, and a span from now at the latest.
  if not u.boundaries then
    local rest = min(reset, u.span)
    local finish = now + rest
    return asked + max(0, rest - DOUBT) - u.span + 1, finish - u.span, finish, true
  end

  -- The present window is not the stated window if it began after the time asked, or still lasts more than twice as long as the reset. A cost that
  -- is booked for others must be over within MAX_PENALTY.
  local since, finish = window(u, now)
  return since, since, finish, asked >= since and finish - now <= min(2 * reset, MAX_PENALTY)
end

-- window_left returns how much is left of a window now. Own starts that the upstream has not counted are spent from left, so it takes their costs off
-- left. If the row has more than that, others have spent the difference: window_left books it, so that the cost is over when the window is, and sets
-- from and stop.
local function window_left()
  local since, spent_at, finish, is_present = stated_window()
  local spent, coming = between(since, finish)
  if not is_present or r.lost >= since then
    return u.n - spent -- by the row alone: what others spent is not known
  end

  -- The upstream has not counted own starts after counted_at. A cost that was booked for others is no own start: in a sliding window it lies behind
  -- spent_at by no more than DOUBT and the age.
  local counted_at = max(asked, u.boundaries and spent_at or spent_at + DOUBT + age)
  left = max(0, left - begun_since(counted_at))

  local others = u.n - spent - left
  if others <= 0 then
    return u.n - spent
  end

  -- The last starts that are booked before the end of the window may not fit any more.
  from, stop = last_of(r, coming - left, finish), finish
  spend(spent_at, others)
  return left
end

local believed = 0
if known ~= 0 and known ~= r.generation and known ~= r.g1 then
  -- The program knows an earlier row than this one, which the next booking repairs. Until then
  -- the program's own starts must not count as spent by others.
elseif u.tokens > 0 then
  believed = bucket_left()
elseif reset > 0 and has_windows(u) then
  believed = window_left()
end

save(r, queue.write(r))
book_anew(r, from, stop, ARGV[3])
return struct.pack('<ddddddd', DONE, now, believed, r.count, r.generation, from, stop)

-- part: set_used
-- Sets how much of a window is used, as an operator says; see docs/run/fleet.md. A copy of the call, which may come late, gets the answer of the
-- first: to set the count again would take out starts that were made in between.
--
-- KEYS  1 the budget
--       2 the record of this call: the answer without its first two numbers
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: how much is used; the rule
--       3 the channel of news
--
-- Result as of book.lua: DONE, now, 1 if there is a count to set, which a limit without windows and a budget without a row do not have, how
-- much was used before, and between which times starts must be booked anew; or NEEDS_BOUNDARIES, now, now.
-- News are those of book_anew, and of the line: see queue.lua.
--
-- needs: age (advance), anew (last_of, book_anew), entries (touch, add), frame (max, min, frame, now), offers (queue.free, queue.call,
--     queue.tell), queue (queue, queue.write), row (load, open, latest, save), rule (read_rule, window, has_windows)

local record = redis.call('GET', KEYS[2])
if record then
  return struct.pack('<dd', DONE, now) .. record
end

-- conclude keeps the answer without its first two numbers as the record of this call, and returns the whole answer.
local function conclude(counts, before, from, stop)
  local done = struct.pack('<dddd', counts, before, from, stop)
  redis.call('SET', KEYS[2], done, 'PX', SET_USED_MS)
  return struct.pack('<dd', DONE, now) .. done
end

local wanted
wanted, cursor = struct.unpack('<d', frame, cursor)
local u = read_rule(0)
local r = load(KEYS[1])
u.row = r
if not r.stored or not has_windows(u) then
  return conclude(0, 0, 0, 0)
end
local needs = advance(r, now, u)
if needs then
  return struct.pack('<ddd', needs, now, now)
end
open(r)

local since, finish = window(u, now)

-- is_used reports whether the entry at an index counts as used: as in status.lua.
local function is_used(i)
  return r.L[i] >= since and r.F[i] <= now
end

-- lower takes a cost out of the used starts, the oldest first: then the starts that remain count for longest. The cost is at most what is used.
local function lower(cost)
  touch(r, 1)
  local i = 1
  while cost > 0 do
    local taken = is_used(i) and min(cost, r.N[i]) or 0
    cost, r.total, r.N[i] = cost - taken, r.total - taken, r.N[i] - taken
    i = i + 1
  end
end

-- raise books a cost as starts of now. It also counts the cost in r.count, so that programs learn of the cost, and report it after a loss.
local function raise(cost)
  add(r, now, now, cost)
  r.count = r.count + cost
end

local used, coming = 0, 0
for i = 1, r.size do
  if is_used(i) then
    used = used + r.N[i]
  elseif r.F[i] > now and r.F[i] < finish then
    coming = coming + r.N[i]
  end
end

-- The starts to book anew are in [from, stop).
local from, stop = 0, 0
if wanted < used then
  -- Callers whose starts are to come may have sooner starts.
  lower(used - wanted)
  from, stop = now + 1, latest(r) + 1
elseif wanted > used then
  raise(wanted - used)
  from, stop = last_of(r, coming - (u.n - wanted), finish), finish
end

if wanted ~= used then
  -- Nobody knows whose starts were taken out, so from now on no start up to now is given back.
  r.frozen = max(r.frozen, now)
  queue.free(r)
  queue.call(r, u, now)
  queue.tell(r, ARGV[3])
  save(r, queue.write(r))
end
book_anew(r, from, stop, ARGV[3])
return conclude(1, used, from, stop)
