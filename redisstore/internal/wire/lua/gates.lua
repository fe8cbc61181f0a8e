-- Gates are the keys of unlimited budgets; see docs/unlimited.md. Before anything else is
-- done each is looked at. If one is shut, or the program knows that it should be, nothing
-- is done but to say so: the program makes the call again with its row among the others.
-- A call that was done before is answered below, whatever its gates are like now.

do
  local HEAD_OF_ROW, ROW_BEGINS = 38 * 8, '<' .. string.rep('d', 38) -- see row.lua
  local LINE = 1000000 -- a line is looked at again after so long

  -- left returns for how long a gate stays shut, 0 if it is open. A clock that was set
  -- back, and a line of which somebody may still wait, are for the other scripts to settle.
  local function left(key, now)
    local raw = redis.call('GETRANGE', key, 0, HEAD_OF_ROW - 1)
    if #raw < HEAD_OF_ROW then
      for i = 7, #ARGV, 2 do
        if ARGV[i] == key then
          return tonumber(ARGV[i + 1])
        end
      end
      return 0
    end
    local v = {struct.unpack(ROW_BEGINS, raw)}
    local seen, paused, opens, lined, probe = v[1], v[6], v[27], v[32], v[34]
    return math.max(paused + probe - now, opens - now, lined > 0 and LINE or 0, now < seen and 1 or 0)
  end

  local call, _, _, _, gates = struct.unpack('<ddddd', ARGV[2])
  if gates > 0 then
    local now = tonumber(ARGV[1])
    if not now then
      local t = redis.call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local shut = {}
    for i = #KEYS - gates + 1, #KEYS do
      local rest = left(KEYS[i], now)
      if rest > 0 then
        shut[#shut + 1] = struct.pack('<dd', i, rest)
      end
    end
    if #shut > 0 then
      local record = redis.call('GETRANGE', KEYS[1], 0, 7)
      if #record < 8 or struct.unpack('<d', record) < call then
        return struct.pack('<dd', 3, now) .. table.concat(shut)
      end
    end
  end
end
