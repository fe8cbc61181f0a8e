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
local out = {struct.pack('<dd', 0, now)}
for i, key in ipairs(KEYS) do
  local head = redis.call('GETRANGE', key, 0, 47)
  local seen, paused, _ = now, 0, nil
  if head ~= '' then
    seen, _, _, _, _, paused = struct.unpack(SEEN_AND_REST, head)
  end
  -- A clock that was set back has not moved the row yet.
  out[i + 1] = struct.pack('<dd', paused, math.max(0, paused - math.max(now, seen)))
end
return table.concat(out)
