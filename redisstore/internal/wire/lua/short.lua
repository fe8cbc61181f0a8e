-- The short way of a call: the call books starts now, in sliding windows alone, and all of them have room behind all that was booked before. Most
-- calls for busy budgets are like that. The files behind this one would do the same in several times as many steps; a call that is not as simple
-- is left to them. This file writes nothing before the whole call is known to be simple.
--
-- Lua makes each function of a script anew in each call. So this file comes before the others, and has few functions. A table with names would
-- cost as much as all the rest, so here the head of a row is a list of numbers, v: ROW_SEEN … ROW_LEARNS are their indexes, and row.lua says
-- what each means.
--
-- needs: book (seed, rule_count, budgets, recorded, out, finish), frame (max, min, ceil, IDLE, frame, cursor, now)
-- defines: texts, earlier

local texts = {} -- the stored heads of rows that were read, by the index of the row's key
local earlier = {} -- the stored names of the generations before the last two of the same rows, by the same index
do
-- read_head reads the program's history of the budget of a key, at a place in the frame, see repair.lua, and the head of the budget's row. It
-- notes the head in texts[i], and the stored names of generations in earlier[i]. It returns the head as a list, or nil if the row has a line, needs
-- a repair or is no row; and where the history of the next budget begins.
local function read_head(key, at, i)
  local from, ago, clock, told, generation, count, g1, n1, _, _, more, list = struct.unpack('<ddddddddddd', frame, at)
  local head = redis.call('GETRANGE', key, '0', HEAD_END)

  -- Only the end of this history matters here: the rest is for a repair.
  local size, samples = struct.unpack('<d', frame, list + PAIR * more)
  at, earlier[i] = samples + PAIR * size + 8, ''

  -- A row without a head is new, unless the program knows starts of it.
  if #head ~= HEAD_SIZE then
    return generation == 0 and {struct.unpack(HEAD, string.rep('\0', HEAD_SIZE))} or nil, at
  end
  texts[i] = head

  -- The long way serves lines.
  if struct.unpack('<d', head, 8 * ROW_LINED - 7) ~= 0 then
    return nil, at
  end

  -- known says that the clock was not set, and that the row has all starts that the program knows.
  local v = {struct.unpack(HEAD, head)}
  local known = from <= recorded and now >= v[ROW_SEEN] and (clock == ELAPSED_UNKNOWN or now - told - ago <= STALL + ago / STEADY)
    and (generation == 0 or generation == v[ROW_GENERATION] and count <= v[ROW_COUNT] and g1 == v[ROW_G1] and n1 <= v[ROW_N1])

  local named = v[ROW_NAMED]
  if named > 0 and named <= MAX_NAMED then
    earlier[i] = redis.call('GETRANGE', key, HEAD_SIZE, HEAD_SIZE + named - 1)
  end
  return known and #earlier[i] == named and v or nil, at
end

-- note_ends returns when the note of a row with the head v is over: see told.lua.
local function note_ends(v)
  return v[ROW_HEARD] + v[ROW_EACH] + NOTE_KEPT
end

-- is_plain reports whether a booking now under a sliding window only appends a start to a row with the head v: no history is missing, no other
-- limit and no ceiling counts, nothing is to come, and no penalty or slow start lasts. See age.lua, penalty.lua, search.lua and line.lua.
local function is_plain(v, span)
  return (v[ROW_SPAN] == span or v[ROW_SEEN] == 0) and v[ROW_LOST] <= now - span and v[ROW_UNIT] == 0 and v[ROW_FIRST] <= now
    and v[ROW_OPENS] <= now and v[ROW_TOP] == 0 and max(v[ROW_T1], v[ROW_T2], v[ROW_T3]) <= now
    and (v[ROW_PAUSED] == 0 or v[ROW_PAUSED] + max(min(SLOW_STEPS * span, v[ROW_BAN]), v[ROW_PROBE]) <= now)
end

-- drop takes the entries of a row that are over off the head v. Some entries are not over. Stored text that is no entries is an error.
local function drop(key, v, span)
  local raw, at = redis.call('GETRANGE', key, HEAD_SIZE + v[ROW_NAMED] + v[ROW_AT], -1), 0
  repeat
    local stop, _, _, n = cmsgpack.unpack_limit(raw, 3, at)

    -- unpack_limit returns a negative place at the end of the text.
    at = stop < 0 and #raw or stop
    v[ROW_LOST], v[ROW_TOTAL], v[ROW_SIZE] = max(v[ROW_LOST], v[ROW_OLD]), v[ROW_TOTAL] - n, v[ROW_SIZE] - 1
    if v[ROW_SIZE] <= 1 then
      v[ROW_OLD] = v[ROW_LAST]
    else
      -- Entries are stored as distances, so the end of the next one follows from the end of this.
      local _, gap, width = cmsgpack.unpack_limit(raw, 2, at)
      v[ROW_OLD] = v[ROW_OLD] + gap + width
    end
  until v[ROW_OLD] + span > now
  v[ROW_AT] = v[ROW_AT] + at
end

-- begin makes the last entry of a row, which stands in the head v, the entry that takes the starts of now, as push in entries.lua does. n is the
-- limit. It returns two texts for write: the text to be stored behind the head, nil if the stored text stays, and a text to be appended to it,
-- nil if nothing is. It returns false if the row must be looked at as a whole.
local function begin(key, v, n, span)
  if v[ROW_LAST] + span <= now then -- no start counts any more
    v[ROW_LOST], v[ROW_TOTAL], v[ROW_SIZE], v[ROW_AT], v[ROW_BEFORE] = max(v[ROW_LOST], v[ROW_LAST]), 0, 1, 0, now
    v[ROW_FIRST], v[ROW_LAST], v[ROW_N] = now, now, 0
    return ''
  elseif v[ROW_OLD] + span <= now and not pcall(drop, key, v, span) then
    return false
  end

  -- Under a large limit the starts of one part of the window share an entry.
  if v[ROW_FIRST] == now or n > WINDOW_PARTS and v[ROW_FIRST] >= now - now % ceil(span / WINDOW_PARTS) then
    return nil
  end

  -- The last entry goes from the head to the text, and the head has a new one.
  local pushed = cmsgpack.pack(v[ROW_FIRST] - v[ROW_BEFORE], v[ROW_LAST] - v[ROW_FIRST], v[ROW_N])
  v[ROW_SIZE], v[ROW_BEFORE], v[ROW_FIRST], v[ROW_LAST], v[ROW_N] = v[ROW_SIZE] + 1, v[ROW_LAST], now, max(now, v[ROW_LAST]), 0

  -- The text grows behind the dropped entries until it is long, and is then written anew without them.
  local begin = HEAD_SIZE + v[ROW_NAMED] + v[ROW_AT]
  if begin + TRIPLE * v[ROW_SIZE] <= MAX_APPENDED then
    return nil, pushed
  elseif v[ROW_SIZE] > MAX_ENTRIES then
    return false
  end

  -- The bound on the bytes is too high to tell, so ask for the length.
  local bytes = redis.call('STRLEN', key) + #pushed
  if bytes <= MAX_APPENDED then
    return nil, pushed
  elseif bytes - v[ROW_AT] > MAX_APPENDED then
    return false
  end

  local rest = redis.call('GETRANGE', key, begin, -1)
  v[ROW_AT] = 0
  return rest .. pushed
end

-- write stores a row with the head v; body and pushed are what begin returned.
local function write(key, v, names, body, pushed, span)
  v[ROW_SEEN], v[ROW_SPAN] = now, span
  v[ROW_OLD] = v[ROW_SIZE] == 1 and v[ROW_LAST] or v[ROW_OLD]
  v[ROW_GENERATION] = v[ROW_GENERATION] == 0 and seed or v[ROW_GENERATION]

  -- Most starts leave the key's lifetime as it is: it is longer than the row needs.
  local ms
  local stop = v[ROW_TOLD] > 0 and max(v[ROW_TILL], note_ends(v) + NODE_KEEPS) or v[ROW_TILL]
  if body or stop > v[ROW_EXPIRES] then
    v[ROW_EXPIRES] = stop + IDLE
    ms = string.format('%.0f', ceil((v[ROW_EXPIRES] - now) / 1000))
  end

  if body then
    redis.call('SET', key, struct.pack(HEAD, unpack(v)) .. names .. body, 'PX', ms)
    return
  end

  redis.call('SETRANGE', key, '0', struct.pack(HEAD_CHANGED, unpack(v, 1, ROW_EXPIRES))) -- the rest of the head is as it was
  if pushed then
    redis.call('APPEND', key, pushed)
  end
  if ms then
    redis.call('PEXPIRE', key, ms)
  end
end

local simple = not ARGV[4] -- no slots and no pauses; false as soon as the call is not simple
for i = simple and budgets + 1 or #KEYS + 1, #KEYS do
  simple = simple and redis.call('GETRANGE', KEYS[i], '0', '0') == '' -- a gate that nobody has closed
end

-- Read all heads. No budget may have a line, or need a repair.
local heads, limits, spans, bodies, pushed = {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {}, {} -- by the index of the budget's key
local at = cursor
for i = 2, simple and budgets or 0 do
  heads[i], at = read_head(KEYS[i], at, i)
  if not heads[i] then
    simple = false
    break
  end
end

-- Read all rules: one plain sliding window for each budget. The last entries take the starts of now.
local ruled = 1 -- the index of the last key that has a rule
for _ = 1, simple and rule_count or 0 do
  local key, many, kind, n, span, jitter, _, _, _, _, boundaries
  key, many, kind, n, span, jitter, _, _, _, _, boundaries, at = struct.unpack('<ddddddddddd', frame, at)

  -- Rules come in the order of their keys.
  simple = key == ruled + 1 and (kind == SLIDING_WINDOW or kind == TOLD) and boundaries == 0
  ruled = ruled + many
  for i = key, simple and ruled or 0 do
    local v = heads[i]

    -- The number of such a rule lies in the row: see told.lua.
    if kind == TOLD then
      simple = simple and v[ROW_TOLD] > 0 and now < note_ends(v)
      n, span = v[ROW_TOLD], v[ROW_EACH] + jitter + 1
    end
    simple = simple and is_plain(v, span)
    if simple then
      local blank = v[ROW_SIZE] == 0 and v[ROW_LOST] == 0 -- no start counts that an older limit counted
      v[ROW_MOST] = (blank or now >= v[ROW_TILL]) and n or max(v[ROW_MOST], n)
      bodies[i], pushed[i] = begin(KEYS[i], v, n, span)
      simple, limits[i], spans[i] = bodies[i] ~= false, n, span
    end
  end
  if not simple then
    break
  end
end
simple = simple and ruled == budgets

-- Read all operations: bookings of new callers, for which there is room. They are counted in the heads.
while simple and at <= #frame do
  local kind, informed, booked, arrival, least, spread, _, _, _, tickets, count, many
  kind, informed, booked, arrival, least, spread, _, _, _, tickets, count, many, at =
    struct.unpack('<dddddddddddd', frame, at)
  simple = kind == RESERVE and informed + booked + arrival + least + tickets == 0

  for _ = 1, simple and many or 0 do
    local callers
    callers, _, at = struct.unpack('<dd', frame, at)
    for _ = 1, count do
      local i, cost, reserve, shadow
      i, cost, reserve, shadow, _, _, at = struct.unpack('<dddddd', frame, at)
      i, cost = i + 1, callers * cost
      local v = heads[i]
      simple = simple and i > 1 and shadow == 0 and v[ROW_TOTAL] + cost <= limits[i] - reserve
      if not simple then
        break
      end

      v[ROW_TOTAL], v[ROW_N], v[ROW_COUNT] = v[ROW_TOTAL] + cost, v[ROW_N] + cost, v[ROW_COUNT] + cost
      v[ROW_LAST], v[ROW_TILL] = max(v[ROW_LAST], now + spread), max(v[ROW_TILL], now + spread + spans[i])
    end
  end
end

-- The whole call is simple: write the rows, and answer.
if simple then
  out[2] = struct.pack('<dd', ALL_NOW, now)
  for i = 2, budgets do
    local v = heads[i]
    write(KEYS[i], v, earlier[i], bodies[i], pushed[i], spans[i])
    out[#out + 1] = struct.pack('<ddddd', v[ROW_GENERATION], v[ROW_COUNT], v[ROW_TOTAL], v[ROW_LAST], v[ROW_G1] == 0 and 0 or 1)
    if v[ROW_G1] ~= 0 then
      out[#out + 1] = struct.pack('<ddddd', v[ROW_G1], v[ROW_N1], v[ROW_OLDER], v[ROW_MARK], v[ROW_NAMED] / PAIR) .. earlier[i]
    end
  end
  return finish()
end
end
