-- Sets how much of a window is used, as an operator says; see docs/fleet.md.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: how much is used; the rule
--       3 the channel of news
--
-- Result as of book.lua: 0, now, 1 if there is a count to set, which a limit without windows
-- and a budget without a row do not have, how much was used before, and between which times
-- starts must be booked anew; or NEEDS_BOUNDARIES, now, now.
-- News are those of anew.lua, and of the line: see offers.lua.
--
-- needs: age (advance), anew (last_of, book_anew), entries (touch, add), frame (max, min, frame, now), offers (queue.free, queue.call,
--     queue.tell), queue (queue, queue.write), row (load, open, latest, save), rule (read_rule, window, has_windows)

local wanted
wanted, cursor = struct.unpack('<d', frame, cursor)
local u = read_rule(0)
local r = load(KEYS[1])
u.row = r
if not r.stored or not has_windows(u) then
  return struct.pack('<dddddd', DONE, now, 0, 0, 0, 0)
end
local needs = advance(r, now, u)
if needs then
  return struct.pack('<ddd', needs, now, now)
end
open(r)

local since, finish = window(u, now)

-- is_used reports whether an entry counts as used: as in status.lua.
local function is_used(i)
  return r.L[i] >= since and r.F[i] <= now
end

-- lower takes so much out of what is used, the oldest first: what remains counts the longest.
local function lower(cost)
  local i = 1
  touch(r, i)
  while cost > 0 do
    local part = is_used(i) and min(cost, r.N[i]) or 0
    cost, r.total, r.N[i] = cost - part, r.total - part, r.N[i] - part
    i = i + 1
  end
end

-- raise counts so much more, as starts of now.
local function raise(cost)
  add(r, now, now, cost)
  r.count = r.count + cost -- programs learn it with the count, and tell it after a loss
end

local used, coming = 0, 0
for i = 1, r.size do
  if is_used(i) then
    used = used + r.N[i]
  elseif r.F[i] > now and r.F[i] < finish then
    coming = coming + r.N[i]
  end
end

local from, stop = 0, 0
if wanted < used then
  lower(used - wanted)
  from, stop = now + 1, latest(r) + 1 -- those that wait for a start may have a sooner one
elseif wanted > used then
  raise(wanted - used)
  from, stop = last_of(r, coming - (u.n - wanted), finish), finish
end
if wanted ~= used then
  -- Whose start was taken out is not known: one that is given back takes nothing out.
  r.frozen = max(r.frozen, now)
  queue.free(r)
  queue.call(r, u, now)
  queue.tell(r, ARGV[3])
  save(r, queue.write(r))
end
book_anew(r, from, stop, ARGV[3])
return struct.pack('<dddddd', DONE, now, 1, used, from, stop)
