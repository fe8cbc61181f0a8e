-- The calls that busy budgets make: each caller has one sliding window, which has
-- room now, behind all that was booked before. What follows this file would do
-- the same, in several times as many steps; here they are straight. Whatever is
-- not as simple as that is left to it: nothing is written before all is known to
-- be simple.

local HOT_HEAD = '<' .. string.rep('d', 38)
local NO_LINE = string.rep('\0', 15 * 8) -- see book.lua
local max, min, ceil = math.max, math.min, math.ceil

-- hot_row returns the changed head of a key's row and an entry to append to it, or
-- nil; whether the row is nothing else; when it expires, in ms, if that changes;
-- what to answer; and the call that the program knows the key from. The blob says at told what the program knows of the key, at
-- rule what its rule is, and at ask how many callers want what.
local function hot_row(key, blob, told, rule, ask, now, seed, idle)
  local index, kind, n, span, _, _, _, _, _, edges = struct.unpack('<dddddddddd', blob, rule)
  local callers, mark, max_wait, least, spread, _, _, goes_first, tickets, charges, use, cost, reserve, more =
    struct.unpack('<dddddddddddddd', blob, ask)
  if kind ~= 1 or edges ~= 0 or charges ~= 1 or callers < 0 or mark ~= 0 or max_wait < -1 or least ~= 0 or spread ~= 0 or more ~= 0 or goes_first ~= 0 or tickets ~= 0
    or index ~= use + 1 or KEYS[index] ~= key then
    return nil
  end
  local call, ago, heard, b, c, s1, s2 = struct.unpack('<ddddddd', blob, told)
  local added, room, raw = callers * cost, n - reserve, redis.call('GETRANGE', key, 0, 303)
  local seen, lost, old_span, most, till, paused, frozen, level, unit, birth, count, b1, n1, b2, n2, b3, n3,
    total, size, at, old, before, first, last, rest, expires, opens, t1, t2, t3, pin, lined, ban, probe, times, top, fell, learns
  local whole, pushed, ms = false, '', nil
  if raw ~= '' and #raw < 304 then
    return nil
  elseif raw == '' then
    if b ~= 0 or added > room then
      return nil
    end
    lost, till, paused, frozen, level, unit, birth, count, b1, n1, b2, n2, b3, n3, last, expires, opens, t1, t2, t3, pin,
      ban, probe, times, fell, learns =
      0, 0, 0, 0, 0, 0, seed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    whole = true
  else
    seen, lost, old_span, most, till, paused, frozen, level, unit, birth, count, b1, n1, b2, n2, b3, n3,
      total, size, at, old, before, first, last, rest, expires, opens, t1, t2, t3, pin, lined, ban, probe, times,
      top, fell, learns = struct.unpack(HOT_HEAD, raw)
    if now < seen or (ago >= 0 and now - heard - ago > 50000 + ago / 1000) -- the clock was set: see age.lua
      or span ~= old_span or lost > now - span or unit ~= 0 or size == 0 or last >= now or opens > now or lined ~= 0 or top ~= 0
      or (paused > 0 and paused + max(min(2 * span, ban), probe) > now) -- closed, or a probe or a slow start: STEPS of row.lua
      or (b ~= 0 and (b ~= birth or c > count or s1 ~= b1 or s2 > n1)) then
      return nil
    end
    whole = last + span <= now
  end
  if whole then
    if added > room then
      return nil
    end
    lost = max(lost, last)
    total, size, at, old, before, first, rest = added, 1, 0, now, now, now, added
  elseif old + span <= now or total + added > room then
    return nil
  else
    total = total + added
    if n > 128 and first >= now - now % ceil(span / 128) then
      rest = rest + added
      if size == 1 then
        old = now
      end
    elseif at + 27 * size > 1600 then
      return nil
    else
      pushed = cmsgpack.pack(first - before, last - first, rest)
      size, before, first, rest = size + 1, last, now, added
    end
  end
  most = now >= till and n or max(most, n)
  count = count + added
  if whole or now + span > expires then
    expires = now + span + idle
    ms = string.format('%.0f', ceil((expires - now) / 1000))
  end
  return struct.pack(HOT_HEAD, now, lost, span, most, max(till, now + span), paused, frozen, level, unit, birth, count,
    b1, n1, b2, n2, b3, n3, total, size, at, old, before, first, now, rest, expires, opens, t1, t2, t3, pin, 0, ban, probe, times,
    0, fell, learns), pushed, whole, ms,
    struct.pack('<dddddddddd', birth, count, b1, n1, b2, n2, b3, n3, total, now) .. NO_LINE,
    struct.pack('<ddddd', callers, 1, now, 0, 0), call
end

-- hot does a whole call, or returns nil.
local function hot(blob, now, idle)
  local call, seed, rules, repeated, gates = struct.unpack('<ddddd', blob)
  if rules ~= #KEYS - 1 - gates or ARGV[4] then
    return nil
  end
  local told, rule = {}, 41
  for i = 1, rules do
    told[i] = rule
    rule = rule + 104 + 16 * struct.unpack('<d', blob, rule + 88)
  end
  local ask = rule + 80 * rules
  local head, pushed, whole, ms, out, newest = {}, {}, {}, {}, {}, 0
  if rules == 0 and #blob == ask + 79 then -- all that it has are gates, which are open
    local callers, mark, max_wait, least, _, _, _, _, tickets = struct.unpack('<ddddddddd', blob, ask)
    if callers < 0 or mark ~= 0 or max_wait < -1 or least ~= 0 or tickets ~= 0 then
      return nil
    end
    out[1] = struct.pack('<ddddd', callers, 1, now, 0, 0)
  elseif rules == 0 or #blob ~= ask + 112 * rules - 1 then
    return nil
  end
  for i = 1, rules do
    local last
    head[i], pushed[i], whole[i], ms[i], out[rules + i], out[i], last = hot_row(KEYS[i + 1], blob, told[i],
      rule + 80 * (i - 1), ask + 112 * (i - 1), now, seed, idle)
    if not head[i] then
      return nil
    end
    newest = max(newest, last)
  end
  local done = table.concat(out)
  local record = redis.call('SET', KEYS[1], struct.pack('<ddd', call, now, repeated) .. done, 'EX', 60, 'GET')
  local recorded = record and struct.unpack('<d', record) or 0
  if recorded >= call or recorded < newest then
    if record then
      redis.call('SET', KEYS[1], record, 'EX', 60)
    else
      redis.call('DEL', KEYS[1])
    end
    return nil
  end
  for i = 1, rules do
    local key = KEYS[i + 1]
    if whole[i] then
      redis.call('SET', key, head[i], 'PX', ms[i])
    else
      redis.call('SETRANGE', key, 0, head[i])
      if pushed[i] ~= '' then
        redis.call('APPEND', key, pushed[i])
      end
      if ms[i] then
        redis.call('PEXPIRE', key, ms[i])
      end
    end
  end
  return struct.pack('<dddd', 0, now, 0, 0) .. done
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
