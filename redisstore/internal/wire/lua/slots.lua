-- Giving slots: to the waiters in line, in the order in which they arrived, and to new
-- callers.
--
-- A claim s is one charge that wants slots: their budget, cost, reserve and shadow.
--
-- needs: frame (max, min), leases (newest)
-- defines: set_aside, leave_line, first_open, acquire, next_change, ready, tell_called

local set_aside, leave_line, first_open, acquire, next_change, ready, tell_called
if slots_count > 0 then -- Lua makes all functions anew in each call

-- awaits_reports reports whether nothing may be given, because not all nodes have reported
-- yet what they hold.
local function awaits_reports(slots)
  return slots.lost and slots.age < SUSPECTED_AFTER
end

-- blocks reports whether w waits for more room than there is, so that no later arrival is
-- served. A reserve alone stops only its owner; and so does a cost that never fits, because
-- the limit became smaller.
local function blocks(slots, w)
  return not w.called and slots.taken + w.cost > slots.n and w.cost <= slots.n - w.reserve
end

-- has_unreported reports whether a waiter that was left out of a report waits behind w and
-- could go.
local function has_unreported(slots, w)
  return w.behind > 0 and slots.taken + 1 + w.reserve <= slots.n
end

-- set_aside gives the line what room there is.
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

  -- Waiters of all nodes go in the order in which they came to the fleet.
  table.sort(line, function(a, b) return a.arrival < b.arrival end)
  for _, w in ipairs(line) do
    if blocks(slots, w) then
      return
    end
    if not w.called and slots.taken + w.cost <= slots.n - w.reserve then
      w.called, w.fresh = true, true
      slots.taken = slots.taken + w.cost
    end

    -- A waiter that was left out of its node's report could go next, so nobody behind is served before the node has told more.
    if has_unreported(slots, w) then
      return
    end
  end
end

-- blocked_behind reports whether a waiter that arrived before has no room, or was left out
-- of a report and could go; arrival is 0 for a caller that does not wait yet.
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

-- find returns the index of the own waiter of that arrival.
local function find(slots, arrival)
  for i, w in ipairs(slots.own.line) do
    if w.arrival == arrival then
      return i
    end
  end
end

-- admits reports whether the claim can be had now by a waiter of that arrival, 0 for one
-- that does not wait yet.
local function admits(s, arrival)
  local slots = s.slots
  if s.shadow then
    return true
  end
  local i = arrival ~= 0 and find(slots, arrival)
  if i then
    return slots.own.line[i].called and slots.taken <= slots.n - s.reserve
  end
  return not awaits_reports(slots) and slots.taken + s.cost <= slots.n - s.reserve and not blocked_behind(slots, arrival)
end

-- leave takes the own waiter of that arrival out of the line.
local function leave(slots, arrival)
  local i = find(slots, arrival)
  if i then
    local w = table.remove(slots.own.line, i)
    if w.called then
      slots.taken = slots.taken - w.cost
    end
  end
end

-- hold takes the slots of a claim.
local function hold(s)
  local slots = s.slots
  slots.own.held = slots.own.held + s.cost
  slots.taken = slots.taken + s.cost
end

-- line_up puts a claim in line for a waiter of that arrival. An arrival of 0 is a waiter that
-- arrives now. It returns the arrival: no two waiters of a node have the same.
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
  local i = #slots.own.line + 1
  while i > 1 and slots.own.line[i - 1].arrival > arrival do
    i = i - 1
  end

  table.insert(slots.own.line, i, {arrival = arrival, cost = s.cost, reserve = s.reserve, behind = 0})
  return arrival
end

-- for_each calls a function of the slots of every claim.
local function for_each(claims, call, arrival)
  for _, s in ipairs(claims) do
    call(s.slots, arrival)
  end
end

-- leave_line takes the waiter of that arrival out of the lines of all claims.
function leave_line(claims, arrival)
  for_each(claims, leave, arrival)
  for_each(claims, set_aside)
end

-- first_open returns the first moment not before t at which no pause closes a claim,
-- and the index of the one that closes last.
function first_open(claims, t, now)
  local gate
  for _, s in ipairs(claims) do
    if not s.shadow and now + s.slots.pause > t then
      t, gate = now + s.slots.pause, s.index
    end
  end
  return t, gate
end

-- acquire takes all claims, or none, for a caller of that arrival. It returns the index of
-- the first that has no room, and, if its caller is patient, when that arrived in line.
function acquire(claims, arrival, patient, now)
  local missing
  for _, s in ipairs(claims) do
    if not admits(s, arrival) then
      missing = missing or s
    end
  end

  -- A caller stands in one line at a time, and gives back what was set aside for it elsewhere.
  for_each(claims, leave, arrival)
  local stands
  if not missing then
    for _, s in ipairs(claims) do
      hold(s)
    end
  elseif patient then
    stands = line_up(missing, arrival, now)
  end

  -- Slots that the caller gave back, or did not take, go to the next waiters.
  for_each(claims, set_aside)
  return missing and missing.index, stands
end

-- next_change returns in how long there may be room though no node does anything: when a
-- budget that was lost is known again, or a lease or the places of a silent node end; 0 if no waiter in
-- the own line waits for that.
function next_change(slots)
  local soonest
  local function at(left)
    soonest = min(soonest or left, left)
  end

  for _, w in ipairs(slots.own.line) do
    if not w.called then
      if awaits_reports(slots) then
        at(SUSPECTED_AFTER - slots.age)
      end
      for _, m in ipairs(slots.nodes) do
        -- The places of a silent node end before its lease does.
        if m ~= slots.own then
          at(#m.line > 0 and m.left - LEASE + LINE_LEASE or m.left)
        end
      end
      return soonest or 0
    end
  end

  return 0
end

-- ready returns the arrivals of the waiters of the calling node that were called.
function ready(slots)
  local list = {}
  for _, w in ipairs(slots.own.line) do
    if w.called then
      list[#list + 1] = w.arrival
    end
  end
  return list
end

-- tell_called publishes to each other node which of its waiters were called. If the program may not
-- publish, all nodes hear of it with their next call.
function tell_called(slots, channel)
  local names = {}
  for _, m in ipairs(slots.nodes) do
    for _, w in ipairs(m.line) do
      if w.fresh and m ~= slots.own then
        names[m.id] = names[m.id] and names[m.id] .. ',' or ''
        names[m.id] = names[m.id] .. string.format('%.0f', w.arrival)
      end
    end
  end

  for id, arrival in pairs(names) do
    redis.pcall('PUBLISH', channel .. id, arrival .. ' ' .. slots.key)
  end
end
end
