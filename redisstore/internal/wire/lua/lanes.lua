-- The lanes of shares in a line; docs/internals/lanes.md says what they promise. Without shares nothing here is
-- run, or even made: Lua makes the functions of a script in each call.
--
-- This file has what a lane is and how a line with lanes is stored; deals.lua has the turns that lanes take.
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
--   found     by class: those that were looked for, by share

local make_lanes, make_deals
do
local made
function lanes_of()
  made = made or make_deals(make_lanes())
  return made
end
end

function make_lanes()
local CLASSES = queue.CLASSES
local MOST_LANES = 128
local MOST_LINED = 3800 -- a line of more bytes gets no new lanes
local COMMON = 1 -- the share whose lane all others share when there are too many
local NEWS, HOLES = 1, 2
local COLUMNS = {'class', 'share', 'weight', 'cost', 'finish', 'left', 'offered', 'since', 'holds', 'step', 'flags'}
local left, min, max = queue.left, min, max
local lanes, served = {NEWS = NEWS, HOLES = HOLES}, served_of()

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
  local m = {base = base, v = {0, 0, 0}, sum = {0, 0, 0}, rest = {}, open = {}, found = {{}, {}, {}}, served = {}}
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
  local size = #v[7]
  assert(size >= CLASSES and size <= MOST_LANES + CLASSES and #columns == #COLUMNS)
  for _, x in ipairs({v[2], v[3], v[4]}) do
    assert(x % 1 == 0 and x <= MAX_NUMBER and x >= -MAX_NUMBER)
  end
  for k, name in ipairs(COLUMNS) do
    local column = columns[k]
    assert(#column == size)
    for i = 1, size do
      local x = column[i]
      if x % 1 ~= 0 or x > MAX_NUMBER or x < -MAX_NUMBER then
        error('no number of a lane')
      end
    end
    m[name] = column
  end
  m.rest, m.full = v[7], served.read(m, v[8], r.lined) > MOST_LINED
  for i = 1, size do
    local class, since = m.class[i], m.since[i]
    m.sum[class] = m.sum[class] + m.left[i] + m.offered[i]
    m.since[i] = since > 0 and v[3] + since or 0
    assert(m.weight[i] >= 1 and m.cost[i] >= 1 and m.left[i] >= 0 and m.offered[i] >= 0)
  end
  q.many, q.callers = m, v[5][2 * CLASSES + 1]
  assert(not q.callers or q.callers % 1 == 0 and q.callers >= 0)
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

local function every(size)
  local all = {}
  for i = 1, size do
    all[i] = i
  end
  return all
end

local function pick(column, kept)
  local picked = {}
  for j = 1, #kept do
    picked[j] = column[kept[j]]
  end
  return picked
end

-- text returns the line as it is stored.
local function text(q, m)
  local L, O, F, S, kept = m.left, m.offered, m.finish, m.since, nil
  for i = 1, #L do -- most often no lane is forgotten, and the columns stay as they are
    local idle = L[i] <= 0 and O[i] <= 0 and is_idle(m, i)
    if idle then
      m.base = max(m.base, table_of(m, i).joined)
      kept = kept or every(i - 1)
    elseif kept then
      kept[#kept + 1] = i
    end
  end
  kept = kept or every(#L)
  local columns, began, finish, since, rest, list, limits = {}, q.began, {}, {}, {}, {}, {}
  for j = 1, #kept do
    local i = kept[j]
    finish[j] = F[i] - m.v[m.class[i]]
    since[j] = S[i] > 0 and max(1, S[i] - began) or 0
    rest[j], list[j] = m.rest[i] or text_of(m.open[i]), served.of(m, i)
  end
  for k, name in ipairs(COLUMNS) do
    columns[k] = #kept == #L and m[name] or pick(m[name], kept)
  end
  columns[5], columns[8] = finish, since
  for k = 1, CLASSES do
    limits[2 * k - 1], limits[2 * k] = q[k].reserve, q[k].horizon
  end
  limits[2 * CLASSES + 1] = q.callers
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
  if #all > MAX_SHARED then
    squeeze(q.many)
    all = text(q, q.many)
  end
  return #all <= MAX_SHARED and all or ''
end

-- find returns the lane of a share in a class; nil if there is none.
function lanes.find(q, class, share)
  local m = q.many
  if share == 0 then
    return q[class]
  end
  local known = m.found[class][share]
  if not known then
    local C, S = m.class, m.share
    for i = CLASSES + 1, #S do
      if S[i] == share and C[i] == class then
        known = m.open[i] or table_of(m, i)
        m.found[class][share] = known
        break
      end
    end
  end
  return known
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
lanes.set, lanes.table_of = set, table_of

return lanes
end
