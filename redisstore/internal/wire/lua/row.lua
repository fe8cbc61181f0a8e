-- A row is one budget; docs/booking.md says what it promises, and memstore has
-- the same in Go. This file reads and writes rows, entries.lua changes them,
-- age.lua lets time pass, and search.lua looks for room.
--
-- All times are whole microseconds of the server's clock. They fit a Lua number
-- without loss until the year 2255.
--
-- Stored form, one string a budget: the head, a fixed number of numbers, then the line
-- of those who wait, if there is one, see queue.lua, then all entries but the last, in
-- MessagePack: for each the distance of first from the
-- last before it, the distance of last from first, and n. The last entry is in
-- the head. So what happens at the ends of a row, which is nearly everything,
-- reads and writes the head alone: a row is *open* while its entries are in the
-- arrays F, L and N, and closed otherwise. The form's version is part of the key.

local MAX_ENTRIES, MAX_BYTES = 224, 2880 -- bound a row to 4 KB with its line: Redis reserves 3,584 of them, and some for the key
local MAX_COUNT = 2 ^ 40 -- the largest n of a limit, enough to fill any window
local MAX_APPENDED = 1600 -- Redis reserves as much again for a string that grows
local TRIPLE = 27 -- the most bytes of an entry
local KEPT = 1000000 -- a key outlives what it holds by this much
local LINE_KEPT = 300000000 -- a line is kept for so long after the last call that it concerns
local IDLE = KEPT -- or by more, in tests: see clock
local STEPS = {8, 2} -- after a penalty the first windows have an eighth, a half of the limit; hot.lua knows how many
local HEAD = '<' .. string.rep('d', 38)
local HEAD_SIZE = 38 * 8 -- gates.lua and hot.lua know it
local MOST = 2 ^ 53 -- no time is beyond that

local ceiling = {} -- see ceiling.lua

-- clock returns the time: the server's, unless a test passes its own. Then keys
-- live longer, because their lifetime is still the server's.
local function clock(given)
  if given ~= '' then
    IDLE = IDLE + 60 * 1000000
    return tonumber(given)
  end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- sound reports whether r can be a row that these scripts have written. With any
-- other they might not end, and Redis serves nobody meanwhile.
local function sound(r)
  local fractions = r.seen % 1 + r.lost % 1 + r.span % 1 + r.most % 1 + r.till % 1 + r.paused % 1 + r.frozen % 1
    + r.level % 1 + r.unit % 1 + r.birth % 1 + r.count % 1 + r.b1 % 1 + r.n1 % 1 + r.b2 % 1 + r.n2 % 1 + r.b3 % 1 + r.n3 % 1
    + r.total % 1 + r.size % 1 + r.at % 1 + r.old % 1 + r.before % 1 + r.first % 1 + r.last % 1 + r.n % 1 + r.expires % 1 + r.opens % 1
    + r.t1 % 1 + r.t2 % 1 + r.t3 % 1 + r.pin % 1 + r.lined % 1
    + r.ban % 1 + r.probe % 1 + r.times % 1 + r.fell % 1 + r.learns % 1
  return fractions == 0 -- nor is any of them infinite, or no number
    and r.lined >= 0 and r.lined <= 2 * MAX_APPENDED and max(r.t1, r.t2, r.t3, r.pin) <= MOST and min(r.t1, r.t2, r.t3, r.pin) >= -MOST
    and r.size >= 0 and r.size <= 2 * MAX_ENTRIES and r.at >= 0 and r.at <= 2 * MAX_APPENDED
    and min(r.span, r.most, r.level, r.birth, r.count, r.b1, r.n1, r.b2, r.n2, r.b3, r.n3, r.total, r.n) >= 0
    and max(r.most, math.abs(r.unit), r.birth, r.count, r.b1, r.n1, r.b2, r.n2, r.b3, r.n3, r.total, r.n) <= 64 * MOST
    and max(r.seen, r.lost, r.span, r.till, r.paused, r.frozen, r.old, r.before, r.first, r.last, r.expires, r.opens) <= MOST
    and min(r.seen, r.lost, r.till, r.paused, r.frozen, r.old, r.before, r.first, r.last, r.expires, r.opens) >= -MOST
    and r.level < MOST * MOST
    and min(r.ban, r.probe, r.times) >= 0 and max(r.ban, r.probe, r.times) <= MOST
    and (r.top == 0 or r.top >= 1) and r.top <= MOST and math.abs(r.fell) <= MOST and r.learns >= 0 and r.learns <= MOST
end

-- empty returns a row of which nothing is known.
--
--   seen               the latest time that anybody asked
--   lost               no start later than this was forgotten; 0: none was
--   span, most, till   see remember
--   paused, frozen     closed until then, kept for ramp.lua; places up to then stay
--                      taken when they are cancelled
--   level, unit        see bucket.lua
--   birth, count       this life of the row, and how many starts it had
--   b1, n1 … b3, n3    the same of earlier lives; see repair.lua
--   total, size        of the entries: the sum of n, and how many
--   at, old            closed: where the first one begins, and its last
--   before             closed: the last of the entry before the last one
--   first, last, n     closed: the last entry
--   expires            when the key does, as it is stored
--   opens              no new start before that: see repair.lua
--   t1, t2, t3         the last start that those of each class waited for: see stand.lua
--   pin                the last start that is, or was, beyond the horizon
--   top, fell, learns  what was learned of the upstream, top 0 if nothing: see ceiling.lua
--   lined, queue       how many bytes the line has, as it is stored; the line, false if
--                      there is none, nil if nobody looked
--   ban, probe, times  of the last penalty: see penalty.lua
local function empty(key)
  -- All fields at once: a table that grows is what costs most here.
  return {key = key, stored = false, pushed = '', F = nil, L = nil, N = nil, seen = 0, lost = 0, span = 0, most = 0,
    till = 0, paused = 0, frozen = 0, level = 0, unit = 0, birth = 0, count = 0, b1 = 0, n1 = 0, b2 = 0, n2 = 0,
    b3 = 0, n3 = 0, total = 0, size = 0, at = 0, old = 0, before = 0, first = 0, last = 0, n = 0, expires = 0,
    opens = 0, t1 = 0, t2 = 0, t3 = 0, pin = 0, lined = 0, queue = nil,
    ban = 0, probe = 0, times = 0, top = 0, fell = 0, learns = 0}
end

-- load reads the row of a key; a key that is not there is an empty row, open, and
-- so is one that holds something else: its starts are lost.
local function load(key)
  local r, raw = empty(key), redis.call('GETRANGE', key, 0, HEAD_SIZE - 1)
  if #raw < HEAD_SIZE then
    r.F, r.L, r.N = {}, {}, {}
    return r
  end
  r.stored = true
  r.seen, r.lost, r.span, r.most, r.till, r.paused, r.frozen, r.level, r.unit, r.birth, r.count,
    r.b1, r.n1, r.b2, r.n2, r.b3, r.n3, r.total, r.size, r.at, r.old, r.before, r.first, r.last, r.n, r.expires,
    r.opens, r.t1, r.t2, r.t3, r.pin, r.lined,
    r.ban, r.probe, r.times, r.top, r.fell, r.learns = struct.unpack(HEAD, raw)
  if not sound(r) then
    r = empty(key)
  end
  if r.size == 0 then
    r.F, r.L, r.N = {}, {}, {}
  end
  return r
end

-- entries returns all entries of a closed row but the last.
local function entries(r)
  local F, L, N, k = {}, {}, {}, 0
  if r.size > 1 then
    local v = {cmsgpack.unpack(redis.call('GETRANGE', r.key, HEAD_SIZE + r.lined + r.at, -1) .. r.pushed)}
    local prev = r.old - v[2] - v[1]
    for i = 1, #v, 3 do
      k = k + 1
      F[k] = prev + v[i]
      prev = F[k] + v[i + 1]
      L[k], N[k] = prev, v[i + 2]
      assert(v[i] >= 0 and v[i + 1] >= 0 and v[i + 2] >= 0)
    end
    assert(prev <= r.first)
  end
  assert(k == r.size - 1)
  return F, L, N
end

-- open brings the entries into the arrays F, L and N. Where there is something
-- else, all starts are taken to have been with the last.
local function open(r)
  if r.F then
    return
  end
  local known, F, L, N = pcall(entries, r)
  if not known then
    F, L, N, r.size, r.n = {}, {}, {}, 1, r.total
  end
  local k = r.size
  F[k], L[k], N[k] = r.first, r.last, r.n
  r.F, r.L, r.N = F, L, N
end

-- latest returns the end of the last entry; 0 if there is none.
local function latest(r)
  if r.size == 0 then
    return 0
  end
  return r.F and r.L[r.size] or r.last
end

local function head(r)
  return struct.pack(HEAD, r.seen, r.lost, r.span, r.most, r.till, r.paused, r.frozen, r.level, r.unit,
    r.birth, r.count, r.b1, r.n1, r.b2, r.n2, r.b3, r.n3, r.total, r.size, r.at, r.old, r.before, r.first, r.last, r.n, r.expires,
    r.opens, r.t1, r.t2, r.t3, r.pin, r.lined,
    r.ban, r.probe, r.times, r.top, r.fell, r.learns)
end

-- close brings the last entry of an open row back into the head, and returns
-- the others.
local function close(r)
  local F, L, N, size, v = r.F, r.L, r.N, r.size, {}
  local prev, k = F[1] or 0, 0
  for i = 1, size - 1 do
    v[k + 1], v[k + 2], v[k + 3] = F[i] - prev, L[i] - F[i], N[i]
    prev, k = L[i], k + 3
  end
  r.at, r.old, r.before = 0, L[1] or 0, L[size - 1] or F[size] or 0
  r.first, r.last, r.n = F[size] or 0, L[size] or 0, N[size] or 0
  return size > 1 and cmsgpack.pack(unpack(v)) or ''
end

-- save writes the row with a line, which is '' if there is none, with an expiry after which
-- nothing in it can matter.
local function save(r, line)
  if line ~= '' or r.lined > 0 then
    open(r)
  end
  -- Programs remember starts for as long as till, also cancelled ones: as long the
  -- row must be there, or they take it for lost.
  local stop = max(r.seen, r.till, r.size > 0 and latest(r) + r.span or 0)
  if line ~= '' then
    stop = max(stop, r.seen + LINE_KEPT)
  end
  if r.top > 0 then
    stop = max(stop, ceiling.forgotten(r))
  end
  if r.paused > 0 then
    stop = max(stop, r.paused + max(penalty.remembered(r), #STEPS * r.span))
  end
  if not r.F and r.pushed ~= '' and redis.call('APPEND', r.key, r.pushed) > MAX_APPENDED then
    r.pushed = ''
    open(r)
  end
  local renew = stop > r.expires or r.F
  if renew then
    r.expires = stop + IDLE
  end
  if not r.F then
    redis.call('SETRANGE', r.key, 0, head(r))
  end
  if renew then
    local ms = string.format('%.0f', ceil((r.expires - r.seen) / 1000))
    if r.F then
      local body = close(r)
      r.lined = #line
      redis.call('SET', r.key, head(r) .. line .. body, 'PX', ms)
    else
      redis.call('PEXPIRE', r.key, ms)
    end
  end
end
