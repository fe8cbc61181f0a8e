-- What the long way of a call answers with, and what it knows besides the frame.
--
-- needs: book (gate_count, out), frame (max, now), row (stored, read)
-- defines: closed, FIVE, answer, LINE_AGAIN, shut_for

-- closed has the budgets that the program knows to be closed, and for how long.
local closed = {}
for i = 7, #ARGV, 2 do
  closed[ARGV[i]] = tonumber(ARGV[i + 1])
end

local FIVE = '<ddddd'

local function answer(format, ...)
  out[#out + 1] = struct.pack(format, ...)
end

-- Gates are the keys of unlimited budgets; see docs/internals/unlimited.md. Before anything else is
-- done each is looked at. If one is shut, or the program knows that it should be, nothing
-- is done but to say so: the program makes the call again with its row among the others.

local LINE_AGAIN = 1000000 -- a gate with a line is looked at again after so long

-- shut_for returns for how long a gate stays shut, 0 if it is open. A clock that was set
-- back, and a line in which callers may still wait, are for the other scripts to settle.
local function shut_for(key)
  local head = stored(key)
  if not head then
    return closed[key] or 0
  end
  local r = read(key, head)
  return max(r.paused + r.probe - now, r.opens - now, r.lined > 0 and LINE_AGAIN or 0, now < r.seen and 1 or 0)
end

for i = #KEYS - gate_count + 1, #KEYS do
  local left = shut_for(KEYS[i])
  if left > 0 then
    answer('<dd', i, left)
  end
end
if #out > 1 then
  return struct.pack('<dd', SHUT, now) .. table.concat(out, '', 2)
end
