-- The calls that busy budgets make: each caller has one sliding window, which has
-- room now, behind all that was booked before. What follows this file would do
-- the same, in several times as many steps; here they are straight. Whatever is
-- not as simple as that is left to it: nothing is written before all is known to
-- be simple.

local HOT_HEAD = '<dddddddddddddddddddddddddd'

-- hot_row returns the changed row of a key, and how to store it, or nil. told is
-- where the blob says what the program knows of it, u where its rule is, ask where
-- its callers are.
local function hot_row(key, blob, told, u, ask, now, seed, recorded)
  local index, kind, n, span, _, _, _, _, edges = struct.unpack('<ddddddddd', blob, u)
  local callers, mark, max_wait, least, spread, charges, rule, cost, reserve, more =
    struct.unpack('<dddddddddd', blob, ask)
  if kind ~= 1 or edges ~= 0 or charges ~= 1 or mark ~= 0 or max_wait < -1 or least ~= 0 or spread ~= 0 or more ~= 0
    or index ~= rule + 1 or KEYS[index] ~= key then
    return nil
  end
  local call, b, c, b1, n1 = struct.unpack('<ddddd', blob, told)
  local added, most, raw = callers * cost, n - reserve, redis.call('GETRANGE', key, 0, 207)
  if raw == '' then
    if b ~= 0 or added > most then
      return nil
    end
    return {callers = callers, whole = true, pushed = '', expires = now + span, now, 0, span, n, now + span, 0, 0, 0, 0,
      seed, added, 0, 0, 0, 0, 0, 0, added, 1, 0, now, now, now, now, added}
  end
  local r = {struct.unpack(HOT_HEAD, raw)}
  local seen, lost, birth, count, total, size, at, old, first, last =
    r[1], r[2], r[10], r[11], r[18], r[19], r[20], r[21], r[23], r[24]
  if now < seen or span ~= r[3] or lost > now - span or r[6] > now or r[9] ~= 0 or size == 0 or last >= now
    or call > recorded or (b ~= 0 and (b ~= birth or c > count or b1 ~= r[12] or n1 > r[13])) then
    return nil
  end
  r.callers, r.pushed, r.expires = callers, '', r[26]
  r[1], r[4], r[5], r[11] = now, now >= r[5] and n or math.max(r[4], n), math.max(r[5], now + span), count + added
  r[27] = nil -- where struct.unpack stopped
  if last + span <= now then
    if added > most then
      return nil
    end
    r.whole, r[2], r[18], r[19], r[20], r[25] = true, last, added, 1, 0, added
    r[21], r[22], r[23] = now, now, now
  elseif old + span <= now or total + added > most then
    return nil
  else
    r[18] = total + added
    if n > 128 and first >= now - now % math.ceil(span / 128) then
      r[25] = r[25] + added
      r[21] = size == 1 and now or old
    elseif at + 27 * size > 1600 then
      return nil
    else
      r.pushed = cmsgpack.pack(first - r[22], last - first, r[25])
      r[19], r[22], r[23], r[25] = size + 1, last, now, added
    end
  end
  r[24] = now
  return r
end

-- hot does a whole call, or returns nil.
local function hot(blob, now, idle)
  local call, seed, rules = struct.unpack('<ddd', blob)
  if rules ~= #KEYS - 1 or ARGV[3] then
    return nil
  end
  local record = redis.call('GET', KEYS[1])
  local recorded = record and struct.unpack('<d', record) or 0
  if recorded >= call then
    return nil
  end
  local told, here = {}, 25
  for i = 1, rules do
    told[i] = here
    here = here + 80 + 16 * struct.unpack('<d', blob, here + 72)
  end
  local asks = here + 72 * rules
  if #blob ~= asks + 80 * rules - 1 then
    return nil
  end
  local rows = {}
  for i = 1, rules do
    local r = hot_row(KEYS[i + 1], blob, told[i], here + 72 * (i - 1), asks + 80 * (i - 1), now, seed, recorded)
    if not r then
      return nil
    end
    rows[i] = r
  end
  local out = {}
  for i = 1, rules do
    local r, key = rows[i], KEYS[i + 1]
    local renew = r.whole or now + r[3] > r.expires
    r[26] = renew and now + r[3] + idle or r.expires
    local ms = renew and string.format('%.0f', math.ceil((r[26] - now) / 1000))
    local head = struct.pack(HOT_HEAD, unpack(r, 1, 26))
    if r.whole then
      redis.call('SET', key, head, 'PX', ms)
    else
      redis.call('SETRANGE', key, 0, head)
      if r.pushed ~= '' then
        redis.call('APPEND', key, r.pushed)
      end
      if renew then
        redis.call('PEXPIRE', key, ms)
      end
    end
    out[i] = struct.pack('<ddddd', r.callers, 1, now, 0, 0)
    out[rules + i] = struct.pack('<dddddddddd', r[10], r[11], r[12], r[13], r[14], r[15], r[16], r[17], r[18], now)
  end
  local done = table.concat(out)
  redis.call('SET', KEYS[1], struct.pack('<d', call) .. done, 'EX', 60)
  return struct.pack('<dd', 0, now) .. done
end

do
  local now, idle = tonumber(ARGV[1]), 61000000 -- see clock
  if not now then
    local t = redis.call('TIME')
    now, idle = t[1] * 1000000 + t[2], 1000000
  end
  local done = hot(ARGV[2], now, idle)
  if done then
    return done
  end
end
