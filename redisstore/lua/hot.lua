-- The booking that nearly all calls of a busy budget are: equal callers of one
-- sliding window that has room for them now, within the slot of the last start.
-- What follows this file would do the same, in several times as many steps; here
-- they are straight. Whatever is not as simple as that is left to it.

do
  local now = ARGV[1]
  if now == '' then
    local t = redis.call('TIME')
    now = t[1] * 1000000 + t[2]
  else
    now = tonumber(now)
  end
  local blob = ARGV[2]
  local call, _, rules, told, b, count, b1, n1, _, _, _, _, samples = struct.unpack('<ddddddddddddd', blob)
  local here = 105 + 16 * samples
  if rules == 1 and #KEYS == 2 and #blob == here + 19 * 8 - 1 then
    local _, kind, n, span, _, _, _, _, _, callers, mark, max_wait, least, spread, _, _, cost, reserve, shadow =
      struct.unpack('<ddddddddddddddddddd', blob, here)
    local raw = kind == 1 and n > 128 and mark == 0 and max_wait >= -1 and least == 0 and spread == 0
      and shadow == 0 and redis.call('GETRANGE', KEYS[2], 0, 207)
    if raw and raw ~= '' then
      local f = '<dddddddddddddddddddddddddd'
      local seen, lost, old_span, most, till, paused, frozen, level, unit, birth, counted,
        r1, m1, r2, m2, r3, m3, total, size, at, old, before, first, last, rest, expires = struct.unpack(f, raw)
      local added, slot = callers * cost, math.ceil(span / 128)
      if now >= seen and span == old_span and lost <= now - span and old + span > now and size > 0
        and paused <= now and last < now and first >= now - now % slot and unit == 0
        and total + added <= n - reserve
        and (b == 0 or (b == birth and count <= counted and b1 == r1 and n1 <= m1)) then
        local record = redis.call('GET', KEYS[1])
        local recorded = record and struct.unpack('<d', record) or 0
        if recorded < call and recorded >= told then
          most = now >= till and n or math.max(most, n)
          total, rest, counted = total + added, rest + added, counted + added
          if size == 1 then
            old = now
          end
          if now + span > expires then
            expires = now + span + 1000000
            redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.ceil((expires - now) / 1000)))
          end
          redis.call('SETRANGE', KEYS[2], 0, struct.pack(f, now, lost, span, most, math.max(till, now + span), paused,
            frozen, level, unit, birth, counted, r1, m1, r2, m2, r3, m3, total, size, at, old, before, first, now, rest,
            expires))
          local done = struct.pack('<ddddddddddddddd', callers, 1, now, 0, 0,
            birth, counted, r1, m1, r2, m2, r3, m3, total, now)
          redis.call('SET', KEYS[1], struct.pack('<d', call) .. done, 'EX', 60)
          return struct.pack('<dd', 0, now) .. done
        end
      end
    end
  end
end
