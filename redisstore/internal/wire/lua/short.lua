-- The short way of a call: starts now in sliding windows, and in nothing else, that have
-- room behind all that was booked before. That is what busy budgets are asked for. What
-- follows this file would do the same, in several times as many steps; whatever is not as
-- simple is left to it. Nothing is changed before all is known to be simple.
--
-- A table with names costs as much as all the rest, so here a head is a list of numbers:
-- ROW_SEEN … ROW_LEARNS are where they stand.

local heads, spans, limits, added = {}, {}, {}, {} -- of each budget
local at = cursor

-- read_head reads what the program knows of a budget, see history.lua, and the head of its
-- row. It returns false if one of them needs more than this file does.
local function read_head(i)
  local from, ago, told, generation, count, g1, n1, _, _, _, _, size, samples = struct.unpack('<dddddddddddd', frame, at)
  at = samples + 16 * size + 8
  local head = stored(KEYS[i])
  if not head then
    return generation == 0
  end
  local v = {struct.unpack(HEAD, head)}
  heads[i] = v
  return from <= recorded and now >= v[ROW_SEEN] and (ago < 0 or now - told - ago <= STALL + ago / STEADY)
    and (generation == 0 or generation == v[ROW_GENERATION] and count <= v[ROW_COUNT] and g1 == v[ROW_G1] and n1 <= v[ROW_N1])
end

-- is_empty reports whether no start of a row counts any more.
local function is_empty(v, span)
  return not v or v[ROW_LAST] + span <= now
end

-- joins reports whether a start now shares the last entry of a row.
local function joins(v, i)
  return limits[i] > WINDOW_PARTS and v[ROW_FIRST] >= now - now % ceil(spans[i] / WINDOW_PARTS)
end

-- read_span reads the rule of a budget, see rule.lua. It returns false if that is no sliding
-- window, or something else has to be done with the row than to append to it. See age.lua,
-- ceiling.lua, search.lua and queue.lua.
local function read_span(i)
  local key, kind, n, span, _, _, _, _, _, boundaries
  key, kind, n, span, _, _, _, _, _, boundaries, at = struct.unpack('<dddddddddd', frame, at)
  local v = heads[i]
  spans[i], limits[i], added[i] = span, n, 0
  if key ~= i or kind ~= SLIDING_WINDOW or boundaries > 0 then
    return false
  end
  return not v or v[ROW_SPAN] == span and v[ROW_LOST] <= now - span and v[ROW_UNIT] == 0 and v[ROW_SIZE] > 0 and v[ROW_LAST] < now
    and v[ROW_OPENS] <= now and v[ROW_LINED] == 0 and v[ROW_TOP] == 0
    and (v[ROW_PAUSED] == 0 or v[ROW_PAUSED] + max(min(#STEPS * span, v[ROW_BAN]), v[ROW_PROBE]) <= now)
    and (is_empty(v, span) or v[ROW_OLD] + span > now and (joins(v, i) or v[ROW_AT] + TRIPLE * v[ROW_SIZE] <= MAX_APPENDED))
end

-- has_room reports whether all callers can start now. It adds up what they cost.
local function has_room()
  while at <= #frame do
    local kind, callers, informed, booked, arrival, _, least, spread, _, _, first, tickets, count
    kind, callers, informed, booked, arrival, _, least, spread, _, _, first, tickets, count, at =
      struct.unpack('<ddddddddddddd', frame, at)
    if kind ~= RESERVE or informed + booked + arrival + least + spread + first + tickets > 0 then
      return false
    end
    for _ = 1, count do
      local index, cost, reserve, shadow
      index, cost, reserve, shadow, at = struct.unpack('<dddd', frame, at)
      local i = index + 1 -- slots are below 0
      if index < 1 or shadow ~= 0 then
        return false
      end
      added[i] = added[i] + callers * cost
      if added[i] + (is_empty(heads[i], spans[i]) and 0 or heads[i][ROW_TOTAL]) > limits[i] - reserve then
        return false
      end
    end
    answer(FIVE, callers, BOOKED, now, 0, 0)
  end
  return true
end

-- append counts the starts in a row, as entries.lua and row.lua do, and answers for it.
local function append(i)
  local key, v, span, n, pushed = KEYS[i], heads[i], spans[i], added[i], nil
  local anew = is_empty(v, span)
  v = v or {struct.unpack(HEAD, string.rep('\0', HEAD_SIZE))}
  if anew then
    v[ROW_LOST], v[ROW_TOTAL], v[ROW_SIZE], v[ROW_AT], v[ROW_OLD], v[ROW_BEFORE], v[ROW_FIRST], v[ROW_N] = max(v[ROW_LOST], v[ROW_LAST]), n, 1, 0, now, now, now, n
  else
    v[ROW_TOTAL] = v[ROW_TOTAL] + n
    if joins(v, i) then
      v[ROW_N], v[ROW_OLD] = v[ROW_N] + n, v[ROW_SIZE] == 1 and now or v[ROW_OLD]
    else
      pushed = cmsgpack.pack(v[ROW_FIRST] - v[ROW_BEFORE], v[ROW_LAST] - v[ROW_FIRST], v[ROW_N])
      v[ROW_SIZE], v[ROW_BEFORE], v[ROW_FIRST], v[ROW_N] = v[ROW_SIZE] + 1, v[ROW_LAST], now, n
    end
  end
  v[ROW_MOST] = now >= v[ROW_TILL] and limits[i] or max(v[ROW_MOST], limits[i])
  v[ROW_SEEN], v[ROW_LAST], v[ROW_SPAN], v[ROW_TILL], v[ROW_COUNT] = now, now, span, max(v[ROW_TILL], now + span), v[ROW_COUNT] + n
  v[ROW_GENERATION] = v[ROW_GENERATION] == 0 and seed or v[ROW_GENERATION]
  local ms
  if anew or now + span > v[ROW_EXPIRES] then
    v[ROW_EXPIRES] = now + span + IDLE
    ms = string.format('%.0f', ceil((v[ROW_EXPIRES] - now) / 1000))
  end
  local head = struct.pack(HEAD, unpack(v))
  if anew then
    redis.call('SET', key, head, 'PX', ms)
  else
    redis.call('SETRANGE', key, '0', head)
    if pushed then
      redis.call('APPEND', key, pushed)
    end
    if ms then
      redis.call('PEXPIRE', key, ms)
    end
  end
  answer('<dddddddddd', v[ROW_GENERATION], v[ROW_COUNT], v[ROW_G1], v[ROW_N1], v[ROW_G2], v[ROW_N2], v[ROW_G3], v[ROW_N3], v[ROW_TOTAL], now)
  out[#out + 1] = NO_LINE
end

local simple = not ARGV[4] and rule_count == budgets - 1
for i = 2, simple and budgets or 0 do
  simple = simple and read_head(i)
end
for i = 2, simple and budgets or 0 do
  simple = simple and read_span(i)
end
if simple and has_room() then
  for i = 2, budgets do
    append(i)
  end
  return finish()
end
out = {}
