-- A flight is one budget of requests in flight; docs/in-flight.md says what it
-- promises and why. This file reads, states and writes flights; line.lua gives
-- room.
--
-- Stored form, one string a budget: a MessagePack array
--   birth, count, seen, last, ends, age, lost, ban, probe, times, then for each node
--   id, number, held, left, size, then for each of those who wait
--   came, cost, reserve, behind
-- ends, left (of the lease) and age are lengths of time as they were at seen, in
-- microseconds, ends of the pause, below 0 since it is over; last is a distance from seen, came one from last. A cost below 0
-- is set aside; a lease below 0 is on its respite. The form's version is part of
-- the key.

local LEASE = 22000000 -- a node that is silent for so long is gone
local QUIET = 2500000 -- nodes that live state themselves within so long

-- count returns what a node takes: what it holds and what is set aside for it.
local function count(m)
  local sum = m.held
  for _, w in ipairs(m.line) do
    if w.aside then
      sum = sum + w.cost
    end
  end
  return sum
end

-- let_pass brings a flight to a time so long after it was written. If nobody wrote
-- for longer than nodes that live are silent, then all are gone, or the clock was
-- set forward: once, each lease has a respite, in which those that live will state
-- themselves anew.
local function let_pass(f, passed)
  f.passed, f.nodes, f.taken = passed, {}, 0
  f.ends = f.stored.ends - passed
  f.pause, f.age = max(0, f.ends), min(QUIET, f.stored.age + passed)
  for _, m in ipairs(f.stored.nodes) do
    m.left, m.respite = math.abs(m.lease) - passed, m.lease < 0
    if passed > QUIET and m.left < QUIET and not m.respite then
      m.left, m.respite = QUIET, true
    end
    if m.left > 0 then
      f.nodes[#f.nodes + 1] = m
      f.taken = f.taken + count(m)
    end
  end
end

-- read_flight takes what is stored apart, and returns when it was written. Whatever
-- is no flight is an error.
local function read_flight(key, raw)
  local v = cmsgpack.unpack(raw)
  for _, x in ipairs(v) do
    assert(type(x) == 'string' or math.abs(x) <= MOST)
  end
  local f = {key = key, birth = v[1], count = v[2], last = v[3] + v[4], lost = v[7] == 1, ban = v[8] + 0, probe = v[9] + 0, times = v[10] + 0,
    stored = {ends = v[5], age = v[6], nodes = {}}}
  local i = 11
  while v[i] do
    local m, size = {id = v[i], number = v[i + 1], held = v[i + 2], lease = v[i + 3], line = {}}, v[i + 4]
    assert(m.number + m.held + m.lease and size >= 0 and size == floor(size))
    local stop = i + 5 + 4 * size
    for k = i + 5, stop - 4, 4 do
      m.line[#m.line + 1] = {came = f.last + v[k], cost = math.abs(v[k + 1]), aside = v[k + 1] < 0,
        reserve = v[k + 2] + 0, behind = v[k + 3] + 0}
    end
    i = stop
    f.stored.nodes[#f.stored.nodes + 1] = m
  end
  return f, v[3]
end

-- load_flight reads the flight of a key; a key that is not there is an empty one,
-- and so is one that holds something else, or would be gone if the clock of keys
-- were that of the script.
--
--   birth    names the life of the key: a random number
--   count    how often it was written since
--   last     when the last one came who had to wait: no two come together
--   ends     how long the budget is closed, below 0 since that is over; pause: not below 0
--   ban, probe, times   of the last penalty: see penalty.lua
--   age      since the life began, at most QUIET
--   lost     some node knew more of the life before
--   nodes    those that hold or wait
--   taken    costs held and set aside
--   stored   what of it is as it was written
--   passed   since then
local function load_flight(key, now)
  local raw = redis.call('GET', key)
  local known, f, wrote = pcall(read_flight, key, raw or '')
  if not known or now - wrote > max(f.stored.ends + penalty.remembered(f), LEASE) + KEPT then
    f, wrote = {key = key, birth = 0, count = 0, last = 0, ban = 0, probe = 0, times = 0,
      stored = {ends = 0, age = 0, nodes = {}}}, now
  end
  f.seen = now
  let_pass(f, max(0, now - wrote))
  return f
end
-- newest is when the last one came who had to wait in any flight of the call. Nobody
-- comes at the same time, so who changes lines keeps its turn.
local newest = 0

-- compare sees whether the flight is older than what a node knows of it: the last
-- birth and count that it heard, or 0. Then a new life begins, or began.
local function compare(f, birth, count, seed)
  if birth ~= 0 and (birth ~= f.birth or count > f.count) then
    f.lost = true
  end
  if f.birth == 0 or (birth == f.birth and count > f.count) then
    f.birth, f.age = seed, 0
  end
end

-- state reads what the node says of itself and puts it in the place of what was
-- known: n, the statement's number, held, birth and count, and how long ago it asked
-- for what it knows, or below 0, when the last of its own came who had to wait
-- anywhere, how many of its line are kept, how many are stated, then came, cost,
-- reserve and behind of each. It returns false if a later statement was made before.
local function state(f, id, seed)
  local number, birth, writes, ago, last, size
  local m = {id = id, left = LEASE, line = {}}
  f.n, number, m.held, birth, writes, ago, last, m.most, size, here = struct.unpack('<ddddddddd', blob, here)
  m.number = number
  if ago >= 0 and birth == f.birth and writes <= f.count and f.passed > ago + STALL then
    let_pass(f, ago) -- it was written since: the clock was set forward
  end
  compare(f, birth, writes, seed)
  newest = max(newest, last, f.last)
  local aside = {}
  for i = #f.nodes, 1, -1 do
    local old = f.nodes[i]
    if old.id == id then
      if old.number > number then
        return false
      end
      for _, w in ipairs(old.line) do
        aside[w.came] = w.aside
      end
      f.taken = f.taken - count(old)
      table.remove(f.nodes, i)
    end
  end
  for i = 1, size do
    local w = {}
    w.came, w.cost, w.reserve, w.behind, here = struct.unpack('<dddd', blob, here)
    w.aside = aside[w.came]
    m.line[i] = w
  end
  f.nodes[#f.nodes + 1], f.own = m, m
  f.taken = f.taken + count(m)
  return true
end

-- shorten keeps of the own line what is set aside and the first of the others,
-- for each reserve: the last of them says what is behind it.
local function shorten(m)
  local line, size, last = {}, {}, {}
  for _, w in ipairs(m.line) do
    local k = size[w.reserve] or 0
    if w.aside then
      line[#line + 1] = w
    elseif k < m.most then
      line[#line + 1], size[w.reserve], last[w.reserve] = w, k + 1, w
    else
      last[w.reserve].behind = last[w.reserve].behind + w.cost + w.behind
    end
  end
  m.line = line
end

-- save_flight writes the flight, with an expiry after which nothing in it can
-- matter. Until then even one that is empty is there for those who heard of it.
local function save_flight(f)
  f.count = f.count + 1
  if f.ends + penalty.remembered(f) <= 0 then
    f.ends = 0 -- that is forgotten
    penalty.forgive(f)
  end
  local v = {f.birth, f.count, f.seen, f.last - f.seen, f.ends, f.age, f.lost and 1 or 0, f.ban, f.probe, f.times}
  if f.own then
    shorten(f.own)
  end
  for _, m in ipairs(f.nodes) do
    if m.held > 0 or #m.line > 0 then
      local k = #v
      v[k + 1], v[k + 2], v[k + 3], v[k + 4], v[k + 5] = m.id, m.number, m.held, m.respite and -m.left or m.left, #m.line
      for _, w in ipairs(m.line) do
        k = #v
        v[k + 1], v[k + 2], v[k + 3], v[k + 4] = w.came - f.last, w.aside and -w.cost or w.cost, w.reserve, w.behind
      end
    end
  end
  redis.call('SET', f.key, cmsgpack.pack(v), 'PX',
    string.format('%.0f', ceil((max(f.ends + penalty.remembered(f), LEASE) + IDLE) / 1000)))
end
