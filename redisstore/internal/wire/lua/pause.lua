-- Closes one budget for a time, or opens it again. Of several ends the latest counts. All programs that listen are told.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds; 1 to open it instead; when the call should be here, or 0; how long ago the
--         request was sent that was refused, or 0; how long its answer took; the mark of its start, by which the row learns, or 0; the rule
--       3 the channel of such news
--
-- Result as of book.lua: DONE, now, the end of the pause, or 0, whether that is new, and the ceiling before and after, in thousandths; or
-- NEEDS_BOUNDARIES, now, now; or NEEDS_TIME, now, now if the call is too late for the length to be true.
-- News are the end, how long that is from now, and the key.
--
-- needs: age (is_late, advance), entries (drop), frame (max, frame, now), offers (queue.free), penalty (penalty.forgive, penalty.shut,
--     ceiling.forget, ceiling.learn), queue (queue, queue.write), row (penalty, ceiling, note, load, open, save), rule (read_rule), told
--     (note.forget)

local length, lift, due, refused, took, mark
length, lift, due, refused, took, mark, cursor = struct.unpack('<dddddd', frame, cursor)
local r = load(KEYS[1])
local u = read_rule(0)
local needs = is_late(now, due) and NEEDS_TIME or advance(r, now, u)
if needs then
  return struct.pack('<ddd', needs, now, now)
end

local old, from, to = r.paused, 0, 0
if mark > 0 then
  from, to = ceiling.learn(r, mark, u, now)
end
if lift == 1 then
  r.paused = 0
  penalty.forgive(r)
  ceiling.forget(r)
  note.forget(r)
  queue.free(r)
  if u.peak == 0 and r.most == 0 then -- the probe is forgotten, unless a program has a number for the limit and counts
    open(r)
    drop(r, r.size)
  end

  -- The row stays until the old end, to know better than a program that did not hear that the pause was lifted: such a program would tell an
  -- empty Redis of the pause.
  r.till = max(r.till, old)
elseif length > 0 then
  r.paused = now + penalty.shut(r, old - now, length, refused, took)
end

if r.stored or r.paused > 0 or r.top > 0 then
  save(r, queue.write(r))
end
local changed = r.paused > old or lift == 1 and old > now
if changed then
  -- A program that may not publish, or is not heard, does no harm: sleepers that were not
  -- told that they can hear ask before they start.
  redis.pcall('PUBLISH', ARGV[3], string.format('%.0f %.0f %s', r.paused, max(0, r.paused - now), KEYS[1]))
end
return struct.pack('<dddddd', DONE, now, r.paused, changed and 1 or 0, from, to)

-- part: slots_pause
-- Closes one budget of requests in flight for a time, or opens it again. Of several ends the latest counts. All programs that listen are told.
--
-- KEYS  1 the budget of slots
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds; 1 to open it instead; when the call should be here, or 0; how long ago the
--         request was sent that was refused, or 0; how long its answer took; and the rest, for budgets that are no slots
--       3 the channel of such news
--
-- Result and news as above.
--
-- needs: age (is_late), frame (max, frame, now), leases (load_slots, check_generation, save_slots), penalty (penalty.forgive, penalty.shut),
--     row (penalty)

local length, lift, due, refused, took = struct.unpack('<ddddd', frame)
if is_late(now, due) then
  return struct.pack('<ddd', NEEDS_TIME, now, now)
end

local slots = load_slots(KEYS[1], now)
check_generation(slots, 0, 0, now)
local old = slots.pause
if lift == 1 then
  slots.ends = 0
  penalty.forgive(slots)
elseif length > 0 then
  slots.ends = penalty.shut(slots, slots.ends, length, refused, took)
end
slots.pause = max(0, slots.ends)
save_slots(slots)

local changed = slots.pause > old or lift == 1 and old > 0
if changed then
  redis.pcall('PUBLISH', ARGV[3], string.format('%.0f %.0f %s', slots.pause > 0 and now + slots.pause or 0, slots.pause, KEYS[1]))
end
return struct.pack('<dddd', DONE, now, slots.pause > 0 and now + slots.pause or 0, changed and 1 or 0)

-- part: closed
-- Says until when budgets are closed. It changes nothing.
--
-- KEYS  the budgets
-- ARGV  1 the time in microseconds, or '' for the server's clock
--
-- Result as of book.lua: DONE, now, then for each budget the end of its pause, or 0, and how long that is from now.
--
-- needs: frame (now), leases (load_slots), row (load)

-- row_pause returns when a row was seen last, and the end of its pause.
local function row_pause(key)
  local r = load(key)
  return r.stored and r.seen or now, r.paused
end

-- slots_pause returns the same for a budget of slots.
local function slots_pause(key)
  local slots = load_slots(key, now)
  return now, slots.pause > 0 and now + slots.pause or 0
end

local out = {struct.pack('<dd', DONE, now)}
for i, key in ipairs(KEYS) do
  local has_slots = key:sub(-7) == ':flight' -- no row's key ends like that
  local seen, paused = (has_slots and slots_pause or row_pause)(key)
  -- A clock that was set back has not moved the row yet.
  out[i + 1] = struct.pack('<dd', paused, math.max(0, paused - math.max(now, seen)))
end
return table.concat(out)
