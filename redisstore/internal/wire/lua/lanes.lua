-- The lanes of shares in a line; docs/internals/line.md says what they promise. Without shares nothing here is
-- run, or even made: Lua makes the functions of a script in each call.
--
-- Lanes take turns by start tags. A lane has a finish tag, to which what it is dealt is added, divided by its weight.
-- Dealt is what the cut of a lane moves over. Next is the lane with waiters whose finish tag is the least; that becomes the
-- class's tag, the tag of what was dealt last. A lane that gets its first waiter has a finish tag that is not below the class's. So it has no
-- credit from the time when it was away.
--
-- A line may have a hundred lanes, and a call is about few of them. So lanes are kept in columns, each a list with a number
-- for each lane, and one with the rest as text. Only the lanes that a call changes become tables like those of
-- queue.lua, with class, share, weight, cost, finish, and index, their place in the columns. The lanes without a share
-- are the first three.
--
-- many is
--   base      the ticket of a new lane: not below those of lanes that were forgotten
--   v         the tag of each class. Stored finish tags are counted from it
--   sum       by class: what waits in all its lanes
--   class, share, weight, cost  of each lane; the last two of the last caller that came
--   finish, left, offered, since, holds, step
--   flags     NEWS if the cut was not published, and HOLES if the lane has some
--   rest      the text; false if the lane is a table
--   open      the tables, by index

local make_lanes
do
local made
function lanes_of()
  made = made or make_lanes()
  return made
end
end

function make_lanes()
local CLASSES = queue.CLASSES
local UNIT = 1048576 -- of tags: what a cost of 1 adds with a weight of 1
local MOST_LANES = 128
local MOST_LINED = 3000 -- a line of more bytes gets no new lanes
local COMMON = 1 -- the share whose lane all others share when there are too many
local NEWS, HOLES = 1, 2
local COLUMNS = {'class', 'share', 'weight', 'cost', 'finish', 'left', 'offered', 'since', 'holds', 'step', 'flags'}
local COME = 'cuts %.0f %.0f %s%s'
local left, move, min, max, floor, ceil = queue.left, queue.move, min, max, floor, ceil
local lanes, served = {}, served_of()

-- set writes a table into the columns.
local function set(m, c)
  local i = c.index
  m.finish[i], m.left[i], m.offered[i], m.since[i], m.holds[i], m.step[i] = c.finish, left(c), c.offered, c.since, c.holds, c.step
  m.flags[i] = (c.told < c.cut and NEWS or 0) + (#c.holes > 0 and HOLES or 0)
end
function lanes.settle(q, c)
  local m, i = q.many, c.index
  local before = m.left[i] + m.offered[i]
  set(m, c)
  m.sum[c.class] = m.sum[c.class] + m.left[i] + m.offered[i] - before
end

-- push adds a table to the columns.
local function push(m, c, class, share)
  local i = #m.share + 1
  c.class, c.share, c.weight, c.cost, c.finish, c.index = class, share, 1, 1, m.v[class], i
  m.class[i], m.share[i], m.weight[i], m.cost[i], m.rest[i], m.open[i] = class, share, 1, 1, false, c
  set(m, c)
  m.sum[class] = m.sum[class] + m.left[i] + m.offered[i]
  return c
end
local function empty(base)
  local m = {base = base, v = {0, 0, 0}, sum = {0, 0, 0}, rest = {}, open = {}, served = {}}
  for _, name in ipairs(COLUMNS) do
    m[name] = {}
  end
  return m
end
-- begin gives a line lanes.
function lanes.begin(q)
  local m = empty(1)
  q.many = m
  for k = 1, CLASSES do
    push(m, q[k], k, 0)
  end
end
-- numbers_of returns the numbers of a text.
local function numbers_of(text)
  local v = {cmsgpack.unpack(text)}
  assert(#v >= 3 and #v % 3 == 0)
  for _, x in ipairs(v) do
    assert(x % 1 == 0 and x <= MAX_NUMBER and x >= -MAX_NUMBER)
  end
  for h = 4, #v, 3 do
    assert(v[h] > v[h + 1])
  end
  return v
end
-- table_of returns the table of the lane at an index.
local function table_of(m, i)
  local c = m.open[i]
  if c then
    return c
  end
  local sound, v = pcall(numbers_of, m.rest[i])
  if not sound then
    v = {m.base + m.left[i], 0, 0}
  end
  local joined, gone, holes = v[1], 0, {}
  for h = 4, #v, 3 do
    holes[#holes + 1] = {joined - v[h], joined - v[h + 1], v[h + 2]}
    gone = gone + v[h + 2]
  end
  local cut = joined - m.left[i] - gone
  c = {joined = joined, cut = cut, offered = m.offered[i], since = m.since[i], step = m.step[i],
    told = m.flags[i] % HOLES == NEWS and FRONT or cut, holds = m.holds[i], round = v[2], lapsed = joined - v[3], holes = holes,
    class = m.class[i], share = m.share[i], weight = m.weight[i], cost = m.cost[i], finish = m.finish[i], index = i}
  m.open[i], m.rest[i] = c, false
  return c
end
-- text_of returns the rest of a table.
local function text_of(c)
  local v = {c.joined, c.round, c.joined - c.lapsed}
  for _, h in ipairs(c.holes) do
    local i = #v
    v[i + 1], v[i + 2], v[i + 3] = c.joined - h[1], c.joined - h[2], h[3]
  end
  return cmsgpack.pack(unpack(v))
end
-- read makes a line of what is stored.
function lanes.read(r, v)
  local q, m, columns = {id = v[2], began = v[3]}, empty(v[4]), v[6]
  local size, fractions, greatest, least = #v[7], v[2] % 1 + v[3] % 1 + v[4] % 1, 0, 0
  assert(size >= CLASSES and size <= MOST_LANES + CLASSES and #columns == #COLUMNS)
  for k, name in ipairs(COLUMNS) do
    local column = columns[k]
    assert(#column == size)
    for i = 1, size do
      local x = column[i]
      fractions, greatest, least = fractions + x % 1, max(greatest, x), min(least, x)
    end
    m[name] = column
  end
  assert(fractions == 0 and greatest <= MAX_NUMBER and least >= -MAX_NUMBER)
  m.rest, m.full = v[7], served.read(m, v[8], r.lined) > MOST_LINED
  for i = 1, size do
    local class, since = m.class[i], m.since[i]
    m.sum[class] = m.sum[class] + m.left[i] + m.offered[i]
    m.since[i] = since > 0 and v[3] + since or 0
    assert(m.weight[i] >= 1 and m.cost[i] >= 0 and m.left[i] >= 0 and m.offered[i] >= 0)
  end
  q.many = m
  for k = 1, CLASSES do
    local c = table_of(m, k)
    c.reserve, c.horizon = v[5][2 * k - 1], v[5][2 * k]
    assert(c.share == 0 and c.class == k and c.horizon % 1 == 0 and c.horizon >= 0 and c.horizon <= MAX_NUMBER)
    q[k] = c
  end
  return q
end
-- is_idle reports whether the lane at an index can be forgotten.
local function is_idle(m, i)
  local class = m.class[i]
  return i > CLASSES and m.left[i] <= 0 and m.offered[i] <= 0 and (m.finish[i] <= m.v[class] or m.sum[class] <= 0)
end

-- text returns the line as it is stored.
local function text(q, m)
  local began, columns, rest, list, limits, size = q.began, {}, {}, {}, {}, 0
  for k = 1, #COLUMNS do
    columns[k] = {}
  end
  for i = 1, #m.share do
    if is_idle(m, i) then
      m.base = max(m.base, (m.open[i] or table_of(m, i)).joined)
    else
      size = size + 1
      for k, name in ipairs(COLUMNS) do
        columns[k][size] = m[name][i]
      end
      columns[5][size] = max(0, m.finish[i] - m.v[m.class[i]])
      columns[8][size] = m.since[i] > 0 and max(1, m.since[i] - began) or 0
      rest[size], list[size] = m.rest[i] or text_of(m.open[i]), served.of(m, i)
    end
  end
  for k = 1, CLASSES do
    limits[2 * k - 1], limits[2 * k] = q[k].reserve, q[k].horizon
  end
  return served.pack(m, {true, q.id, began, m.base, limits, columns, rest}, list)
end

-- squeeze makes one hole of all those of a lane, from the cut on: which tickets are gone is a guess.
local function squeeze(m)
  for i = 1, #m.share do
    local c = table_of(m, i)
    local gone = 0
    for _, h in ipairs(c.holes) do
      gone = gone + h[3]
    end
    c.holes = gone > 0 and {{c.cut, c.joined, gone}} or {}
  end
end

-- write returns the line as it is stored; '' if it is too large: then it is lost.
function lanes.write(r, q)
  local all = text(q, q.many)
  if #all > MAX_STORED then
    squeeze(q.many)
    all = text(q, q.many)
  end
  return #all <= MAX_STORED and all or ''
end

-- find returns the lane of a share in a class; nil if there is none.
function lanes.find(q, class, share)
  local m = q.many
  if share == 0 then
    return q[class]
  end
  local C, S = m.class, m.share
  for i = CLASSES + 1, #S do
    if S[i] == share and C[i] == class then
      return m.open[i] or table_of(m, i)
    end
  end
end

-- lane_for returns the lane of a share in a class. If there are too many lanes, it is the common one.
function lanes.lane_for(q, class, share)
  local m, c = q.many, lanes.find(q, class, share)
  if c then
    return c
  elseif share ~= COMMON and (#m.share >= MOST_LANES or m.full) then
    return lanes.lane_for(q, class, COMMON)
  end
  c = queue.unused()
  c.joined, c.cut, c.told, c.lapsed, c.round = m.base, m.base, m.base, m.base, m.base > 1 and now or 0
  return push(m, c, class, share)
end

-- join returns the lane of a share for a caller that stands in it from now on.
function lanes.join(q, class, share, weight, cost)
  if not q.many then
    lanes.begin(q)
  end
  local m, c = q.many, lanes.lane_for(q, class, share)
  if left(c) <= 0 then
    c.finish = max(c.finish, m.v[class])
  end
  c.weight, c.cost = c.share == COMMON and 1 or weight, cost
  m.weight[c.index], m.cost[c.index] = c.weight, cost
  return c
end

-- beside returns what is dealt in the other lanes of a class before a caller of lane c, which may be nil, with so much
-- of the lane before it.
function lanes.beside(q, class, c, weight, own)
  local m = q.many
  local C, F, L, O, W, v = m.class, m.finish, m.left, m.offered, m.weight, m.v[class]
  local self = c and c.index or 0
  local tag, sum = max(v, c and c.finish or v) + floor(own * UNIT / weight), 0
  for i = 1, #C do
    if C[i] == class and i ~= self then
      sum = sum + O[i]
      if L[i] > 0 and F[i] < tag then
        sum = sum + min(L[i], ceil((tag - F[i]) * W[i] / UNIT))
      end
    end
  end
  return sum
end

-- deal adds what a lane is dealt to its finish tag.
local function deal(m, c, amount)
  local tag = max(c.finish, m.v[c.class])
  m.v[c.class] = max(m.v[c.class], tag + floor(max(0, amount - c.cost) * UNIT / c.weight))
  c.finish = tag + floor(amount * UNIT / c.weight)
end

-- complete deals a waiter that came, and waits for room, the rest of what it wants. Else each lane would be dealt a part of what
-- its first waiter wants, and the parts would be used by nobody.
function lanes.complete(q, c, w, cost)
  local stop = w.ticket + cost
  if w.ticket ~= FRONT and w.ticket < c.cut and stop > c.cut then
    local passed = move(c, min(stop, c.joined) - c.cut)
    c.offered = c.offered + passed
    deal(q.many, c, passed)
  end
  c.step, c.since = 0, now -- its callers live
  lanes.settle(q, c)
end

-- leave notes what it means for the turns of lanes that a caller with a ticket starts, or leaves; was is how much of its cost counted. One whose
-- turn had come was counted for the lane when it was dealt.
function lanes.leave(q, c, w, cost, was, starts)
  local m = q.many
  if not starts then
    if was > 0 and w.ticket ~= FRONT and w.ticket < c.cut and c.step == 0 then
      lanes.refund(q, c, cost)
    end
  elseif w.state == queue.WAITS or w.state == queue.COUNTED then
    if w.ticket >= c.cut then
      deal(m, c, cost)
    end
  end
end

-- refund takes back what a start counted for a lane.
function lanes.refund(q, c, cost)
  c.finish = max(q.many.v[c.class], c.finish - floor(cost * UNIT / c.weight))
  q.many.finish[c.index] = c.finish
end

-- start counts a start of a caller that never stood in the line.
function lanes.start(q, class, share, weight, cost)
  local m = q.many
  if m.sum[class] > 0 then
    local c = lanes.join(q, class, share, weight, cost)
    deal(m, c, cost)
    lanes.settle(q, c)
  end
end

-- free notes that there may be room for waiters whose turn has come.
function lanes.free(q)
  local m = q.many
  for i = 1, #m.share do
    if m.offered[i] > 0 then
      local c = table_of(m, i)
      c.holds, c.told = 0, FRONT
      set(m, c)
    end
  end
end

-- is_left reports whether a waiter of a class was not offered anything.
function lanes.is_left(q, class)
  local C, L = q.many.class, q.many.left
  for i = 1, #C do
    if L[i] > 0 and C[i] == class then
      return true
    end
  end
  return false
end

-- offer deals the lanes of a class so much room, by their turns. Where there is much room for a few lanes, more is
-- dealt at once.
local function offer(q, m, class, amount, active)
  local C, F, L = m.class, m.finish, m.left
  local least = floor(amount / (4 * active))
  while amount > 0 do
    local first, tag, next_tag = nil, math.huge, math.huge
    for i = 1, #C do
      if L[i] > 0 and C[i] == class then
        local f = F[i]
        if f < tag then
          first, next_tag, tag = i, tag, f
        elseif f < next_tag then
          next_tag = f
        end
      end
    end
    if not first then
      break
    end
    local c = table_of(m, first)
    local passed = move(c, max(c.cost, least, min(amount, ceil((next_tag - tag) * c.weight / UNIT))))
    c.offered, c.since, amount = c.offered + passed, now, amount - max(passed, 1)
    deal(m, c, passed)
    lanes.settle(q, c)
  end
end

-- call offers the lanes of a class what room there is within the horizon. It returns how much is offered then, and whether a
-- waiter should hurry. A lane whose offers have lapsed claims no room until one of its waiters comes: its cut goes over
-- twice as much each time.
function lanes.call(r, u, q, class, now, taken)
  local m, limits = q.many, q[class]
  if m.sum[class] <= 0 then
    return 0, false
  end
  local C, L, O, S, H, P = m.class, m.left, m.offered, m.since, m.holds, m.step
  local reserve, horizon = min(limits.reserve, u.n - 1), limits.horizon
  local soon = turn.units(u, reserve, now + floor(horizon / 3)) > 0
  local lapse, slow, open, claimed, hurry, active = max(ASK_SOON, floor(horizon / 4)), r.paused > 0, nil, 0, false, 0
  for i = 1, #C do
    if C[i] == class and (L[i] > 0 or O[i] > 0) then
      H[i] = min(H[i], now + queue.MOST_HELD)
      local near, since = soon and now > H[i], S[i]
      if near then
        since = since == 0 and now or min(since, now)
      elseif O[i] > 0 then
        open = open or turn.at(u, reserve, now, 1, 1)
        since = max(open, H[i])
      else
        since = 0
      end
      local lapses = near and O[i] > 0 and now - since > lapse
      if lapses and slow then -- in a slow start the row has room that nobody can take
        local t = earliest(search_for(u, 1, reserve, now, 0, false), now)
        near = not t or t <= now + floor(horizon / 3)
        since = near and since or now
      end
      S[i] = since
      local c = m.open[i]
      if c then
        c.since, c.holds = since, H[i]
      end
      if near and lapses then
        c = table_of(m, i)
        c.step = max(2 * c.step, c.offered)
        c.round, c.lapsed, c.since = now, c.cut, now
        c.offered = move(c, c.step)
        lanes.settle(q, c)
      end
      claimed = claimed + (P[i] == 0 and O[i] or 0)
      hurry, active = hurry or near, active + 1
    end
  end
  local amount = turn.units(u, reserve, now + horizon) - taken - claimed
  if amount > 0 then
    offer(q, m, class, amount, active)
    claimed = 0
    for i = 1, #C do
      claimed = claimed + (C[i] == class and P[i] == 0 and O[i] or 0)
    end
  end
  return claimed, hurry
end

-- tell publishes the cuts that are news; see queue.tell.
function lanes.tell(r, q, channel)
  local m, news, gone = q.many, {}, false
  for i = 1, #m.flags do
    local flags = m.flags[i]
    if flags % HOLES == NEWS then
      news[#news + 1] = i
    end
    gone = gone or flags >= HOLES
  end
  if not (q.hurry or q.event or gone) then
    return 0
  elseif #news == 0 then
    return 1
  end
  local cuts = {}
  for k, i in ipairs(news) do
    local c = table_of(m, i)
    c.told, c.news = c.cut, 1
    set(m, c)
    cuts[k] = string.format('%.0f %.0f %.0f ', c.class, c.share, c.cut)
  end
  redis.pcall('PUBLISH', channel, string.format(COME, q.id, #news, table.concat(cuts), r.key))
  return 2
end

-- turns is queue.turns, and returns what to say of the lanes of shares that this call is about. Where lanes are
-- served evenly, a lane's first waiter starts when the others have been dealt as much as their weights allow until its tag.
function lanes.turns(q, u, now)
  local m, first, last, soon, told = q.many, {0, 0, 0}, {0, 0, 0}, nil, {}
  local C, L, O, W = m.class, m.left, m.offered, m.weight
  local before = 0
  for class = 1, CLASSES do
    local all, rest, offered, weights = before + m.sum[class], 0, 0, 0
    for i = 1, #C do
      if C[i] == class and (L[i] > 0 or O[i] > 0) then
        rest, offered, weights = rest + L[i], offered + O[i], weights + (L[i] > 0 and W[i] or 0)
      end
    end
    local reserve, from, to, least = min(q[class].reserve, u.n - 1), 0, 0, all - rest + 1
    if rest > 0 then
      from, to = turn.at(u, reserve, now, 1, least) - now, turn.at(u, reserve, now, 1, all) - now
    end
    if not soon and m.sum[class] > 0 then
      soon = offered > 0 and turn.at(u, reserve, now, 1, 1) - now or from
    end
    local function at(rank)
      rank = min(all, max(least, rank))
      return from + (all > least and floor((to - from) * (rank - least) / (all - least)) or 0)
    end
    for i, c in pairs(m.open) do
      if c.class == class and (i > CLASSES or L[i] > 0 or c.news) then
        local a, b = 0, 0
        if L[i] > 0 then
          local rank = least + floor(max(0, c.finish - m.v[class]) * weights / UNIT)
          a, b = at(rank), at(rank + floor(L[i] * weights / c.weight))
        end
        if i <= CLASSES then
          first[class], last[class] = a, b
        end
        if i > CLASSES or c.news then
          told[#told + 1] = struct.pack('<ddddddd', class, c.share, c.cut, c.joined, a, b, c.news or 0)
        end
      end
    end
    before = all
  end
  return first, last, soon or 0, told
end

return lanes
end
