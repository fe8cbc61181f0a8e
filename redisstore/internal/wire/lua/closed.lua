-- Says until when budgets are closed. It changes nothing.
--
-- KEYS  the budgets
-- ARGV  1 the time in microseconds, or '' for the server's clock
--
-- Result as of book.lua: 0, now, then for each budget the end of its pause, or 0,
-- and how long that is from now.
--
-- needs: frame (now), leases (load_slots), row (load)

-- row_pause returns when a row was seen last, and the end of its pause.
local function row_pause(key)
  local r = load(key)
  return r.stored and r.seen or now, r.paused
end

-- slots_pause is the same for a budget of slots.
local function slots_pause(key)
  local slots = load_slots(key, now)
  return now, slots.pause > 0 and now + slots.pause or 0
end

local out = {struct.pack('<dd', DONE, now)}
for i, key in ipairs(KEYS) do
  local has_slots = key:sub(-7) == ':flight' -- no row's key ends so
  local seen, paused = (has_slots and slots_pause or row_pause)(key)
  -- A clock that was set back has not moved the row yet.
  out[i + 1] = struct.pack('<dd', paused, math.max(0, paused - math.max(now, seen)))
end
return table.concat(out)
