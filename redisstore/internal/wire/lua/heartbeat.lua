-- Records the heartbeat of a node that uses a group of budgets. Heartbeats decide which part of each limit a node may use by itself while Redis is
-- away: see docs/internals/shares.md.
--
-- KEYS  the group's heartbeats
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 numbers, 8 bytes each: the kind of heartbeat (see below), the time at which the heartbeat should be here, or 0, the least divisor of
--         the node's part, and how many nodes the node knows of
--       3 the node's name
--
-- Result as of book.lua: DONE, now, whether the heartbeat counts, the node's divisor, or 0 if there is no part for the node, how many nodes there
-- are, and the divisors of the nodes that are suspected to have lost Redis. A node with divisor d has one d-th of each limit.
--
-- Stored form: a MessagePack array
--   seen, age, then for each node
--   name, the age at its last heartbeat, divisor, how many nodes it knew of
-- seen is the time of the last heartbeat of any node. age is a clock that runs while there are heartbeats. After a gap without any, however long,
-- and after a jump of the server's clock, age goes on just far enough that all nodes are suspected: the gap alone makes no node seem dead.
--
-- needs: frame (max, ceil, frame, now)

local LOOK, BEAT, LEAVE = 0, 1, 2 -- asks only; the node uses the group; the node uses it no longer
-- These are microseconds, except KEPT_MS, which is milliseconds.
local TOO_LATE = 1000000 -- a heartbeat that comes more than this after its due time may be from before an outage
local DEAD = 20000000 -- a node that is silent for longer than this is taken for dead
local GAP = 2000000 -- the longest time between two heartbeats of any nodes while the fleet has Redis
local KEPT_MS = 3600000 -- for how long the key outlives its last call

local kind, due, min_divisor, known = struct.unpack('<dddd', frame)
local me = ARGV[3]

local raw = redis.call('GET', KEYS[1])
local v = raw and cmsgpack.unpack(raw) or {now, 0}
local seen, age = v[1], v[2]

-- The fleet's clock goes on with each heartbeat.
if kind ~= LOOK then
  local passed = now - seen
  seen, age = now, age + (math.abs(passed) > GAP and SUSPECTED_AFTER + 1 or max(0, passed))
end
local counts = kind == LEAVE or kind == BEAT and (due == 0 or now <= due + TOO_LATE)

local nodes = {seen, age} -- the list to be stored
local mine -- the values of the calling node in that list
local beating = 0 -- how many nodes beat
local suspected, shares = {}, 0 -- the divisors of suspected nodes, and the part of each limit that these nodes may use

-- keep stores a node: its name, the age at its last heartbeat, its divisor, and how many nodes it knew of.
local function keep(name, heard, divisor, knew)
  local i = #nodes
  nodes[i + 1], nodes[i + 2], nodes[i + 3], nodes[i + 4] = name, heard, divisor, knew
end

-- suspect notes that a node with a divisor may be using its part of each limit without Redis.
local function suspect(divisor)
  suspected[#suspected + 1] = divisor
  shares = shares + 1 / divisor
end

-- Sort the other nodes: those that beat, those that are suspected, and those that are dead or use nothing. known becomes the highest number of nodes
-- that the calling node or a beating node knows of.
for i = 3, #v, 4 do
  local name, heard, divisor, knew = v[i], v[i + 1], v[i + 2], v[i + 3]
  if name == me then
    -- After a look, or a heartbeat that is too late, the node stays as it was.
    if not counts then
      mine = {name, heard, divisor, knew}
    end
  elseif age - heard <= DEAD then
    keep(name, heard, divisor, knew)
    if age - heard <= SUSPECTED_AFTER then
      beating, known = beating + 1, max(known, knew)
    elseif divisor > 0 then
      suspect(divisor)
    end
  end
end
if kind == BEAT then
  beating = beating + 1
end

-- The key was made a short time ago, perhaps because Redis lost an older one with nodes that have sent no heartbeat since. Suspect as many nodes as
-- are missing from known, each with the part that it has in a fleet of known nodes.
if age < DEAD then
  for _ = beating + #suspected + 1, known do
    suspect(known)
  end
end

-- What suspected nodes may use stays free, and the rest is divided among those that beat. The small number is for errors of rounding.
local divisor = 0
if shares < 1 - 1e-9 then
  divisor = max(min_divisor, ceil(beating / (1 - shares) - 1e-9))
end
if kind == BEAT and counts then
  mine = {me, age, divisor, beating + #suspected}
end

if mine then
  keep(unpack(mine))
end
redis.call('SET', KEYS[1], cmsgpack.pack(nodes), 'PX', KEPT_MS)

local out = {struct.pack('<ddddd', DONE, now, counts and 1 or 0, divisor, beating + #suspected)}
for i, other in ipairs(suspected) do
  out[i + 1] = struct.pack('<d', other)
end
return table.concat(out)
