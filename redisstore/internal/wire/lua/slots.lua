-- Giving slots: to the waiters in line, in the order in which they arrived, and to new callers.
--
-- A claim s is one charge that wants slots: its budget (slots), its cost, its reserve, whether it is a shadow, and its index among the caller's
-- charges. The own line of a budget is the line of the calling node's waiters. An arrival is the time at which a waiter came, which is also its name:
-- no two waiters of a node have the same.
--
-- needs: frame (max, min), leases (newest)
-- defines: set_aside, leave_line, first_open, acquire, next_change, ready, tell_called

local set_aside, leave_line, first_open, acquire, next_change, ready, tell_called
if slots_count > 0 then -- Lua makes all functions anew in each call

-- awaits_reports reports whether no slots of a lost budget may be given yet, because not all nodes have reported what they hold.
local function awaits_reports(slots)
  return slots.lost and slots.age < SUSPECTED_AFTER
end

-- blocks reports whether w waits for more room than there is, so that no later arrival is served. A waiter that lacks room only because of its own
-- reserve blocks nobody, and neither does a waiter whose cost never fits, because the limit became smaller.
local function blocks(slots, w)
  return not w.called and slots.taken + w.cost > slots.n and w.cost <= slots.n - w.reserve
end

-- has_unreported reports whether a waiter that was left out of its node's report waits behind w and may have room. The waiter has the reserve of w,
-- and costs 1 at least.
local function has_unreported(slots, w)
  return w.behind > 0 and slots.taken + 1 + w.reserve <= slots.n
end

-- set_aside gives the room that there is to the waiters of all nodes, in the order in which they arrived, up to the first that blocks or has an
-- unreported waiter behind it. Waiters that have room are called, and their costs count as taken from then on. While not all nodes have reported, it
-- does nothing.
function set_aside(slots)
  if slots.taken >= slots.n or awaits_reports(slots) then
    return
  end

  local line = {}
  for _, m in ipairs(slots.nodes) do
    for _, w in ipairs(m.line) do
      line[#line + 1] = w
    end
  end

  table.sort(line, function(first, second) return first.arrival < second.arrival end)
  for _, w in ipairs(line) do
    if blocks(slots, w) then
      return
    end
    if not w.called and slots.taken + w.cost <= slots.n - w.reserve then
      w.called, w.fresh = true, true -- fresh: tell_called has to tell the waiter's node
      slots.taken = slots.taken + w.cost
    end

    -- A waiter that was left out of its node's report could go next, so nobody behind is served before the node has told more.
    if has_unreported(slots, w) then
      return
    end
  end
end

-- blocked_behind reports whether a waiter that arrived before a caller keeps the caller from being served: the waiter blocks, or a waiter behind it
-- that was left out of a report could go first. arrival is the caller's, 0 if it does not wait yet: then all waiters arrived before it.
local function blocked_behind(slots, arrival)
  for _, m in ipairs(slots.nodes) do
    for _, w in ipairs(m.line) do
      if (arrival == 0 or w.arrival < arrival) and (blocks(slots, w) or has_unreported(slots, w)) then
        return true
      end
    end
  end
  return false
end

-- find returns the index in the own line of the waiter of that arrival, nil if there is none.
local function find(slots, arrival)
  for i, w in ipairs(slots.own.line) do
    if w.arrival == arrival then
      return i
    end
  end
end

-- admits reports whether a caller can have claim s now. A shadow admits all. A waiter in the own line must have been called. A caller that does not
-- wait yet, whose arrival is 0, or that waited elsewhere, needs free room, and no waiter that arrived before it may keep it from being served. A
-- budget that awaits reports admits no such caller.
local function admits(s, arrival)
  local slots = s.slots
  if s.shadow then
    return true
  end

  -- The cost of a waiter that was called counts in taken already. The limit may have become smaller since the waiter was called.
  local i = arrival ~= 0 and find(slots, arrival)
  if i then
    return slots.own.line[i].called and slots.taken <= slots.n - s.reserve
  end
  return not awaits_reports(slots) and slots.taken + s.cost <= slots.n - s.reserve and not blocked_behind(slots, arrival)
end

-- leave takes the waiter of that arrival out of the own line, if it is there, and frees what was set aside for it.
local function leave(slots, arrival)
  local i = find(slots, arrival)
  if i then
    local w = table.remove(slots.own.line, i)
    if w.called then
      slots.taken = slots.taken - w.cost
    end
  end
end

-- hold takes the slots of claim s for the calling node, whether there is room or not: a shadow counts, too.
local function hold(s)
  local slots = s.slots
  slots.own.held = slots.own.held + s.cost
  slots.taken = slots.taken + s.cost
end

-- line_up puts a waiter with the cost and the reserve of claim s in the own line. arrival is 0 for a waiter that arrives now. line_up returns the
-- waiter's arrival from then on, which may be later: no two waiters of a node have the same.
local function line_up(s, arrival, now)
  local slots = s.slots
  if arrival == 0 then
    arrival = max(now, newest + 1)
  end

  while find(slots, arrival) do
    arrival = arrival + 1
  end
  newest = max(newest, arrival)
  slots.last = max(slots.last, arrival)

  -- The line is in the order of arrivals.
  local i = #slots.own.line + 1
  while i > 1 and slots.own.line[i - 1].arrival > arrival do
    i = i - 1
  end

  table.insert(slots.own.line, i, {arrival = arrival, cost = s.cost, reserve = s.reserve, behind = 0})
  return arrival
end

-- for_each runs a function, leave or set_aside, for the slots of every claim. arrival is for leave.
local function for_each(claims, run, arrival)
  for _, s in ipairs(claims) do
    run(s.slots, arrival)
  end
end

-- leave_line takes the waiter of that arrival out of the lines of all claims, and gives the room that was set aside for it to the next waiters.
function leave_line(claims, arrival)
  for_each(claims, leave, arrival)
  for_each(claims, set_aside)
end

-- first_open returns the first moment, not before t, from which on no pause closes a claim, and the index of the claim whose pause ends last, nil if
-- no pause lasts beyond t. Shadows are left out.
function first_open(claims, t, now)
  local closed_by
  for _, s in ipairs(claims) do
    if not s.shadow and now + s.slots.pause > t then
      t, closed_by = now + s.slots.pause, s.index
    end
  end
  return t, closed_by
end

-- acquire takes the slots of all claims of a caller and returns nil, if all claims have room. Otherwise it takes none, and returns the index of the
-- first claim without room and, if the caller is patient, the caller's arrival in the line for that claim. arrival is when the caller came to a line
-- for slots before, 0 if it stands in none. In either case the caller leaves the lines in which it stood, and the room that is then free is set aside
-- for the next waiters.
function acquire(claims, arrival, patient, now)
  local missing -- the first claim without room
  for _, s in ipairs(claims) do
    if not admits(s, arrival) then
      missing = s
      break
    end
  end

  -- The caller gives back what was set aside for it, to take it as slots or to wait for the missing claim.
  for_each(claims, leave, arrival)
  local joined_at
  if not missing then
    for _, s in ipairs(claims) do
      hold(s)
    end
  elseif patient then
    joined_at = line_up(missing, arrival, now)
  end

  -- Slots that the caller gave back, or did not take, go to the next waiters.
  for_each(claims, set_aside)
  return missing and missing.index, joined_at
end

-- next_change returns in how long, in microseconds, there may be room even if no node calls: when all nodes have had the time to report to a budget
-- that was lost, or when the lease of a different node, or the places of its waiters, would end. It returns 0 if no waiter in the own line waits for
-- room, or if nothing will end.
function next_change(slots)
  local waits = false -- whether a waiter in the own line was not called
  for _, w in ipairs(slots.own.line) do
    waits = waits or not w.called
  end
  if not waits then
    return 0
  end

  local soonest

  -- at notes a change in that many microseconds.
  local function at(left)
    soonest = min(soonest or left, left)
  end

  if awaits_reports(slots) then
    at(SUSPECTED_AFTER - slots.age)
  end
  for _, m in ipairs(slots.nodes) do
    -- The places of a node's waiters end before its lease does.
    if m ~= slots.own then
      at(#m.line > 0 and m.left - LEASE + LINE_LEASE or m.left)
    end
  end
  return soonest or 0
end

-- ready returns the arrivals of the waiters of the calling node that were called, in this call of the script or before.
function ready(slots)
  local list = {}
  for _, w in ipairs(slots.own.line) do
    if w.called then
      list[#list + 1] = w.arrival
    end
  end
  return list
end

-- tell_called publishes to each other node which of its waiters this call of the script has called. Where publishing is forbidden, a node learns with
-- its next call which waiters were called.
function tell_called(slots, channel)
  local arrivals_of = {} -- by the id of a node: the arrivals of its waiters that this call of the script has called, with commas between
  for _, m in ipairs(slots.nodes) do
    for _, w in ipairs(m.line) do
      if w.fresh and m ~= slots.own then
        local before = arrivals_of[m.id] and arrivals_of[m.id] .. ',' or ''
        arrivals_of[m.id] = before .. string.format('%.0f', w.arrival)
      end
    end
  end

  for id, arrivals in pairs(arrivals_of) do
    redis.pcall('PUBLISH', channel .. id, arrivals .. ' ' .. slots.key)
  end
end
end

-- part: leases
-- A budget of slots is what a Concurrency limit counts: what each node holds, for as long as its lease lasts, and the waiters of each node.
-- docs/internals/in-flight.md says what it promises and why. This part reads and writes such budgets, and reads the reports of nodes; slots.lua gives
-- room.
--
-- Stored form, one string a budget: a MessagePack array
--   generation, count, seen, last, ends, age, lost, ban, probe, times, then for each node
--   id, number, held, left, size, then for each of its waiters
--   arrival, cost, reserve, behind
-- ends, left and age are lengths of time in microseconds, as they were at seen: until the end of the pause, below 0 after it; until the end of the
-- lease; and since the generation began. last is a distance from seen, and arrival a distance from last. A cost is below 0 if the waiter was called,
-- and left is below 0 if the lease is in its grace: see elapse. The form's version is part of the key.
--
-- needs: frame (max, min, ceil, floor, KEPT, IDLE, frame), penalty (penalty.remembered, penalty.forgive), row (penalty)
-- defines: count, elapse, read_slots, load_slots, newest, check_generation, report, shorten, save_slots

-- count returns how many slots a node takes: the slots that it holds, and the slots that are set aside for its waiters.
local function count(m)
  local sum = m.held
  for _, w in ipairs(m.line) do
    if w.called then
      sum = sum + w.cost
    end
  end
  return sum
end

-- elapse sets the fields of a budget that change with time, from what is stored: passed is how many microseconds have passed since the last write.
-- slots.nodes is a new list, without nodes whose lease has ended. The waiters of a silent node lose their places until the node reports again:
-- nothing is set aside for them, and they block nobody.
local function elapse(slots, passed)
  slots.passed, slots.nodes, slots.taken = passed, {}, 0
  slots.ends = slots.stored.ends - passed
  slots.pause, slots.age = max(0, slots.ends), min(SUSPECTED_AFTER, slots.stored.age + passed)

  for _, m in ipairs(slots.stored.nodes) do
    m.left, m.grace = math.abs(m.lease) - passed, m.lease < 0

    -- If no node has written for longer than a living node is silent, all nodes are gone or the clock was set forward. So a lease that would end soon
    -- is made longer, so that living nodes can report again. That is its grace, which it has once.
    if passed > SUSPECTED_AFTER and m.left < SUSPECTED_AFTER and not m.grace then
      m.left, m.grace = SUSPECTED_AFTER, true
    end

    -- Waiters have their places for a shorter time than nodes have their slots.
    m.line = m.left > LEASE - LINE_LEASE and m.waiters or {}
    if m.left > 0 then
      slots.nodes[#slots.nodes + 1] = m
      slots.taken = slots.taken + count(m)
    end
  end
end

-- read_slots returns the budget of a key whose stored form is raw, and when it was written. It raises an error if the text is no budget.
local function read_slots(key, raw)
  local v = cmsgpack.unpack(raw)
  for _, value in ipairs(v) do
    assert(type(value) == 'string' or math.abs(value) <= MAX_NUMBER)
  end

  local slots = {key = key, generation = v[1], count = v[2], last = v[3] + v[4], lost = v[7] == 1, ban = v[8] + 0,
    probe = v[9] + 0, times = v[10] + 0, stored = {ends = v[5], age = v[6], nodes = {}}}

  -- The nodes follow, each with its waiters. A sum raises an error if one of its numbers is a text or missing.
  local i = 11
  while v[i] do
    local m, size = {id = v[i], number = v[i + 1], held = v[i + 2], lease = v[i + 3], waiters = {}}, v[i + 4]
    assert(m.number + m.held + m.lease and size >= 0 and size == floor(size))
    local stop = i + 5 + 4 * size -- a node has five values, and each of its waiters four
    for k = i + 5, stop - 4, 4 do
      m.waiters[#m.waiters + 1] = {arrival = slots.last + v[k], cost = math.abs(v[k + 1]), called = v[k + 1] < 0,
        reserve = v[k + 2] + 0, behind = v[k + 3] + 0}
    end
    i = stop
    slots.stored.nodes[#slots.stored.nodes + 1] = m
  end

  return slots, v[3]
end

-- load_slots returns the budget of a key as it is now. The budget is empty if the key is not there, holds something else, or would have expired by
-- the script's clock. Lengths of time are microseconds.
--
--   generation  of the key: a random number
--   count    how often the budget was written since the generation began
--   last     when the last waiter arrived: no two arrive together
--   ends     for how long the budget is closed, below 0 after the end of the pause
--   pause    the same, but not below 0
--   ban, probe, times   of the last penalty: see age.lua
--   age      how long ago the generation began, at most SUSPECTED_AFTER
--   lost     whether some node knew a later state of the budget than the server had
--   nodes    the nodes that hold slots or wait
--   own      the node that calls, after report; without a report there is none
--   n        the limit, after report
--   taken    the costs that are held, or set aside for waiters that were called
--   stored   ends, age and nodes as they were written
--   passed   how long ago the budget was written
--   seen     the time of this call
local function load_slots(key, now)
  local raw = redis.call('GET', key)
  local known, slots, wrote = pcall(read_slots, key, raw or '')
  if not known or now - wrote > max(slots.stored.ends + penalty.remembered(slots), LEASE) + KEPT then
    slots, wrote = {key = key, generation = 0, count = 0, last = 0, ban = 0, probe = 0, times = 0,
      stored = {ends = 0, age = 0, nodes = {}}}, now
  end
  slots.seen = now
  elapse(slots, max(0, now - wrote))
  return slots
end

-- newest is when the last waiter of any budget of the call arrived. A new waiter arrives later than that, so a waiter that moves to another line
-- keeps its turn there.
local newest = 0

-- check_generation notes in slots.lost that the server has lost a later state of the budget, if a node knows one: generation and count are the last
-- that the node heard, or 0. A budget that has no generation, or has lost the end of its generation, begins a new generation, whose name is seed.
local function check_generation(slots, generation, count, seed)
  if generation ~= 0 and (generation ~= slots.generation or count > slots.count) then
    slots.lost = true
  end
  if slots.generation == 0 or (generation == slots.generation and count > slots.count) then
    slots.generation, slots.age = seed, 0
  end
end

-- report reads the report of the node of an id from the frame, puts it in the place of the node's last report, and returns true. It makes the node
-- the budget's own, sets the limit n, checks the generation (seed is the name of a new one), and raises newest. It returns false if a later report
-- came before: then the budget, which is changed in part, must not be used. A report says
--
--   n, number, held    the limit, the number of the report among the reports of the node, and how many slots the node holds
--   generation, writes the budget's generation and count in the last answer to the node, or 0
--   ago, clock         how long ago the node sent the call of that answer, and whether it can tell
--   last               when the last of the node's own waiters arrived anywhere
--   max_kept, size     how many waiters of its line are kept for each reserve, and how many are reported
--   arrival, cost, reserve and behind of each waiter; behind is the cost of the waiters behind it that are not reported
local function report(slots, id, seed)
  local generation, writes, ago, clock, last, size
  local m = {id = id, left = LEASE, line = {}}
  slots.n, m.number, m.held, generation, writes, ago, clock, last, m.max_kept, size, cursor =
    struct.unpack('<dddddddddd', frame, cursor)

  -- The budget was written last by the call that told the node of generation and writes, or by a later call. If that write seems to be longer ago than
  -- ago, the clock was set forward, and no more than ago has passed.
  local is_known_age = clock ~= ELAPSED_UNKNOWN and generation == slots.generation and writes <= slots.count
  if is_known_age and slots.passed > ago + STALL then
    elapse(slots, ago)
  end

  check_generation(slots, generation, writes, seed)
  newest = max(newest, last, slots.last)

  -- This report takes the place of the node's last one. Only the budget knows which of the waiters were called.
  local called = {}
  for i = #slots.nodes, 1, -1 do
    local old = slots.nodes[i]
    if old.id == id then
      -- A later report came before, so this report is a late copy.
      if old.number > m.number then
        return false
      end
      for _, w in ipairs(old.line) do
        called[w.arrival] = w.called
      end
      slots.taken = slots.taken - count(old)
      table.remove(slots.nodes, i)
    end
  end

  for i = 1, size do
    local arrival, cost, reserve, behind
    arrival, cost, reserve, behind, cursor = struct.unpack('<dddd', frame, cursor)
    m.line[i] = {arrival = arrival, cost = cost, reserve = reserve, behind = behind, called = called[arrival]}
  end

  slots.nodes[#slots.nodes + 1], slots.own = m, m
  slots.taken = slots.taken + count(m)
  return true
end

-- shorten keeps, of the line of node m, all waiters that were called and, for each reserve, the first m.max_kept of the other waiters. max_kept is at
-- least 1. The costs of the waiters that are left out are added to the field behind of the last other waiter that is kept for their reserve.
local function shorten(m)
  local line, size, last = {}, {}, {} -- by reserve, size is how many of the other waiters are kept, and last the last of these
  for _, w in ipairs(m.line) do
    local k = size[w.reserve] or 0
    if w.called then
      line[#line + 1] = w
    elseif k < m.max_kept then
      line[#line + 1], size[w.reserve], last[w.reserve] = w, k + 1, w
    else
      last[w.reserve].behind = last[w.reserve].behind + w.cost + w.behind
    end
  end

  m.line = line
end

-- save_slots shortens the calling node's line, writes the budget, and has its key expire when nothing in it can matter any more. Until then even an
-- empty budget is kept: without the key, nodes that heard of the budget would take it for lost.
local function save_slots(slots)
  slots.count = slots.count + 1
  if slots.ends + penalty.remembered(slots) <= 0 then
    slots.ends = 0 -- the last penalty is forgotten
    penalty.forgive(slots)
  end

  -- Only the calling node's line can have grown: the lines of other nodes were shortened when they were saved.
  if slots.own then
    shorten(slots.own)
  end

  local v = {slots.generation, slots.count, slots.seen, slots.last - slots.seen, slots.ends, slots.age,
    slots.lost and 1 or 0, slots.ban, slots.probe, slots.times}
  for _, m in ipairs(slots.nodes) do
    -- A node that neither holds slots nor waits needs no part of the record.
    if m.held > 0 or #m.line > 0 then
      local k = #v
      v[k + 1], v[k + 2], v[k + 3], v[k + 4], v[k + 5] = m.id, m.number, m.held, m.grace and -m.left or m.left, #m.line
      for _, w in ipairs(m.line) do
        k = #v
        v[k + 1], v[k + 2], v[k + 3], v[k + 4] = w.arrival - slots.last, w.called and -w.cost or w.cost, w.reserve, w.behind
      end
    end
  end

  redis.call('SET', slots.key, cmsgpack.pack(v), 'PX',
    string.format('%.0f', ceil((max(slots.ends + penalty.remembered(slots), LEASE) + IDLE) / 1000)))
end
