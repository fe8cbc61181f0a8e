-- Says until when budgets are closed. It changes nothing.
--
-- KEYS  the budgets
-- ARGV  1 the time in microseconds, or '' for the server's clock
--
-- Result as of book.lua: 0, now, then for each budget the end of its pause, or 0,
-- and how long that is from now.

local SEEN_AND_REST = '<dddddd' -- the head of a row up to paused: see row.lua

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

-- row_pause returns when a row was seen last, and the end of its pause.
local function row_pause(key)
  local head = redis.call('GETRANGE', key, 0, 47)
  if head == '' then
    return now, 0
  end
  local seen, _, _, _, _, paused = struct.unpack(SEEN_AND_REST, head)
  return seen, paused
end

-- flight_pause is the same for a flight: see flight.lua.
local function flight_pause(key)
  local raw = redis.call('GET', key)
  if not raw then
    return now, 0
  end
  local v = cmsgpack.unpack(raw)
  return v[3], v[5] > 0 and v[3] + v[5] or 0
end

local out = {struct.pack('<dd', 0, now)}
for i, key in ipairs(KEYS) do
  local flies = key:sub(-7) == ':flight' -- no row's key ends so
  local seen, paused = (flies and flight_pause or row_pause)(key)
  -- A clock that was set back has not moved the row yet.
  out[i + 1] = struct.pack('<dd', paused, math.max(0, paused - math.max(now, seen)))
end
return table.concat(out)
