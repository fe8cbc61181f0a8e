-- Giving room in a flight: to those who wait in line, in the order in which they
-- came, and to those who ask.
--
-- A seat s is one charge that wants room: flight, cost, reserve and shadow.

-- quiet reports whether nothing may be given, because not all nodes have said
-- yet what they hold.
local function quiet(f)
  return f.lost and f.age < QUIET
end

-- stopped reports whether w waits for more than there is, so that nobody who
-- came later is served. A reserve alone stops only its owner; and so does a cost
-- that never fits, because the limit became smaller.
local function stopped(f, w)
  return not w.aside and f.taken + w.cost > f.n and w.cost <= f.n - w.reserve
end

-- hides reports whether somebody who is not in the record waits behind w and
-- could go.
local function hides(f, w)
  return w.behind > 0 and f.taken + 1 + w.reserve <= f.n
end

-- set_aside gives the line what room there is.
local function set_aside(f)
  if f.taken >= f.n or quiet(f) then
    return
  end
  local line = {}
  for _, m in ipairs(f.nodes) do
    for _, w in ipairs(m.line) do
      line[#line + 1] = w
    end
  end
  table.sort(line, function(a, b) return a.came < b.came end)
  for _, w in ipairs(line) do
    if stopped(f, w) then
      return
    end
    if not w.aside and f.taken + w.cost <= f.n - w.reserve then
      w.aside, w.fresh = true, true
      f.taken = f.taken + w.cost
    end
    if hides(f, w) then
      return
    end
  end
end

-- in_line returns the index of the own waiter who came then.
local function in_line(f, came)
  for i, w in ipairs(f.own.line) do
    if w.came == came then
      return i
    end
  end
end

-- has_room reports whether the seat can be taken now by one who came then, 0
-- for just now.
local function has_room(s, came)
  local f = s.flight
  if s.shadow then
    return true
  end
  local i = came ~= 0 and in_line(f, came)
  if i then
    return f.own.line[i].aside and f.taken <= f.n - s.reserve
  end
  if quiet(f) or f.taken + s.cost > f.n - s.reserve then
    return false
  end
  for _, m in ipairs(f.nodes) do
    for _, w in ipairs(m.line) do
      if (came == 0 or w.came < came) and (stopped(f, w) or hides(f, w)) then
        return false
      end
    end
  end
  return true
end

-- leave takes the own waiter who came then out of the line.
local function leave(f, came)
  local i = in_line(f, came)
  if i then
    local w = table.remove(f.own.line, i)
    if w.aside then
      f.taken = f.taken - w.cost
    end
  end
end

-- take holds the seat.
local function take(s)
  local f = s.flight
  f.own.held = f.own.held + s.cost
  f.taken = f.taken + s.cost
end

-- line_up puts the seat in line, for one who came then or, if that is 0, now. It
-- returns when: no two of a node wait in a flight under one name.
local function line_up(s, came, now)
  local f = s.flight
  if came == 0 then
    came = max(now, newest + 1)
  end
  while in_line(f, came) do
    came = came + 1
  end
  newest = max(newest, came)
  f.last = max(f.last, came)
  local i = #f.own.line + 1
  while i > 1 and f.own.line[i - 1].came > came do
    i = i - 1
  end
  table.insert(f.own.line, i, {came = came, cost = s.cost, reserve = s.reserve, behind = 0})
  return came
end

-- each calls a function of the flight of every seat.
local function each(seats, call, came)
  for _, s in ipairs(seats) do
    call(s.flight, came)
  end
end

-- step_out takes one who came then out of the lines of all seats.
local function step_out(seats, came)
  each(seats, leave, came)
  each(seats, set_aside)
end

-- opening returns the first moment not before t at which no pause closes a seat,
-- and the index of the one that closes last.
local function opening(seats, t, now)
  local gate
  for _, s in ipairs(seats) do
    if not s.shadow and now + s.flight.pause > t then
      t, gate = now + s.flight.pause, s.index
    end
  end
  return t, gate
end

-- board takes all seats, or none, for one who came then. It returns the index of
-- the first that has no room, and, if its caller is patient, when that came to
-- stand in line.
local function board(seats, came, patient, now)
  local missing
  for _, s in ipairs(seats) do
    if not has_room(s, came) then
      missing = missing or s
    end
  end
  each(seats, leave, came)
  local stands
  if not missing then
    for _, s in ipairs(seats) do
      take(s)
    end
  elseif patient then
    stands = line_up(missing, came, now)
  end
  each(seats, set_aside)
  return missing and missing.index, stands
end

-- change returns in how long there may be room without anybody's doing: when a
-- flight that was lost is known again, or a lease ends; nil if nobody in the own line
-- waits for that.
local function change(f)
  local soonest
  local function at(left)
    soonest = min(soonest or left, left)
  end
  for _, w in ipairs(f.own.line) do
    if not w.aside then
      if quiet(f) then
        at(QUIET - f.age)
      end
      for _, m in ipairs(f.nodes) do
        if m ~= f.own then
          at(m.left)
        end
      end
      return soonest
    end
  end
end

-- ready returns who in the own line has room set aside, and, below 0, in how long the
-- node should ask again at the latest.
local function ready(f)
  local list = {}
  for _, w in ipairs(f.own.line) do
    if w.aside then
      list[#list + 1] = w.came
    end
  end
  local left = change(f)
  if left then
    list[#list + 1] = -left
  end
  return list
end

-- wake tells other nodes what was set aside for those who wait in them. Who may
-- not publish is heard with their next call.
local function wake(f, channel)
  local names = {}
  for _, m in ipairs(f.nodes) do
    for _, w in ipairs(m.line) do
      if w.fresh and m ~= f.own then
        names[m.id] = names[m.id] and names[m.id] .. ',' or ''
        names[m.id] = names[m.id] .. string.format('%.0f', w.came)
      end
    end
  end
  for id, came in pairs(names) do
    redis.pcall('PUBLISH', channel .. id, came .. ' ' .. f.key)
  end
end
