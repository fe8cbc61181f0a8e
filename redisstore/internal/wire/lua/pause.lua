-- Closes one budget for a while, or opens it again. Of several ends the latest
-- counts. All programs that listen are told.
--
-- KEYS  1 the budget
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds; 1 to open it instead;
--         when the call should be here, or 0; how long ago the request was sent that was
--         refused, or 0; how long that took; the mark of its start, for what that teaches, or 0;
--         the rule
--       3 the channel of such news
--
-- Result as of book.lua: 0, now, the end of the pause, or 0, whether that
-- is new, and the ceiling before and after, in thousandths; or NEEDS_BOUNDARIES, now, now; or NEEDS_TIME, now, now if the call is so late that the length is not
-- true any more.
-- News are the end, how long that is from now, and the key.
--
-- needs: age (is_late, advance), ceiling (ceiling.forget, ceiling.learn), entries (drop), frame (max, frame, now), offers (queue.free),
--     penalty (penalty.forgive, penalty.shut), queue (queue, queue.write), row (penalty, ceiling, load, open, save), rule (read_rule)

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
  queue.free(r)
  if u.peak == 0 and r.most == 0 then -- unless a program has a number for it and counts, its probe is forgotten
    open(r)
    drop(r, r.size)
  end
  -- The row stays for as long as the pause would have lasted, to know better than a program that did
  -- not hear that the pause was lifted: such a program would tell an empty Redis of the pause.
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
