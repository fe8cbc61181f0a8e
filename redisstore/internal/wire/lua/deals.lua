-- How the lanes of shares take turns; see lanes.lua.
--
-- Lanes take turns by start tags (start-time fair queueing). To deal a lane room is to move its cut over tickets. The lane is charged for their cost:
-- the cost, divided by the lane's weight, is added to its finish tag. The next turn is for the waiting lane with the least finish tag and, of lanes
-- with the same tag, for the first in the columns. The virtual time of a class is the start tag of the last turn, and is not moved beyond the tag of
-- a lane that waits. When a lane that is no round gets its first waiter, its finish tag is not below the virtual time: the lane has no credit from
-- the time when it was away.
--
-- needs: lanes (lanes.settle, lanes.bid, lanes.give_back, lanes.is_round, lanes.join), offers (queue.MAX_HELD, queue.move,
--     queue.starts_soon), queue (queue, queue.waiting, queue.lapsed), turn (turn, turn.at, turn.units)
-- defines: lanes.beside, lanes.complete, lanes.took, lanes.left_by, lanes.refund, lanes.start, lanes.free, lanes.is_left, lanes.call,
--     lanes.tell, lanes.turns

-- make_deals adds the functions of this file to the table lanes, and returns the table. The functions stand inside of make_deals, so that a call
-- without shares does not make them: Lua makes the functions of a script anew in each call.
function make_deals(lanes)
local CLASSES = queue.CLASSES
local NEWS, HOLES, UNIT = lanes.NEWS, lanes.HOLES, lanes.UNIT -- the flags of a lane: flags % HOLES is NEWS if that flag is set; and a unit of tags
local COME = 'cuts %.0f %.0f %s%s' -- the line, how many cuts, the cuts, the key
local move, min, max, floor, ceil = queue.move, min, max, floor, ceil
local set, table_of = lanes.set, lanes.table_of

-- beside returns an estimate of the cost that the other lanes of a class are dealt before a caller of a share has its turn, with all that they are
-- offered already. c is the lane in which the caller stands or will stand, or nil if its share has none, and weight is the caller's. own_ahead is the
-- cost without an offer before the caller in its own lane.
function lanes.beside(q, class, c, share, weight, own_ahead)
  local m = q.many
  local C, F, L, O, W, K, virtual = m.class, m.finish, m.left, m.offered, m.weight, m.cost, m.virtual[class]

  -- The next turn of the caller's lane begins at the lane's finish tag. A lane in which nobody waits without an offer gets no credit from the time
  -- when it was away: see join. A lane with such waiters keeps its tag, which may be below the virtual time, as after a lapse.
  local own = c and c.index or #C + 1 -- the index of the caller's lane: a new lane would be the last
  local begin
  if not c then
    begin = lanes.bid(q, class, share)
  else
    begin = L[own] > 0 and c.finish or max(c.finish, virtual)
  end

  local tag, sum = begin + floor(own_ahead * UNIT / weight), 0 -- the caller's start tag, and the cost before the caller
  for i = 1, #C do
    if C[i] == class and i ~= own then
      sum = sum + O[i] -- what the lane is offered already goes before the caller
      local finish = F[i]

      -- Lane i has turns at F[i] and then every UNIT * K[i] / W[i]. Count its turns before the caller's tag. Count a turn at that tag, too, if lane i
      -- stands before the caller's lane in the columns. Each turn deals K[i], the least cost, and all turns together deal no more than L[i], which
      -- waits there.
      if L[i] > 0 and (finish < tag or finish == tag and i < own) then
        local turns = (tag - finish) * W[i] / (UNIT * K[i])
        local count = i < own and floor(turns) + 1 or ceil(turns)
        sum = sum + min(L[i], count * K[i])
      end
    end
  end

  return sum
end

-- pass_time moves the virtual time of a class on to the start tag of a turn, but not beyond the finish tag of any lane with waiters without an offer:
-- otherwise a newcomer would stand behind all of these lanes until each was dealt as much. The virtual time never goes back.
local function pass_time(m, class, tag)
  local C, F, L = m.class, m.finish, m.left
  for i = 1, #C do
    if L[i] > 0 and C[i] == class and F[i] < tag then
      tag = F[i]
    end
  end
  m.virtual[class] = max(m.virtual[class], tag)
end

-- deal charges a lane for a cost at once, as if the lane had its turn now, although other lanes may have theirs before. The lane's tag is not in the
-- columns before the lane is settled.
local function deal(m, c, amount)
  pass_time(m, c.class, c.finish)
  c.finish = c.finish + floor(amount * UNIT / c.weight)
end

-- complete deals the rest of its cost to a waiter w that came and waits for room: otherwise each lane would be dealt a part of the cost of its first
-- waiter, and nobody could use the parts. lapsed is the part of the cost for which the lane got its charge back, because the offer lapsed: complete
-- charges the lane for it again. It also notes that the lane's callers live, and settles the lane.
function lanes.complete(q, c, w, cost, lapsed)
  if lapsed > 0 then
    deal(q.many, c, lapsed)
  end

  -- A cut that is inside the ticket moves to the ticket's end.
  local stop = w.ticket + cost
  local cut_is_inside = w.ticket ~= FRONT and w.ticket < c.cut and stop > c.cut
  if cut_is_inside then
    local passed = move(c, min(stop, c.joined) - c.cut)
    c.offered = c.offered + passed
    deal(q.many, c, passed)
  end

  -- The lane's callers live, so its offers do not lapse yet, and its turns deal the least cost again.
  c.step, c.since = 0, now
  lanes.settle(q, c)
end

-- dealt_of returns the part of a waiter's cost that its lane was dealt: the part of the ticket below the cut, which may be inside the ticket. For a
-- waiter in front that is the whole cost.
local function dealt_of(c, w, cost)
  return w.ticket == FRONT and cost or max(0, min(cost, c.cut - w.ticket))
end

-- took charges a lane, when one of its waiters starts, for the part of the waiter's cost for which the lane is not charged yet. still_counted is the
-- part of the cost that counts as offered or left until now: see counted in queue.lua.
function lanes.took(q, c, w, cost, still_counted)
  -- A waiter in front had its turn before, and so had a waiter that has passed this line or had a start: the lane was charged at that turn.
  local in_line = w.state == queue.WAITS or w.state == queue.COUNTED
  if w.ticket == FRONT or not in_line then
    return
  end

  local lapsed = cost - still_counted -- the lane got its charge for this part of the cost back
  local charged = max(0, dealt_of(c, w, cost) - lapsed)
  if charged < cost then
    deal(q.many, c, cost - charged)
  end
end

-- left_by gives a lane back what it was charged for a waiter that gives up. s is the waiter's search, and still_counted is the part of its cost that
-- counts as offered or left until now. Nothing is given back for a waiter in front, except in a round, nor if the lane got its charge back in a
-- lapse.
function lanes.left_by(q, c, w, s, still_counted)
  -- All of the offer lapsed, and the lane got its charge back then. Or the waiter has passed this line, or had a start, and stays charged.
  if still_counted <= 0 then
    return
  end

  -- Waiters of a round belong to shares with known tags, which get the charge back.
  if lanes.is_round(c) then
    lanes.give_back(q, c.class, s.share, s.weight, s.each)
    return
  end

  -- A lane with a step had its charge back when its offers lapsed, and no waiter of the lane has come since.
  local dealt = dealt_of(c, w, s.each)
  if w.ticket ~= FRONT and dealt > 0 and c.step == 0 then
    lanes.refund(q, c, dealt)
  end
end

-- refund gives a lane back what it was charged for a cost, in its table and in the columns. A refund is no credit: it moves no tag below the virtual
-- time, and leaves a tag that is below.
function lanes.refund(q, c, cost)
  c.finish = max(min(c.finish, q.many.virtual[c.class]), c.finish - floor(cost * UNIT / c.weight))
  q.many.finish[c.index] = c.finish
end

-- start charges a share for callers that start without having stood in the line. cost is the sum of their costs. A share without a lane gets a lane
-- or a round. If nobody waits in the class there is nobody to take turns with, and start does nothing.
function lanes.start(q, class, share, weight, cost)
  local m = q.many
  if m.sum[class] <= 0 then
    return
  end

  local c = lanes.join(q, class, share, weight, cost)
  if not lanes.is_round(c) then -- join has charged the share of a round
    deal(m, c, cost)
  end
  lanes.settle(q, c)
end

-- free does for a line with shares what queue.free does for other lines: there may be room for the waiters whose turn has come, so in each lane with
-- offers no offer is held any longer, and the cut is news again.
function lanes.free(q)
  local m = q.many
  for i = 1, #m.share do
    if m.offered[i] > 0 then
      local c = table_of(m, i)
      if c.told < c.cut and not q.freed then
        c.since = now -- no earlier free of this call has lowered told, so the waiters are told for the first time
      end
      c.holds, c.told = 0, FRONT -- a cut above told is news
      set(m, c)
    end
  end
end

-- is_left reports whether a waiter of a class was offered nothing.
function lanes.is_left(q, class)
  local C, L = q.many.class, q.many.left
  for i = 1, #C do
    if L[i] > 0 and C[i] == class then
      return true
    end
  end
  return false
end

-- offer deals room for the cost amount to the lanes of a class, turn by turn: the lane with the least tag is next, and lanes with the same tag go one
-- after the other. A turn deals the least cost of the lane's waiters, and complete adds the rest when a waiter comes that costs more: a turn that
-- dealt more would deal several cheap waiters at the start tag of the first. Where there is much room for a few lanes, a turn deals more all the
-- same. A lane whose offers lapsed is dealt its step, if that is more. The last turn is dealt in full, even if less of amount is left. offer then
-- moves the virtual time on to the last turn. active is how many lanes of the class have waiters, with an offer or without, at least 1.
local function offer(q, m, class, amount, active)
  local C, F, L, O, W, P = m.class, m.finish, m.left, m.offered, m.weight, m.step

  -- At least a quarter of an even part is dealt at once, so that the loop ends soon where there is much room.
  local quarter = floor(amount / (4 * active))
  local start = m.virtual[class] -- the start tag of the last turn
  while amount > 0 do
    local nearest, size = {}, 0 -- the indexes of the lanes with the least tag, and how many they are
    local tag, next_tag = math.huge, math.huge

    -- Collect the lanes with the least tag, and find the tag that comes next. A lane with a step gets it once, and then nothing while it has that
    -- offer: its step ends when one of its waiters comes.
    for i = 1, #C do
      if L[i] > 0 and C[i] == class and (P[i] == 0 or O[i] == 0) then
        local finish = F[i]
        if finish < tag then
          nearest, size, tag, next_tag = {i}, 1, finish, tag
        elseif finish == tag then
          size = size + 1
          nearest[size] = i
        elseif finish < next_tag then
          next_tag = finish
        end
      end
    end

    if size == 0 then
      break
    end

    -- A lane that is alone with its tag is dealt on until it reaches the next tag.
    local to_next_tag = size == 1 and min(amount, ceil((next_tag - tag) * W[nearest[1]] / UNIT)) or 0
    for k = 1, size do
      if amount > 0 then
        local c = table_of(m, nearest[k])
        local passed = move(c, max(c.cost, quarter, to_next_tag, c.step))
        c.offered, c.since = c.offered + passed, now

        -- A lane whose cut passes nothing takes a unit of the room, too, or the loop would not end.
        amount = amount - max(passed, 1)

        -- A deal of more than the least cost counts as several turns. The last of these begins the least cost before the end of the deal.
        start = tag + floor(max(0, passed - c.cost) * UNIT / c.weight)
        c.finish = c.finish + floor(passed * UNIT / c.weight)
        lanes.settle(q, c)
      end
    end
  end

  pass_time(m, class, start)
end

-- lapse takes back what lane c of the line q was offered, because its waiters were told and did not come in time, and takes these waiters out of the
-- count of callers.
local function lapse(q, c)
  queue.lapsed(q, c.offered, queue.waiting(q, CLASSES))

  -- The next turn deals twice the last step, and at least what was offered, so that the cut is soon beyond waiters that are gone.
  c.step = max(2 * c.step, c.offered)
  c.round, c.lapsed, c.since = now, c.cut, now -- tickets below the cut count nowhere from now on: see counted in queue.lua

  -- The lane gets its whole charge back: its tag may fall below the virtual time. The lane is charged for a late waiter when the waiter starts.
  c.finish = c.finish - floor(c.offered * UNIT / c.weight)
  c.offered = 0
  lanes.settle(q, c)
end

-- claimed_in returns the cost that the lanes of a class are offered, without lanes whose offers have lapsed: these claim no room until a waiter
-- comes.
local function claimed_in(m, class)
  local C, O, P = m.class, m.offered, m.step
  local sum = 0
  for i = 1, #C do
    sum = sum + (C[i] == class and P[i] == 0 and O[i] or 0)
  end
  return sum
end

-- call offers the lanes of a class the room within the horizon, less taken, the cost that higher classes were offered. It returns the cost that these
-- lanes claim from then on, see claimed_in, and whether a waiter should hurry. First, offers lapse if their waiters did not come in time after the
-- cut was published: see lapse. A lane whose offers lapsed waits for its turn as all lanes do. If nobody waits in the class, call does nothing, and
-- returns 0 and false.
function lanes.call(r, u, q, class, now, taken)
  local m, limits = q.many, q[class]
  if m.sum[class] <= 0 then
    return 0, false
  end

  local C, L, O, S, H = m.class, m.left, m.offered, m.since, m.holds
  local reserve, horizon = min(limits.reserve, u.n - 1), limits.horizon -- the limit may have become smaller than the reserve
  local has_room = turn.units(u, reserve, now + floor(horizon / 3)) > 0 -- within a third of the horizon
  local patience = max(ASK_SOON, floor(horizon / 4)) -- an offer lapses after this time
  local may_be_slow = r.paused > 0 -- there may be a slow start
  local max_holds = now + queue.MAX_HELD
  local room_at -- when there is room for a waiter, nil until a lane needs it
  local hurry, active = false, 0

  -- Note of each lane since when its waiters with an offer could have started, and have their offers lapse if they are late.
  for i = 1, #C do
    if C[i] == class and (L[i] > 0 or O[i] > 0) then
      -- The clock may have been set back.
      if H[i] > max_holds then
        H[i] = max_holds
      end

      -- The lane's waiters should hurry if there is room and no waiter holds the lane's offers. since is when waiters with an offer were told and
      -- could start. As long as they cannot, since is when they are expected to start, or 0 if nobody has an offer.
      local hurries, since = has_room and now > H[i], S[i]
      if hurries then
        local untold = m.flags[i] % HOLES == NEWS and not q.freed -- this call tells the waiters: see lanes.tell
        if untold or since == 0 or since > now then
          since = now
        end
      elseif O[i] > 0 then
        room_at = room_at or turn.at(u, reserve, now, 1, 1)
        since = max(room_at, H[i])
      else
        since = 0
      end

      -- In a slow start after a penalty the room may be closed to all waiters: then nothing lapses.
      local lapses = hurries and O[i] > 0 and now - since > patience
      if lapses and may_be_slow and not queue.starts_soon(u, reserve, horizon) then
        hurries, lapses, since = false, false, now
      end
      S[i] = since

      -- If the lane has a table, its fields must say the same as the columns.
      local c = m.open[i]
      if c then
        c.since, c.holds = since, H[i]
      end

      if lapses then
        lapse(q, table_of(m, i))
      end
      hurry, active = hurry or hurries, active + 1
    end
  end

  -- Room that nobody claims is offered.
  local claimed = claimed_in(m, class)
  local amount = turn.units(u, reserve, now + horizon) - taken - claimed
  if amount > 0 then
    offer(q, m, class, amount, active)
    claimed = claimed_in(m, class)
  end
  return claimed, hurry
end

-- tell does for a line with shares what queue.tell does for other lines, and returns the same numbers: it publishes the cuts that are news.
function lanes.tell(r, q, channel)
  local m = q.many
  local news = {} -- the indexes of lanes whose cut was not published
  local has_holes = false -- whether callers of any lane have left
  for i = 1, #m.flags do
    local flags = m.flags[i]
    if flags % HOLES == NEWS then
      news[#news + 1] = i
    end
    has_holes = has_holes or flags >= HOLES
  end

  local should_tell = q.hurry or q.event or has_holes
  if not should_tell then
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

-- dealt_until returns an estimate of the cost that the lanes of a class are dealt from now on until a tag. weights is the sum of the weights of lanes
-- with waiters that have no offer. Without rounds, all of these lanes are taken to have the virtual time as their tag. Rounds begin at different
-- tags: with rounds in the line, each lane is counted from its own tag on, and weights is not used.
local function dealt_until(m, class, tag, weights)
  if m.rounds == 0 then
    return floor(max(0, tag - m.virtual[class]) * weights / UNIT)
  end

  local C, F, L, W = m.class, m.finish, m.left, m.weight
  local sum = 0
  for i = 1, #C do
    if C[i] == class and L[i] > 0 and F[i] < tag then
      sum = sum + min(L[i], floor((tag - F[i]) * W[i] / UNIT))
    end
  end
  return sum
end

-- without_offer returns three sums over the lanes of a class: the cost that waits without an offer, the cost that is offered, and the weights of the
-- lanes in which cost waits without an offer.
local function without_offer(m, class)
  if m.sum[class] <= 0 then
    return 0, 0, 0
  end

  local C, L, O, W = m.class, m.left, m.offered, m.weight
  local rest, offered, weights = 0, 0, 0
  for i = 1, #C do
    if C[i] == class then
      rest, offered = rest + L[i], offered + O[i]
      if L[i] > 0 then
        weights = weights + W[i]
      end
    end
  end
  return rest, offered, weights
end

-- turn_range returns the range of the turns of the waiters of a class that have no offer, as a table. higher_cost is the cost that waits in higher
-- classes. Lengths of time are from now on, in microseconds.
--
--   from, to            in how long the first and the last of these waiters have their turn, both 0 if there are none
--   min_rank, max_rank  the ranks of these two; max_rank is always the cost that waits in this class and in higher classes
--   weights             the sum of the weights of the lanes of these waiters
--   first               in how long the first waiter of the class may start, with an offer or without
--   class               the class
local function turn_range(q, u, class, higher_cost, now)
  local m = q.many
  local rest, offered, weights = without_offer(m, class)
  local max_rank, reserve = higher_cost + m.sum[class], min(q[class].reserve, u.n - 1)
  local range = {class = class, min_rank = max_rank - rest + 1, max_rank = max_rank, from = 0, to = 0, weights = weights}
  if rest > 0 then
    range.from = turn.at(u, reserve, now, 1, range.min_rank) - now
    range.to = turn.at(u, reserve, now, 1, max_rank) - now
  end

  -- A waiter with an offer starts as soon as there is room.
  range.first = offered > 0 and turn.at(u, reserve, now, 1, 1) - now or range.from
  return range
end

-- turn_at_tag returns in how long the lanes of a class will be dealt up to a tag: then a waiter with that start tag has its turn. range is the range
-- of the class, in which turns are taken to lie evenly by their ranks.
local function turn_at_tag(m, range, tag)
  if range.max_rank <= range.min_rank then
    return range.from
  end
  local rank = min(range.max_rank, range.min_rank + dealt_until(m, range.class, tag, range.weights))
  return range.from + floor((range.to - range.from) * (rank - range.min_rank) / (range.max_rank - range.min_rank))
end

-- turns returns in how long the waiters of a line with lanes will have their turn, as queue.turns does for other lines: by class the first and the
-- last waiter without a share, then the first of all waiters. A fourth result is a list of texts: the answer about each lane of a share whose table
-- this call has made, and about each lane whose cut it has published. A lane's first waiter is taken to have its turn when all lanes have been dealt
-- up to the lane's tag.
function lanes.turns(q, u, now)
  local m, answers = q.many, {}
  local first, last = {0, 0, 0}, {0, 0, 0}
  local soon -- in how long the first of all waiters may start
  local higher_cost = 0 -- the cost that waits in higher classes
  for class = 1, CLASSES do
    local range = turn_range(q, u, class, higher_cost, now)
    if not soon and m.sum[class] > 0 then
      soon = range.first
    end

    -- A lane without a share is left out if it has neither waiters nor news.
    for i, c in pairs(m.open) do
      local waits, has_share = m.left[i], i > CLASSES
      if c.class == class and (has_share or waits > 0 or c.news) then
        local lane_first, lane_last = 0, 0 -- in how long the lane's first and last waiter will have their turn
        if waits > 0 then
          local rise = floor((waits - c.cost) * UNIT / c.weight) -- by how much the last waiter's tag is higher than the first one's
          lane_first, lane_last = turn_at_tag(m, range, c.finish), turn_at_tag(m, range, c.finish + max(0, rise))
        end

        if not has_share then
          first[class], last[class] = lane_first, lane_last
        end
        if has_share or c.news then
          answers[#answers + 1] = struct.pack('<ddddddd', class, c.share, c.cut, c.joined, lane_first, lane_last, c.news or 0)
        end
      end
    end

    higher_cost = range.max_rank
  end

  return first, last, soon or 0, answers
end

return lanes
end
