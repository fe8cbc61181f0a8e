-- How the lanes of shares take turns; see lanes.lua.
--
-- Lanes take turns by start tags (start-time fair queueing). To deal a lane room is to move its cut over tickets: it adds their cost, divided
-- by the lane's weight, to the lane's finish tag. The next turn has the waiting lane with the least finish tag; of lanes with the same tag the
-- first in the columns. The virtual time of a class is the start tag of the last turn, and never more than
-- the tag of a lane that waits. A lane that gets its first waiter has a finish tag that is not below the virtual time. So it has no
-- credit from the time when it was away, and stands behind no lane that was dealt less.
--
-- needs: lanes (lanes.settle, lanes.bid, lanes.give_back, lanes.is_round, lanes.join), offers (queue.move), queue (queue, queue.waiting,
--     queue.lapsed), search (search_for, earliest), turn (turn, turn.at, turn.units)
-- defines: lanes.beside, lanes.complete, lanes.leave, lanes.refund, lanes.start, lanes.free, lanes.is_left, lanes.call, lanes.tell,
--     lanes.turns

-- make_deals adds to lanes what deals them room, and returns them.
function make_deals(lanes)
local CLASSES = queue.CLASSES
local NEWS, HOLES, UNIT = lanes.NEWS, lanes.HOLES, lanes.UNIT
local COME = 'cuts %.0f %.0f %s%s'
local move, min, max, floor, ceil = queue.move, min, max, floor, ceil
local set, table_of = lanes.set, lanes.table_of

-- beside returns the cost that all lanes of a class except lane c, which may be nil, are dealt before the turn of a caller of a share. The cost
-- own stands before the caller in its own lane.
function lanes.beside(q, class, c, share, weight, own)
  local m = q.many
  local C, F, L, O, W, K, v = m.class, m.finish, m.left, m.offered, m.weight, m.cost, m.v[class]

  -- The caller's turn begins at the finish tag of its lane. A lane that was away begins at the virtual time, without credit.
  local self = c and c.index or #C + 1
  local begin = not c and lanes.bid(q, class, share) or (c.finish > v or L[self] > 0) and c.finish or v
  local tag, sum = begin + floor(own * UNIT / weight), 0
  for i = 1, #C do
    if C[i] == class and i ~= self then
      sum = sum + O[i]
      local f = F[i]

      -- Of lanes with the same tag, the earlier column goes first.
      if L[i] > 0 and (f < tag or f == tag and i < self) then
        local turns = (tag - f) * W[i] / (UNIT * K[i])
        sum = sum + min(L[i], (i < self and floor(turns) + 1 or ceil(turns)) * K[i])
      end
    end
  end

  return sum
end

-- pass_time moves the virtual time of a class on to the start tag of a turn, as far as the lanes that wait allow: if the time went
-- further, a newcomer would stand behind all of them until each was dealt as much.
local function pass_time(m, class, tag)
  local C, F, L = m.class, m.finish, m.left
  for i = 1, #C do
    if L[i] > 0 and C[i] == class and F[i] < tag then
      tag = F[i]
    end
  end
  m.v[class] = max(m.v[class], tag)
end

-- deal charges a lane for an amount out of its turn.
local function deal(m, c, amount)
  pass_time(m, c.class, c.finish)
  c.finish = c.finish + floor(amount * UNIT / c.weight)
end

-- complete deals a waiter that came, and waits for room, the rest of its cost. Otherwise each lane would be dealt a part of the cost of
-- its first waiter, and nobody could use the parts. The part that was dealt to the waiter and lapsed is charged again, because the lane had its
-- turn back.
function lanes.complete(q, c, w, cost, lapsed)
  if lapsed > 0 then
    deal(q.many, c, lapsed)
  end

  local stop = w.ticket + cost
  if w.ticket ~= FRONT and w.ticket < c.cut and stop > c.cut then
    local passed = move(c, min(stop, c.joined) - c.cut)
    c.offered = c.offered + passed
    deal(q.many, c, passed)
  end

  c.step, c.since = 0, now -- its callers live
  lanes.settle(q, c)
end

-- leave charges a lane for a caller with a ticket that starts, or takes the charge back if the caller leaves; was is the part of its cost that
-- counted. The lane was charged for all tickets below the cut when they were dealt: of a costly caller that may be a part.
function lanes.leave(q, c, w, s, was, starts)
  local cost = s.each
  local dealt = w.ticket == FRONT and cost or max(0, min(cost, c.cut - w.ticket))

  -- Waiters of a round belong to shares with known tags, which get the charge back.
  if not starts and was > 0 and lanes.is_round(c) then
    lanes.give_back(q, c.class, s.share, s.weight, cost)
  elseif not starts then
    if was > 0 and w.ticket ~= FRONT and dealt > 0 and c.step == 0 then
      lanes.refund(q, c, dealt)
    end
  elseif w.ticket ~= FRONT and (w.state == queue.WAITS or w.state == queue.COUNTED) then
    local standing = max(0, dealt + was - cost) -- what was dealt and has not lapsed

    -- What lapsed was given back to the lane, so a start is charged for it again.
    if standing < cost then
      deal(q.many, c, cost - standing)
    end
  end
end

-- refund takes back the charge for a start.
function lanes.refund(q, c, cost)
  -- A refund is no credit: it takes no tag below the virtual time.
  c.finish = max(min(c.finish, q.many.v[c.class]), c.finish - floor(cost * UNIT / c.weight))
  q.many.finish[c.index] = c.finish
end

-- start counts a start of a caller that never stood in the line.
function lanes.start(q, class, share, weight, cost)
  local m = q.many
  if m.sum[class] > 0 then
    local c = lanes.join(q, class, share, weight, cost)
    if not lanes.is_round(c) then -- the tag of its share is known already
      deal(m, c, cost)
    end
    lanes.settle(q, c)
  end
end

-- free notes that there may be room for waiters whose turn has come.
function lanes.free(q)
  local m = q.many
  for i = 1, #m.share do
    if m.offered[i] > 0 then
      local c = table_of(m, i)
      if c.told < c.cut and not q.freed then
        c.since = now -- its waiters are told for the first time
      end
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

-- offer deals an amount of room to the lanes of a class, by their turns: lanes with the same tag one after the other. A turn is the least cost of the
-- lane's waiters: complete adds the rest when a waiter comes that costs more, and no waiter is dealt room before the turn of its start tag.
-- Where there is much room for a few lanes, more is dealt at once, and to a lane whose waiters did not come its step, once.
local function offer(q, m, class, amount, active)
  local C, F, L, O, W, P = m.class, m.finish, m.left, m.offered, m.weight, m.step

  -- At least a quarter of an even part is dealt at once, so that much room takes few rounds of this loop.
  local least, start = floor(amount / (4 * active)), m.v[class]
  while amount > 0 do
    local first, tag, next_tag, size = {}, math.huge, math.huge, 0

    -- Collect the lanes with the least tag, and find the tag that comes next.
    for i = 1, #C do
      if L[i] > 0 and C[i] == class and (P[i] == 0 or O[i] == 0) then
        local f = F[i]
        if f < tag then
          first, size, tag, next_tag = {i}, 1, f, tag
        elseif f == tag then
          size = size + 1
          first[size] = i
        elseif f < next_tag then
          next_tag = f
        end
      end
    end

    if size == 0 then
      break
    end

    -- A lane that is alone with its tag is dealt on until it reaches the next tag.
    local most = size == 1 and min(amount, ceil((next_tag - tag) * W[first[1]] / UNIT)) or 0
    for k = 1, size do
      local c = amount > 0 and table_of(m, first[k])
      if c then
        local passed = move(c, max(c.cost, least, most, c.step))

        -- A lane whose cut passes nothing takes a unit, too, or the loop would not end.
        c.offered, c.since, amount = c.offered + passed, now, amount - max(passed, 1)
        start = tag + floor(max(0, passed - c.cost) * UNIT / c.weight)
        c.finish = c.finish + floor(passed * UNIT / c.weight)
        lanes.settle(q, c)
      end
    end
  end

  pass_time(m, class, start)
end

-- call offers the lanes of a class the room within the horizon. It returns how much is offered then, and whether a
-- waiter should hurry. Offers lapse when their waiters have been told of them and do not come. A lane whose offers have lapsed claims no room
-- until one of its waiters comes. It is dealt what lapsed again in its turn, as all lanes are, and twice as much each time.
function lanes.call(r, u, q, class, now, taken)
  local m, limits = q.many, q[class]
  if m.sum[class] <= 0 then
    return 0, false
  end

  local C, L, O, S, H, P = m.class, m.left, m.offered, m.since, m.holds, m.step
  local reserve, horizon = min(limits.reserve, u.n - 1), limits.horizon
  local soon = turn.units(u, reserve, now + floor(horizon / 3)) > 0
  local lapse, slow, open, claimed, hurry, active = max(ASK_SOON, floor(horizon / 4)), r.paused > 0, nil, 0, false, 0
  local held = now + queue.MOST_HELD

  -- Of each lane: since when could a waiter that has not come have started, and has its offer lapsed?
  for i = 1, #C do
    if C[i] == class and (L[i] > 0 or O[i] > 0) then
      -- The clock may have been set back.
      if H[i] > held then
        H[i] = held
      end

      -- Near room makes waiters late. Before there is room, nobody is late.
      local near, since = soon and now > H[i], S[i]
      if near then
        local untold = m.flags[i] % HOLES == NEWS and not q.freed -- this call tells the waiters: see lanes.tell
        since = (untold or since == 0 or since > now) and now or since
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

      -- A table that is open must say the same as the columns.
      local c = m.open[i]
      if c then
        c.since, c.holds = since, H[i]
      end

      -- Nobody has come in time: what the lane was offered is for its next turn, which takes twice as much.
      if near and lapses then
        c = table_of(m, i)
        queue.lapsed(q, c.offered, queue.waiting(q, CLASSES))
        c.step = max(2 * c.step, c.offered)
        c.round, c.lapsed, c.since = now, c.cut, now

        -- The lane has its turn back, all of it: its tag may be below the virtual time. A waiter that comes late is counted when it starts.
        c.finish = c.finish - floor(c.offered * UNIT / c.weight)
        c.offered = 0
        lanes.settle(q, c)
      end

      -- A lane whose offers have lapsed claims no room until a waiter comes.
      claimed = claimed + (P[i] == 0 and O[i] or 0)
      hurry, active = hurry or near, active + 1
    end
  end

  -- Room that nobody claims is offered.
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

-- turns is queue.turns, and returns the parts of the answer about the lanes that this call touched. Where lanes are
-- served evenly, a lane's first waiter starts when all lanes have been dealt up to its tag, by their weights.
function lanes.turns(q, u, now)
  local m, first, last, soon, told = q.many, {0, 0, 0}, {0, 0, 0}, nil, {}
  local C, L, O, W = m.class, m.left, m.offered, m.weight
  local before = 0
  for class = 1, CLASSES do
    -- All waiters of higher classes stand before this class.
    local all, rest, offered, weights = before + m.sum[class], 0, 0, 0
    for i = 1, m.sum[class] > 0 and #C or 0 do
      if C[i] == class and (L[i] > 0 or O[i] > 0) then
        rest, offered, weights = rest + L[i], offered + O[i], weights + (L[i] > 0 and W[i] or 0)
      end
    end

    -- Only the turns of the first and the last waiter without an offer are computed: the others lie evenly between.
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

    -- ranked returns the cost that is dealt until a tag. Rounds have their weight in turn, and not all at once.
    local function ranked(tag)
      if m.rounds == 0 then
        return floor(max(0, tag - m.v[class]) * weights / UNIT)
      end
      local sum = 0
      for i = 1, #C do
        if C[i] == class and L[i] > 0 and m.finish[i] < tag then
          sum = sum + min(L[i], floor((tag - m.finish[i]) * W[i] / UNIT))
        end
      end
      return sum
    end

    -- The answer has the lanes that this call was about, and all cuts that are news.
    for i, c in pairs(m.open) do
      if c.class == class and (i > CLASSES or L[i] > 0 or c.news) then
        local soonest, final = 0, 0
        if L[i] > 0 then
          local behind = floor((L[i] - c.cost) * UNIT / c.weight)
          soonest, final = at(least + ranked(c.finish)), at(least + ranked(c.finish + max(0, behind)))
        end
        if i <= CLASSES then
          first[class], last[class] = soonest, final
        end
        if i > CLASSES or c.news then
          told[#told + 1] = struct.pack('<ddddddd', class, c.share, c.cut, c.joined, soonest, final, c.news or 0)
        end
      end
    end

    before = all
  end

  return first, last, soon or 0, told
end

return lanes
end
