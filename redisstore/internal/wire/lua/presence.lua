-- Which nodes use a group of budgets, and which part of each limit each has while Redis
-- is away: see docs/outages.md.
--
-- KEYS  the group's presence
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: what is said (see below), the time at which it
--         should be here, or 0, the least divisor, and how many nodes it knows of
--       3 the node's name
--
-- Result as of book.lua: 0, now, whether it counts as said, the node's divisor, or
-- 0 if there is no part for it, how many nodes there are, and the divisors of the
-- silent ones.
--
-- Stored form: a MessagePack array
--   seen, clock, then for each node
--   name, when it was heard of last, divisor, how many it knew
-- clock is how long any node was there. When none was for a while, however long, it goes
-- on by just so much that all are silent, and none is forgotten for that; so it does when
-- the server's clock jumps.

local LOOK, BEAT, BYE = 0, 1, 2
local LATE = 1000000 -- what comes later may be from before an outage
local DEAD = 20000000 -- and for so long is gone
local GAP = 2000000 -- the longest time between two beats in which a node was there
local KEPT_MS = 3600000

local now = clock(ARGV[1])
local what, due, least, most = struct.unpack('<dddd', frame)
local me = ARGV[3]

local raw = redis.call('GET', KEYS[1])
local v = raw and cmsgpack.unpack(raw) or {now, 0}
local seen, time = v[1], v[2]
if what ~= LOOK then
  local passed = now - seen
  seen, time = now, time + (math.abs(passed) > GAP and SILENT + 1 or max(0, passed))
end
local counts = what == BYE or what == BEAT and (due == 0 or now <= due + LATE)

local nodes, mine = {seen, time}, nil
local alive, silent, parts = 0, {}, 0
local function keep(...)
  for _, x in ipairs({...}) do
    nodes[#nodes + 1] = x
  end
end
local function miss(divisor)
  silent[#silent + 1] = divisor
  parts = parts + 1 / divisor
end
for i = 3, #v, 4 do
  local name, heard, divisor, knew = v[i], v[i + 1], v[i + 2], v[i + 3]
  if name == me then
    if not counts then
      mine = {name, heard, divisor, knew}
    end
  elseif time - heard <= DEAD then
    keep(name, heard, divisor, knew)
    if time - heard <= SILENT then
      alive, most = alive + 1, max(most, knew)
    elseif divisor > 0 then
      miss(divisor)
    end
  end
end
if what == BEAT then
  alive = alive + 1
end
if time < DEAD then
  -- The presence was lost not long ago, perhaps with nodes that have not come back.
  for _ = alive + #silent + 1, most do
    miss(most)
  end
end
local divisor = 0
if parts < 1 - 1e-9 then
  divisor = max(least, ceil(alive / (1 - parts) - 1e-9))
end
if what == BEAT and counts then
  mine = {me, time, divisor, alive + #silent}
end
if mine then
  keep(unpack(mine))
end
redis.call('SET', KEYS[1], cmsgpack.pack(nodes), 'PX', KEPT_MS)

local out = {struct.pack('<ddddd', 0, now, counts and 1 or 0, divisor, alive + #silent)}
for i, d in ipairs(silent) do
  out[i + 1] = struct.pack('<d', d)
end
return table.concat(out)
