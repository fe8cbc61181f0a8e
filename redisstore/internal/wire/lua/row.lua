-- A row r is one budget; docs/internals/booking.md says what it promises. This file reads and writes rows, entries.lua changes them, age.lua lets
-- time pass, and search.lua looks for room. internal/ledger/row.go has the same columns in Go, in other bytes.
--
-- All times are whole microseconds of the server's clock. They fit a Lua number without loss until the year 2255.
--
-- Stored form, one string for each budget:
--
--   the head     a fixed number of numbers
--   the names    and counts of the generations before the last two, if there are any: see repair.lua
--   the line     of waiters, if there is one: see queue.lua
--   the entries  all but the last, in MessagePack: for each the distance of first from the last of the entry before, which is below 0 where two
--                overlap, the distance of last from first, and n
--
-- The last entry is in the head. So a change at the ends of a row, which is nearly every change, reads and writes the head alone. A row is *open*
-- while its entries are in the arrays F, L and N, and closed otherwise. The form's version is part of the key.
--
-- needs: frame (max, min, ceil, IDLE)
-- defines: MAX_STORED, MAX_PLAIN, MAX_SHARED, MAX_KNOWN, ROUND_SIZE, LINE_KEPT, penalty, ceiling, note, bound, stored, read, load, entries,
--     open, names_of, latest, head, close, kept_until, save

local MAX_STORED = HEAD_SIZE + ENTRY_BYTES -- bytes of a row with its line: Redis takes 3,584 for them, so 4 KB with the key
local MAX_PLAIN = 900 -- bytes of a line without shares
local MAX_SHARED = 8000 -- bytes of a line with shares, without rounds and known tags, beside the entries: 12 KB in all. See MAX_LANES.
local MAX_KNOWN = 1024 -- shares without a lane of their own whose tags a line knows: 8 bytes each
local ROUND_SIZE = 48 -- upper bound on the bytes of a round, a lane of such shares: see lanes.lua
local LINE_KEPT = 300000000 -- for how many microseconds a line is kept after the last call that it concerns

local penalty, ceiling = {}, {} -- see age.lua
local note = {} -- see age.lua
local bound -- see entries.lua

-- stored returns the head of a key's row as it is stored, a text, or nil if the key holds no head.
local function stored(key)
  local head = redis.call('GETRANGE', key, '0', HEAD_END)
  return #head == HEAD_SIZE and head or nil
end

-- read returns the row of a key with that head: a closed row, or an open one if the head says that there are no entries. Without a head the row is
-- empty. It is also empty if no script can have written that head: with wrong numbers a script might never end, and Redis would serve no other client.
-- script.go lists the numbers of the head, and writes them here in the places of HEAD_NAMES, HEAD_FIELDS and other words that begin with HEAD.
--
--   seen               the latest time at which a program asked
--   lost               all starts that the row has forgotten are at this time or earlier. Zero means that none was forgotten.
--   span, most, till   for how long entries are kept; upper bound on the starts in any half-open interval of that length; until when both are needed
--   paused             the budget is closed until then. The time is kept for the slow start afterwards.
--   frozen             starts up to then stay booked when they are cancelled
--   level, unit        of a bucket: units spent at the time lost, and units of a token; unit is below 0 if other limits added to level, and 0
--                      if no limit of the row was a bucket
--   generation, count  the present generation of the row, and how many starts it had: see repair.lua
--   g1, n1             the generation before the present one, and its starts. Both are 0 if there is none.
--   named              how many bytes the names and counts of the generations before g1 take
--   older, mark        how many starts there were in still older generations, whose names are forgotten, and a number that tells one set of such
--                      starts from a different set
--   total, size        of the entries: the sum of n, and how many there are
--   at, old            of a closed row: at which byte of the stored entries the first entry begins, and when the first entry ends
--   before             of a closed row: when the last entry but one ends
--   first, last, n     of a closed row: the last entry
--   expires            when the key expires
--   opens              no new start is booked before that: see repair.lua
--   t1, t2, t3         for each class, the last start for which waiters waited: see keep_behind in line.lua
--   pin                the last start that is, or was, beyond the horizon
--   top, fell, learns  of the ceiling, and ban, probe, times of the last penalty: see age.lua
--   lined              how many bytes the line has, as it is stored
--   told, each, heard  of the note: see age.lua
--
-- Fields that are not stored:
--
--   stored             whether the key holds such a row
--   history            what the calling program knows of the row, false if nothing: see repair.lua
--   names              the names of the generations before the last two as they are stored, nil before names_of has read them
--   queue              the line, false if there is none, nil before queue.of has read it
--   called             whether this call has had the line offer its room: see held_by in line.lua
--   pushed             text of entries that were pushed behind the stored ones
--   kept, raw          of an open row: how many of the first entries are as they are stored, and the text of these
--   low, grown         of an open row, since the last caller was served: the first entry that has changed, and how many starts were added to the
--                      entry that was the last one then
local function read(key, head)
  local HEAD_NAMES = struct.unpack(HEAD, head or string.rep('\0', HEAD_SIZE))

  -- No script writes larger numbers than these. Counts are sums of costs, so they have a higher bound than times. A level is the product of a number of
  -- tokens and the units of a token; its bound is a power, because Lua 5.4 multiplies whole numbers as 64-bit integers, which would overflow.
  local max_count, max_level = 64 * MAX_NUMBER, MAX_NUMBER ^ 2

  -- The sum of all fractions is 0 only if all numbers but top are whole: infinity and NaN have a fraction that is NaN. A line has at most 60 rounds:
  -- see MAX_ROUNDS in lanes.lua. The bounds of size and at are rough.
  local sound = HEAD_FRACTIONS == 0
    and min(HEAD_TIMES) >= -MAX_NUMBER and max(HEAD_TIMES, HEAD_LENGTHS, top) <= MAX_NUMBER
    and min(HEAD_LENGTHS, HEAD_COUNTS, level) >= 0 and max(HEAD_COUNTS, unit, -unit) <= max_count
    and level < max_level and (top == 0 or top >= 1)
    and (told == 0 or told <= MAX_TOLD and each >= MIN_TOLD_WINDOW and each <= MAX_TOLD_WINDOW)
    and named >= 0 and named <= MAX_NAMED and named % PAIR == 0
    and lined >= 0 and lined <= MAX_SHARED + 8 * MAX_KNOWN + 60 * ROUND_SIZE
    and size >= 0 and size <= 2 * MAX_ENTRIES and at >= 0 and at <= MAX_STORED
  if not sound then
    return read(key)
  end

  -- Give the table all fields at once: a table that grows would be the most expensive step here.
  local r = {key = key, stored = head ~= nil, HEAD_FIELDS, history = false, pushed = '', names = named == 0 and '' or nil,
    low = MAX_NUMBER, grown = 0, kept = 0, raw = ''}

  if size == 0 then
    r.F, r.L, r.N = {}, {}, {}
  end
  return r
end

-- load returns the row of a key, empty if the key holds no row. It reads the head from Redis unless the caller passes it.
local function load(key, head)
  return read(key, head or stored(key))
end

-- entries returns all entries of a closed row except the last, as the columns F, L and N, and the text of these entries: the stored text, with what was
-- pushed behind it. It raises an error if that is not the text of such entries.
local function entries(r)
  local F, L, N = {}, {}, {}
  local k, raw = 0, ''
  if r.size > 1 then
    raw = redis.call('GETRANGE', r.key, HEAD_SIZE + r.named + r.lined + r.at, -1) .. r.pushed
    local v = {cmsgpack.unpack(raw)}

    -- The previous entry is [begin, stop]. In front of the first entry stop has the value with which the first entry ends at r.old.
    local begin, stop = -math.huge, r.old - v[2] - v[1]
    for i = 1, #v, 3 do
      local first, width, n = stop + v[i], v[i + 1], v[i + 2]
      local last = first + width

      -- Each entry begins later than the previous entry, and ends no earlier.
      if first <= begin or width < 0 or n < 0 or last < stop and k > 0 then
        error('no entry')
      end
      begin, stop, k = first, last, k + 1
      F[k], L[k], N[k] = first, last, n
    end
    assert(begin < r.first and stop <= r.last)
  end
  assert(k == r.size - 1)
  return F, L, N, raw
end

-- open reads the entries of a closed row into the arrays F, L and N, and leaves an open row as it is. If the stored text is not that of entries, the
-- last entry, which matters longer than the others, gets all starts of the row.
local function open(r)
  if r.F then
    return
  end
  local sound, F, L, N, raw = pcall(entries, r)
  if not sound then
    F, L, N, raw, r.size, r.n = {}, {}, {}, '', 1, r.total
  end

  -- The last entry stands in the head.
  local k = r.size
  F[k], L[k], N[k] = r.first, r.last, r.n
  r.F, r.L, r.N, r.kept, r.raw = F, L, N, k - 1, raw
end

-- names_of returns the names and counts of the generations before the last two, as they are stored: see repair.lua. It reads them once, and keeps them
-- in r.names. It returns '' if the stored text is cut off, or a number in it is not whole or out of bounds.
local function names_of(r)
  if not r.names then
    local text = redis.call('GETRANGE', r.key, HEAD_SIZE, HEAD_SIZE + r.named - 1)
    local at, sound, number = 1, #text == r.named
    while sound and at <= #text do
      number, at = struct.unpack('<d', text, at)
      sound = number % 1 == 0 and number >= 0 and number <= MAX_NUMBER
    end
    r.names = sound and text or ''
  end
  return r.names
end

-- latest returns the end of the last entry, 0 if there is none.
local function latest(r)
  if r.size == 0 then
    return 0
  end
  return r.F and r.L[r.size] or r.last
end

-- head returns the head as it is stored.
local function head(r)
  return struct.pack(HEAD, HEAD_VALUES)
end

-- close puts the last entry of an open row into the fields of the head, and returns the text of the entries before it. The row stays open.
local function close(r)
  local F, L, N = r.F, r.L, r.N
  local size, v = r.size, {}

  -- The text of the first r.kept entries is r.raw. Of each further entry, v gets the distance from the end of the previous entry, the width, and n.
  -- The first of all entries has the distance 0, because r.old says when it ends.
  local stop, k = L[r.kept] or F[1] or 0, 0 -- the end of the previous entry; how many numbers v has
  for i = r.kept + 1, size - 1 do
    v[k + 1], v[k + 2], v[k + 3] = F[i] - stop, L[i] - F[i], N[i]
    stop, k = L[i], k + 3
  end

  r.at, r.old, r.before = 0, L[1] or 0, L[size - 1] or F[size] or 0
  r.first, r.last, r.n = F[size] or 0, L[size] or 0, N[size] or 0
  return k > 0 and r.raw .. cmsgpack.pack(unpack(v)) or r.raw
end

-- kept_until returns until when the key of row r must live: afterwards nothing in the row can matter. line is the text of the row's line, '' without
-- one.
local function kept_until(r, line)
  -- Programs remember starts until r.till, also starts that were cancelled. If the key expired earlier, they would take it for a loss of data.
  local stop = max(r.seen, r.till, r.size > 0 and latest(r) + r.span or 0)

  -- A line, a ceiling, a note or a penalty may matter for longer than the starts. Programs remember the starts under a note for NODE_KEEPS.
  if line ~= '' then
    stop = max(stop, r.seen + LINE_KEPT)
  end
  if r.top > 0 then
    stop = max(stop, ceiling.forgotten(r))
  end
  if r.told > 0 then
    stop = max(stop, note.ends(r) + NODE_KEEPS)
  end
  if r.paused > 0 then
    stop = max(stop, r.paused + max(penalty.remembered(r), SLOW_STEPS * r.span))
  end

  return stop
end

-- save writes row r, and has its key expire when nothing in the row can matter any more. It may open the row, and joins entries if they are too many or
-- too large: see bound. line is the text of the row's line, '' without one.
local function save(r, line)
  -- A line lies between the head and the entries, so a row that has, or had, a line is written as a whole: open it. Open a row with too many entries,
  -- too: bound joins some of them below.
  if line ~= '' or r.lined > 0 or r.size > MAX_ENTRIES then
    open(r)
  end

  local needed_until = kept_until(r, line)

  -- Append the entries that were pushed. Redis reserves up to twice the bytes of a string that grows, so a long row is written anew as a whole.
  if not r.F and r.pushed ~= '' then
    local bytes = redis.call('APPEND', r.key, r.pushed)
    if bytes > MAX_APPENDED then
      r.pushed = '' -- the stored text, which open reads, has these entries now
      open(r)
    end
  end

  -- An open row is written as a whole. bound joins its entries until they fit beside its names and its line.
  local names = r.F and names_of(r)
  if r.F then
    r.named, r.lined = #names, #line
    bound(r)
  end

  -- Most saves leave the key's lifetime as it is, because it is longer than the row needs. SET, which writes an open row, needs a lifetime each time.
  local renew = needed_until > r.expires or r.F
  if renew then
    r.expires = needed_until + IDLE
  end

  -- The entries of a closed row are stored by now, so only the head is left to write.
  if not r.F then
    redis.call('SETRANGE', r.key, '0', head(r))
  end
  if renew then
    local ms = string.format('%.0f', ceil((r.expires - r.seen) / 1000))
    if r.F then
      local body = close(r)
      redis.call('SET', r.key, head(r) .. names .. line .. body, 'PX', ms)
    else
      redis.call('PEXPIRE', r.key, ms)
    end
  end
end
