-- The lanes of shares in a line; docs/internals/lanes.md says what they promise. Without shares nothing here is
-- run, or even made: Lua makes the functions of a script in each call.
--
-- This file has what a lane is and how a line with lanes is stored; deals.lua has the turns that lanes take.
--
-- A line may have a hundred lanes, and a call is about few of them. So lanes are kept in columns, each a list with a number
-- for each lane, and a list with the rest as text. Only the lanes that a call changes become tables like the lanes of
-- queue.lua, with class, share, weight, cost, finish, and index, their place in the columns. news is 1 if this call has
-- published the cut. The lanes without a share are the first three, by class.
--
-- When there are as many lanes as may be, the callers of further shares stand in *rounds*: lanes by start tag, each for the callers of many
-- shares whose turns come at that tag. The finish tag of each such share is *known*, in eight bytes. So a share beyond takes turns as all others
-- do, and a line has an end.
--
-- many is
--   known     the finish tags of shares without a lane, in eight bytes each: three name the share and its class, and five are the tag, in units of
--             64, modulo 2^40. Known tags are counted from the virtual time at which the line got its first lane.
--   passed    by class: how far the virtual time had come from there when the line was read, modulo 2^46
--   rounds    how many lanes are rounds
--   more      how many bytes the known tags and the rounds take
--   full      whether the line has so many bytes that it gets no new lanes. Known tags, rounds, and what lanes were served do not count.
--   base      the ticket of a new lane: not below any ticket of a lane that was forgotten
--   virtual   by class: the virtual time, which was 0 when the line was read. Stored finish tags are counted from the virtual time.
--   sum       by class: the cost that waits in all lanes
--   class, share, weight, cost  of each lane: the weight of the last caller that came, or of a round as join says, and the least cost since
--             callers began to wait
--   finish, left, offered, since, holds, step
--   flags     the sum of NEWS, if the cut was not published, and HOLES, if the lane has holes; 0 if neither
--   rest      the text, or false if the lane is a table
--   open      the tables, by index
--   found     by class: the tables of lanes that were looked for, by share
--
-- needs: frame (now), queue (queue, queue.left, queue.unused), row (MAX_SHARED, MAX_KNOWN, ROUND_SIZE), served (served_of, served.read,
--     served.pack, served.of)
-- defines: make_lanes, make_deals, lanes.settle, lanes.begin, lanes.read, lanes.write, lanes.find, lanes.bid, lanes.give_back,
--     lanes.is_round, lanes.lane_for, lanes.join

local make_lanes, make_deals
do
local made
-- lanes_of returns the table of the functions for lanes, which the first call makes.
function lanes_of()
  made = made or make_deals(make_lanes())
  return made
end
end

-- make_lanes returns a table with the functions of this file, and make_deals adds the functions of deals.lua. The functions stand inside of
-- make_lanes, so that a call without shares does not make them: Lua makes the functions of a script anew in each call.
function make_lanes()
local CLASSES = queue.CLASSES
local MAX_LANES = CLASSES + 100 -- besides rounds. A lane takes up to 58 bytes, in an old line with costs of hundreds of thousands: all fit MAX_SHARED
local MAX_LINED = 5000 -- a line of more bytes gets no new lanes, so that it has room to grow
local UNIT = 1048576 -- of tags: what a cost of 1 adds with a weight of 1
local FIRST_ROUND = MAX_NUMBER - 64 -- the share of the first round
local MAX_ROUNDS, SPARE_ROUNDS = 16, 4 -- of a class; the spare ones are for callers whose turn comes before all rounds
local TAG_PART, MAX_TAG = 64, 2 ^ 40 -- a known tag is a number of such parts, modulo MAX_TAG
local NEWS, HOLES = 1, 2 -- the flags of a lane: the sum modulo HOLES is NEWS if that flag is set
local COLUMNS = {'class', 'share', 'weight', 'cost', 'finish', 'left', 'offered', 'since', 'holds', 'step', 'flags'}
local CALLERS_AT = 2 * CLASSES + 1 -- where callers stand in the stored limits: see read
local left, min, max, floor, ceil = queue.left, min, max, floor, ceil
local lanes, served = {NEWS = NEWS, HOLES = HOLES, UNIT = UNIT}, served_of()

-- set writes the table c of a lane into the columns, except for class and share, which never change, and weight and cost, which join writes.
local function set(m, c)
  local i = c.index
  m.finish[i], m.left[i], m.offered[i], m.since[i], m.holds[i], m.step[i] = c.finish, left(c), c.offered, c.since, c.holds, c.step
  m.flags[i] = (c.told < c.cut and NEWS or 0) + (#c.holes > 0 and HOLES or 0)
end

-- settle writes a changed lane c of the line q back into the columns, and changes the cost that waits in its class by as much as the lane's.
function lanes.settle(q, c)
  local m, i = q.many, c.index
  local before = m.left[i] + m.offered[i]
  set(m, c)
  m.sum[c.class] = m.sum[c.class] + m.left[i] + m.offered[i] - before
end

-- push adds the table c to the columns, as a lane of a share in a class, and returns c. The lane's weight and cost are 1 until a caller joins, and
-- its finish tag is the virtual time.
local function push(m, c, class, share)
  local i = #m.share + 1
  c.class, c.share, c.weight, c.cost, c.finish, c.index = class, share, 1, 1, m.virtual[class], i
  m.class[i], m.share[i], m.weight[i], m.cost[i], m.rest[i], m.open[i] = class, share, 1, 1, false, c
  set(m, c)
  m.sum[class] = m.sum[class] + m.left[i] + m.offered[i]
  return c
end

-- empty returns the fields of many, described at the head of this file, for a line that has no lanes yet. base is the ticket of a new lane.
local function empty(base)
  local m = {base = base, virtual = {0, 0, 0}, known = '', passed = {0, 0, 0}, rounds = 0, more = 0, sum = {0, 0, 0}, rest = {}, open = {},
    found = {{}, {}, {}}, served = {}}
  for _, name in ipairs(COLUMNS) do
    m[name] = {}
  end
  return m
end

-- begin gives a line lanes of shares: the lanes of its classes become the first of them.
function lanes.begin(q)
  local m = empty(1) -- no lane was forgotten yet, so tickets begin at 1
  q.many = m
  for class = 1, CLASSES do
    push(m, q[class], class, 0)
  end
end

-- numbers_of returns the numbers of the text of a lane, as text_of packs them: the next ticket, the round, by how much lapsed is below the next
-- ticket, and three for each hole. It raises an error if the text is no lane.
local function numbers_of(text)
  local v = {cmsgpack.unpack(text)}
  assert(#v >= 3 and #v % 3 == 0)
  for _, number in ipairs(v) do
    assert(number % 1 == 0 and number <= MAX_NUMBER and number >= -MAX_NUMBER)
  end

  -- Holes are stored by their distances from the next ticket, so the begin is farther away than the end.
  for i = 4, #v, 3 do
    assert(v[i] > v[i + 1])
  end
  return v
end

-- table_of returns the table of the lane at an index of the columns. The first call for a lane makes the table from the columns and the text.
local function table_of(m, i)
  if m.open[i] then
    return m.open[i]
  end

  -- A text that is broken costs the lane its holes and its tickets: the cost that waits is in the columns, and gets tickets from the base on.
  local sound, v = pcall(numbers_of, m.rest[i])
  if not sound then
    v = {m.base + m.left[i], 0, 0}
  end

  -- Holes are stored by their distances from the next ticket, which are short numbers.
  local joined, gone, holes = v[1], 0, {}
  for k = 4, #v, 3 do
    holes[#holes + 1] = {joined - v[k], joined - v[k + 1], v[k + 2]}
    gone = gone + v[k + 2]
  end

  -- The cut follows from the cost that waits behind it. A told below the cut says that the cut is news: how far below makes no difference.
  local cut = joined - m.left[i] - gone
  local told = m.flags[i] % HOLES == NEWS and FRONT or cut
  local c = {joined = joined, cut = cut, offered = m.offered[i], since = m.since[i], step = m.step[i], told = told, holds = m.holds[i],
    round = v[2], lapsed = joined - v[3], holes = holes,
    class = m.class[i], share = m.share[i], weight = m.weight[i], cost = m.cost[i], finish = m.finish[i], index = i}
  m.open[i], m.rest[i] = c, false
  return c
end

-- text_of returns the text of a lane: the fields of its table that are in no column. table_of reads the text.
local function text_of(c)
  local v = {c.joined, c.round, c.joined - c.lapsed}
  for _, hole in ipairs(c.holes) do
    local i = #v
    v[i + 1], v[i + 2], v[i + 3] = c.joined - hole[1], c.joined - hole[2], hole[3]
  end
  return cmsgpack.pack(unpack(v))
end

-- read_columns puts the stored columns of size lanes into m, by name. It raises an error if a column does not have, for each lane, a whole number
-- from -MAX_NUMBER to MAX_NUMBER.
local function read_columns(m, columns, size)
  for k, name in ipairs(COLUMNS) do
    local column = columns[k]
    assert(#column == size)
    for i = 1, size do
      local number = column[i]

      -- A text in place of a number fails here, too.
      if number % 1 ~= 0 or number > MAX_NUMBER or number < -MAX_NUMBER then
        error('no number of a lane')
      end
    end

    m[name] = column
  end
end

-- read returns the line of row r whose stored form is the list v, as the function text packs it. It raises an error if v is no line. v has
--
--   true, id, began, base
--   limits   for each class reserve and horizon; callers, nil or false if nobody knows them; then, only if any tags are known, known and passed
--   columns  in the order of COLUMNS, finish counted from the virtual time, and since from began
--   rest     the text of each lane
--   served   the cost that each lane was served, if there is room for it
function lanes.read(r, v)
  local limits, columns, rest = v[5], v[6], v[7]
  local q, m, size = {id = v[2], began = v[3]}, empty(v[4]), #rest

  -- Each class may have rounds besides the MAX_LANES other lanes. No line reaches this bound: it is higher by a lane for each class.
  assert(size >= CLASSES and size <= MAX_LANES + CLASSES * (1 + MAX_ROUNDS + SPARE_ROUNDS) and #columns == #COLUMNS)
  for i = 2, 4 do -- id, began and base
    assert(v[i] % 1 == 0 and v[i] <= MAX_NUMBER and v[i] >= -MAX_NUMBER)
  end
  read_columns(m, columns, size)

  -- Known tags, and how far the virtual time had come in each class, stand behind the count of callers.
  m.known = limits[CALLERS_AT + 1] or ''
  for class = 1, CLASSES do
    m.passed[class] = limits[CALLERS_AT + 1 + class] or 0
  end
  assert(#m.known % 8 == 0 and #m.known <= 8 * MAX_KNOWN)

  for i = CLASSES + 1, size do
    m.rounds = m.rounds + (m.share[i] >= FIRST_ROUND and 1 or 0)
  end
  m.more = #m.known + ROUND_SIZE * m.rounds
  m.rest = rest

  local lined = served.read(m, v[8], r.lined) -- the bytes of the line without what lanes were served
  m.full = lined - m.more > MAX_LINED

  for i = 1, size do
    local class, since = m.class[i], m.since[i]
    m.sum[class] = m.sum[class] + m.left[i] + m.offered[i]

    -- Times are stored as distances from the begin of the line.
    m.since[i] = since > 0 and q.began + since or 0
    assert(m.weight[i] >= 1 and m.cost[i] >= 1 and m.left[i] >= 0 and m.offered[i] >= 0)
  end

  q.many, q.callers = m, limits[CALLERS_AT]
  assert(not q.callers or q.callers % 1 == 0 and q.callers >= 0)
  for class = 1, CLASSES do
    local c = table_of(m, class)
    c.reserve, c.horizon = limits[2 * class - 1], limits[2 * class]
    assert(c.share == 0 and c.class == class and c.horizon % 1 == 0 and c.horizon >= 0 and c.horizon <= MAX_NUMBER)
    q[class] = c
  end

  return q
end

-- is_idle reports whether a lane without waiters, at an index of the columns, can be forgotten. Lanes without a share are kept. A lane of a share can
-- be forgotten if its tag is not ahead of the virtual time, where a new lane would begin, or if nobody waits in its class.
local function is_idle(m, i)
  local class = m.class[i]
  return i > CLASSES and (m.finish[i] <= m.virtual[class] or m.sum[class] <= 0)
end

-- pick returns the numbers of a column at the indexes in the list kept, in their order.
local function pick(column, kept)
  local picked = {}
  for j = 1, #kept do
    picked[j] = column[kept[j]]
  end
  return picked
end

-- kept_lanes returns the indexes of the lanes that are stored: all but those that can be forgotten. It raises m.base to the highest next ticket of
-- the lanes that it leaves out, if that is higher.
local function kept_lanes(m)
  local L, O, kept = m.left, m.offered, {}
  for i = 1, #L do
    if L[i] <= 0 and O[i] <= 0 and is_idle(m, i) then
      -- Callers may still have tickets of this lane, so tickets of a new lane are above all of them.
      m.base = max(m.base, table_of(m, i).joined)
    else
      kept[#kept + 1] = i
    end
  end
  return kept
end

-- text returns the line q with the lanes m as it is stored, in the form that read describes, without the lanes that can be forgotten. It brings
-- m.more up to date, may raise m.base, and forgets m.served if there is no room for it.
local function text(q, m)
  local F, S = m.finish, m.since
  local began, kept = q.began, kept_lanes(m)
  local finish, since, rest, costs_served = {}, {}, {}, {}
  for j = 1, #kept do
    local i = kept[j]

    -- Tags are stored as distances from the virtual time, and times from the begin of the line, and so stay small. A since of 0 stands for no time.
    finish[j] = F[i] - m.virtual[m.class[i]]
    since[j] = S[i] > 0 and max(1, S[i] - began) or 0
    rest[j], costs_served[j] = m.rest[i] or text_of(m.open[i]), served.of(m, i)
  end

  local columns, distances = {}, {finish = finish, since = since}
  for k, name in ipairs(COLUMNS) do
    columns[k] = distances[name] or #kept == #F and m[name] or pick(m[name], kept)
  end

  local limits = {}
  for class = 1, CLASSES do
    limits[2 * class - 1], limits[2 * class] = q[class].reserve, q[class].horizon
  end
  limits[CALLERS_AT] = q.callers

  -- Known tags follow the count of callers. If nobody knows that count, false takes its place, because a list with a gap is not packed as a list.
  if m.known ~= '' then
    limits[CALLERS_AT], limits[CALLERS_AT + 1] = q.callers or false, m.known
    for class = 1, CLASSES do
      limits[CALLERS_AT + 1 + class] = (m.passed[class] + m.virtual[class]) % (TAG_PART * MAX_TAG)
    end
  end

  m.more = #m.known + ROUND_SIZE * m.rounds
  return served.pack(m, {true, q.id, began, m.base, limits, columns, rest}, costs_served)
end

-- squeeze joins all holes of each lane into one, from the cut to the next ticket, so that the line takes fewer bytes. From then on it is a guess
-- which tickets are gone.
local function squeeze(m)
  for i = 1, #m.share do
    local c, gone = table_of(m, i), 0
    for _, hole in ipairs(c.holes) do
      gone = gone + hole[3]
    end
    c.holes = gone > 0 and {{c.cut, c.joined, gone}} or {}
  end
end

-- write returns the line q as it is stored. If the line has more bytes than MAX_SHARED, beside known tags and rounds, write joins its holes. If it
-- still has more, write returns '', and the line is lost.
function lanes.write(q)
  local stored_form = text(q, q.many)
  if #stored_form > MAX_SHARED + q.many.more then
    squeeze(q.many)
    stored_form = text(q, q.many)
  end
  return #stored_form <= MAX_SHARED + q.many.more and stored_form or ''
end

-- find returns the table of the lane of a share in a class, or nil.
function lanes.find(q, class, share)
  local m = q.many
  if share == 0 then
    return q[class]
  end

  local c = m.found[class][share] -- kept, because a call asks several times for a share
  if not c then
    local C, shares = m.class, m.share
    for i = CLASSES + 1, #shares do
      if shares[i] == share and C[i] == class then
        c = table_of(m, i)
        m.found[class][share] = c
        break
      end
    end
  end

  return c
end

-- find_known returns where in m.known the eight bytes of a share in a class begin, or nil if there are none, and the three bytes that name the share.
local function find_known(m, class, share)
  -- The name has 22 bits of the share and 2 of the class. Two shares with one name take turns as one, too.
  local name = struct.pack('>I3', (share % 4194304) * 4 + class)
  local at = string.find(m.known, name, 1, true) -- true: name is no pattern

  -- Names begin at 1, 9, 17 and so on: a match between these is no name.
  while at and at % 8 ~= 1 do
    at = string.find(m.known, name, at + 1, true)
  end

  return at, name
end

-- borrow_known is for a share that is not in m.known. If m.known is full, it returns where the eight bytes of a different share of the class begin, and
-- the name in them: both shares take turns as one. It returns nil if m.known is not full, or has no tag of the class. It reads few names, unless most
-- tags of the full list are of other classes.
local function borrow_known(m, class, share)
  if #m.known < 8 * MAX_KNOWN then
    return nil
  end
  for i = 0, MAX_KNOWN - 1 do
    local at = 1 + 8 * ((share % MAX_KNOWN + i) % MAX_KNOWN) -- share may be the largest number, to which nothing can be added
    if string.byte(m.known, at + 2) % 4 == class then -- the third byte of a name ends with the class
      return at, string.sub(m.known, at, at + 2)
    end
  end
end

-- ahead_at returns by how much the known tag at a place in m.known is ahead of the virtual time of a class, in units of TAG_PART, or nil if it is
-- behind. Tags are known modulo MAX_TAG, so a tag that seems to be ahead by half of MAX_TAG or more is behind.
local function ahead_at(m, class, at)
  local tag = struct.unpack('>I5', m.known, at + 3)
  local ahead = (tag - floor((m.passed[class] + m.virtual[class]) / TAG_PART)) % MAX_TAG
  return ahead < MAX_TAG / 2 and ahead or nil
end

-- bid returns the start tag of the next caller of a share without a lane: the share's finish tag, if that is known and ahead of the virtual time, and
-- otherwise the virtual time.
function lanes.bid(q, class, share)
  local m = q.many
  local at = m.known ~= '' and (find_known(m, class, share) or borrow_known(m, class, share))
  local ahead = at and ahead_at(m, class, at) or 0
  return m.virtual[class] + ahead * TAG_PART
end

-- is_ahead reports whether the known tag at a place is ahead of the virtual time of the class in its name.
local function is_ahead(m, at)
  local class = struct.unpack('>I3', m.known, at) % 4 -- see find_known
  return (ahead_at(m, class, at) or 0) > 0
end

-- purge forgets the tags that are not ahead of the virtual time: without a tag these shares begin at the virtual time as well.
local function purge(m)
  local kept = {}
  for at = 1, #m.known, 8 do
    if is_ahead(m, at) then
      kept[#kept + 1] = string.sub(m.known, at, at + 7)
    end
  end
  m.known = table.concat(kept)
end

-- set_known notes the finish tag of a share without a lane in m.known. A share that is not there borrows a tag of a full list, if that tag is ahead
-- of the virtual time. Otherwise the share is added, after all tags that are not ahead were forgotten.
local function set_known(m, class, share, tag)
  local at, name = find_known(m, class, share)
  if not at then
    local borrowed, other = borrow_known(m, class, share)

    -- Purging reads all tags, so a full list is purged only when the tag to be borrowed says that some are past.
    if borrowed and is_ahead(m, borrowed) then
      at, name = borrowed, other
    else
      purge(m)

      -- There is no tag to borrow now. A new tag is added at the end. In a full list whose tags are all of other classes it takes the place of the last,
      -- whose share then begins at the virtual time.
      at = min(#m.known, 8 * (MAX_KNOWN - 1)) + 1
    end
  end

  local value = struct.pack('>I5', floor((m.passed[class] + tag) / TAG_PART) % MAX_TAG)
  m.known = string.sub(m.known, 1, at - 1) .. name .. value .. string.sub(m.known, at + 8)
end

-- give_back lowers the known tag of a share without a lane by what the share was charged for a cost, but not below the virtual time: what is given
-- back is no credit. It does nothing if the share has no known tag and borrows none.
function lanes.give_back(q, class, share, weight, cost)
  local m = q.many
  if m.known ~= '' and (find_known(m, class, share) or borrow_known(m, class, share)) then
    set_known(m, class, share, max(m.virtual[class], lanes.bid(q, class, share) - floor(cost * UNIT / weight)))
  end
end

-- is_round reports whether lane c is a round: its share is then the number of the round.
function lanes.is_round(c) return c.share >= FIRST_ROUND end

-- new_lane adds a lane for a share in a class, and returns it. The lane's finish tag is tag, which is not in the columns before the lane is settled.
local function new_lane(m, class, share, tag)
  local c = queue.unused()

  -- If base is above 1, lanes were forgotten, and callers may have tickets of a lane of this share. Such tickets are below the cut, as if their
  -- offers had lapsed now.
  c.joined, c.cut, c.told, c.lapsed, c.round = m.base, m.base, m.base, m.base, m.base > 1 and now or 0
  push(m, c, class, share)
  c.finish = tag
  return c
end

-- round_for returns the round for a caller whose turn comes at a tag: the round of that tag if there is one, or a new round. If the class has as many
-- rounds as it may have, it returns the last round before the tag or, if there is none, the first behind the tag.
local function round_for(q, class, tag)
  local m = q.many
  local before, after -- the indexes of the rounds next to the tag
  local count, used = 0, {} -- the number of rounds of the class, and a set of their shares

  -- Find the last round up to the tag, and the first round behind it.
  for i = CLASSES + 1, #m.share do
    local share = m.share[i]
    if share >= FIRST_ROUND and m.class[i] == class then
      local finish = m.finish[i]
      count, used[share] = count + 1, true
      if finish <= tag and (not before or finish > m.finish[before]) then
        before = i
      elseif finish > tag and (not after or finish < m.finish[after]) then
        after = i
      end
    end
  end

  -- A caller shares a round of its tag or, if the class has enough rounds, its neighbour. The spare rounds are for callers whose turn comes before
  -- all rounds.
  local neighbour = before or after
  local max_count = before and MAX_ROUNDS or MAX_ROUNDS + SPARE_ROUNDS
  if neighbour and (m.finish[neighbour] == tag or count >= max_count) then
    return table_of(m, neighbour)
  end

  local share = FIRST_ROUND
  while used[share] do
    share = share + 1
  end

  local c = new_lane(m, class, share, tag)
  m.rounds = m.rounds + 1
  set(m, c) -- the next caller finds the round by its tag in the columns
  return c
end

-- is_full reports whether a line is full: then callers of a share without a lane stand in rounds.
local function is_full(m)
  return #m.share - m.rounds >= MAX_LANES or m.full
end

-- lane_for returns the lane of a share in a class. If there is none it makes a lane or, if the line is full, returns a round, which may be new.
-- weight and cost are the caller's.
function lanes.lane_for(q, class, share, weight, cost)
  local m, c = q.many, lanes.find(q, class, share)
  if c then
    return c
  end

  local tag = lanes.bid(q, class, share)
  if is_full(m) then
    -- The tag is rounded up to a multiple of grid, so that callers of many shares have one round: grid is the highest power of two that is no more
    -- than charge, by which the caller's turn raises the tag of its share.
    local charge = max(1, floor(cost * UNIT / weight))
    local grid = 2 ^ floor(math.log(charge) / math.log(2))
    return round_for(q, class, ceil((m.passed[class] + tag) / grid) * grid - m.passed[class])
  end

  return new_lane(m, class, share, tag)
end

-- join returns the lane in which a caller of a share stands from now on, with the caller's weight and cost noted in it. The lane may be new, or a
-- round: then the share is charged at once. A line without lanes gets its first lanes. join adds no ticket, and its caller settles the lane.
function lanes.join(q, class, share, weight, cost)
  if not q.many then
    lanes.begin(q)
  end

  local m, c = q.many, lanes.lane_for(q, class, share, weight, cost)
  if lanes.is_round(c) then
    set_known(m, class, share, lanes.bid(q, class, share) + floor(cost * UNIT / weight))

    -- The weight of a round is the sum of the weights of its callers. Several callers may be of one share, so the sum is bounded by the number of
    -- known shares, which take eight bytes each, times the weight of this caller.
    local weight_before = left(c) > 0 and c.weight or 0
    c.weight = max(1, min(weight_before + weight, #m.known / 8 * weight))
  else
    -- A lane in which nobody waits without an offer gets no credit from the time when it was away.
    if left(c) <= 0 then
      c.finish = max(c.finish, m.virtual[class])
    end
    c.weight = weight
  end

  -- The least cost is how much the lane is dealt in a turn: see deals.lua.
  c.cost = left(c) > 0 and min(c.cost, cost) or cost
  m.weight[c.index], m.cost[c.index] = c.weight, c.cost
  return c
end

lanes.set, lanes.table_of = set, table_of
return lanes
end

-- part: served
-- How much each lane of a line was served, for status.lua: the costs with which callers have started since the lane was made. No decision depends on
-- these numbers, so a line keeps them only while there is room in the row. Without shares nothing here is made.
--
-- The many of lanes.lua has
--   served  a list with a number for each lane, or nil if there is no room. No number means 0.
--   told    whether the row had such a list when it was read
--
-- needs: frame (max, min), queue (queue, queue.lane), row (MAX_SHARED)
-- defines: served_of, served.read, served.pack, served.of, served.count

local served_of
do
local LOW_LINED = 3000 -- a line of fewer bytes has room again for what was served

-- make_served returns a table with the functions of this part.
local function make_served()
local served = {}

-- read notes in m the stored list of the costs that lanes were served, or that there is none. lined is how many bytes the line has, and read returns
-- how many it has without the list. A list that does not fit the lanes is an error.
function served.read(m, stored, lined)
  m.told = type(stored) == 'table'

  -- A short line without a list begins a new one.
  if not m.told then
    m.served = lined <= LOW_LINED + m.more and {} or nil
    return lined
  end

  assert(#stored == #m.share)
  for _, cost in ipairs(stored) do
    assert(cost % 1 == 0 and cost >= 0 and cost <= MAX_COUNT)
    lined = lined - (cost < 128 and 1 or cost < 65536 and 3 or 5) -- about the bytes of a number in MessagePack
  end

  m.served = stored
  return lined
end

-- pack returns the text of a line: the seven values of line, then costs, which is what each lane was served. If that is too long, costs is left out,
-- and m forgets m.served. If m.served was forgotten before, costs is left out, too.
function served.pack(m, line, costs)
  local text = m.served and cmsgpack.pack({line[1], line[2], line[3], line[4], line[5], line[6], line[7], costs})
  if text and #text <= MAX_SHARED + m.more then
    return text
  end
  m.served = nil
  return cmsgpack.pack(line)
end

-- of returns the cost that the lane at an index was served, or 0 if it is not known.
function served.of(m, i)
  return m.served and m.served[i] or 0
end

-- count adds the cost with which callers of a share in a class started, to what their lane was served. A cost below 0 was given back. Without a lane,
-- or without the list, nothing is counted.
function served.count(q, class, share, cost)
  local m, c = q.many, queue.lane(q, class, share)
  if m.served and c then
    m.served[c.index] = max(0, min((m.served[c.index] or 0) + cost, MAX_COUNT))
  end
end

return served
end

local made
-- served_of returns the table of these functions, which the first call makes.
function served_of()
  made = made or make_served()
  return made
end
end
