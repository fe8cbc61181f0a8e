-- Closes one budget of requests in flight for a while, or opens it again. Of
-- several ends the latest counts. All programs that listen are told.
--
-- KEYS  1 the budget of slots
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: for how long, in microseconds; 1 to open it instead;
--         when the call should be here, or 0; how long ago the request was sent that was
--         refused, or 0; how long that took; and more that is for pause.lua
--       3 the channel of such news
--
-- Result and news as of pause.lua.
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
