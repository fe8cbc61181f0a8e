-- The line of waiters for a start in a row; docs/internals/line.md says what it promises and why. The
-- programs know their waiters. A row knows how much waits, and whose turn it is.
--
-- Each priority is a class, 1 for High to 3 for Low. The callers of one share and class are a lane; a line
-- without shares has one lane for each class. A lane counts the costs of all
-- waiters that joined; the count up to one is its ticket, so the first has 1. FRONT, which is 0,
-- is the ticket of a waiter that goes before all others of its lane. The cut goes up as room comes, and
-- waiters with tickets below it may come.
--
-- A line q is
--   id              a random number: tickets of another line are void
--   began           when it was made
--   event           something was given back, or a waiter left, in this call
--   freed           something was given back in this call: all waiters whose turn has come are told once more
--   callers         how many wait, or nil if a program that does not count them wrote the line
--   many            the lanes of shares, nil if the line has never had any: see lanes.lua
-- and for each class a table c, the lane of the callers without a share
--   joined, cut     the next ticket, and the first whose turn has not come
--   offered, since  the cost of waiters below the cut that did not come yet, and since when one of them could start. Zero means none can.
--   step            how far the cut went last because no waiter came
--   told            the cut that was published last
--   holds           until then a waiter whose turn has come waits for more room than there is
--   reserve, horizon  of the last waiter that joined any lane of the class
--   round, lapsed   when offers lapsed last, and the cut then
--   holes           {from, to, cost}: a range of tickets, and the cost of its callers that have left
--
-- The state of a ticket: its owner waits; or its turn has come, and it is counted among the
-- offers since the lapse that its round names; or it passed, and waits in the line of a different budget; or it
-- had a start.
--
-- needs: frame (max, min, floor)
-- defines: lanes_of, queue, queue.of, queue.left, queue.waiting, queue.callers, queue.joined, queue.lapsed, queue.lane, queue.settle,
--     queue.write, queue.ahead, queue.before_newcomer, queue.behind, queue.make, queue.line_up, queue.unused

local lanes_of -- returns what works on lanes of shares: see lanes.lua
local queue = {WAITS = 0, COUNTED = 1, PASSED = 2, HAD = 3, CLASSES = 3, MOST_HOLES = 6}
do
local CLASSES, MOST_HOLES = queue.CLASSES, queue.MOST_HOLES

-- unused returns a class in which nobody was.
local function unused()
  return {joined = 1, cut = 1, offered = 0, since = 0, step = 0, told = 1, reserve = 0, horizon = 0, holds = 0, round = 0,
    lapsed = 1, holes = {}}
end

-- read takes a stored line apart. Of a class in which nobody was there is a 0. A line with lanes of shares begins
-- with no number, so that programs that know no shares cannot read it: to them there is no line.
local function read_queue(r)
  local v = cmsgpack.unpack(redis.call('GETRANGE', r.key, HEAD_SIZE + r.named, HEAD_SIZE + r.named + r.lined - 1))
  if v[1] == true then
    return lanes_of().read(r, v)
  end

  -- Stored text can be anything, so all is checked that other functions rely on.
  for _, x in ipairs(v) do
    if x % 1 ~= 0 or x > MAX_NUMBER or x < -MAX_NUMBER then
      error('no number of a line')
    end
  end

  -- Tickets are stored as distances from the next ticket of their class.
  local q, i = {id = v[1], began = v[2]}, 3
  for k = 1, CLASSES do
    if v[i] == 0 then
      q[k], i = unused(), i + 1
    else
      local c = {joined = v[i], cut = v[i] - v[i + 1], offered = v[i + 2], since = v[i + 3], step = v[i + 4],
        told = v[i] - v[i + 5], reserve = v[i + 6], horizon = v[i + 7], holds = v[i + 8], round = v[i + 9],
        lapsed = v[i] - v[i + 10], holes = {}}
      local size = v[i + 11]
      assert(size >= 0 and size <= MOST_HOLES and c.cut <= c.joined and c.offered >= 0 and c.horizon >= 0)
      i = i + 12
      for h = 1, size do
        c.holes[h] = {c.joined - v[i], c.joined - v[i + 1], v[i + 2] + 0}
        assert(c.holes[h][1] < c.holes[h][2])
        i = i + 3
      end
      q[k] = c
    end
  end

  q.callers = v[i]
  return q
end

-- of returns the line of a row, or false if there is none.
function queue.of(r)
  if r.queue == nil then
    local known, q
    if r.lined > 0 then
      known, q = pcall(read_queue, r)
    end
    r.queue = known and q or false
  end
  return r.queue
end

-- left returns what waits in a class and was not offered anything.
function queue.left(c)
  local sum = c.joined - c.cut
  for _, h in ipairs(c.holes) do
    sum = sum - h[3]
  end
  return sum
end

-- waiting returns what waits in the classes that go before one, and in it.
function queue.waiting(q, class)
  local sum = 0
  for k = 1, q and class or 0 do
    sum = sum + (q.many and q.many.sum[k] or queue.left(q[k]) + q[k].offered)
  end
  return sum
end

-- callers returns how many callers wait. Offers that nobody takes lapse with their share of the callers, so after those it is a guess, which the
-- costs bound. In a line that a program wrote that does not count callers it is their cost.
function queue.callers(q)
  local all = queue.waiting(q, CLASSES)
  return all > 0 and max(1, min(all, q.callers or all)) or 0
end

-- joined counts callers that stand in a line from now on, or, below 0, that leave it.
function queue.joined(q, callers)
  q.callers = q.callers and max(0, q.callers + callers)
end

-- lapsed takes out the callers of an offer that nobody has taken, of all that waits before that.
function queue.lapsed(q, offered, all)
  q.callers = q.callers and floor(q.callers * max(0, all - offered) / max(1, all) + 0.5)
end

-- lane returns the lane of a share in a class, or nil.
function queue.lane(q, class, share)
  if q.many then
    return lanes_of().find(q, class, share)
  end
  return share == 0 and q[class] or nil
end

-- settle takes note that a lane has changed.
function queue.settle(q, c)
  if q.many then
    lanes_of().settle(q, c)
  end
end

-- write returns a line as it is stored; '' if there are no waiters.
function queue.write(r)
  local q = queue.of(r)
  if not q or queue.waiting(q, CLASSES) <= 0 then
    return ''
  elseif q.many then
    return lanes_of().write(r, q)
  end

  local v = {q.id, q.began}
  for k = 1, CLASSES do
    local c, i = q[k], #v
    if c.joined == 1 and c.offered == 0 and c.round == 0 then
      v[i + 1] = 0
    else
      v[i + 1], v[i + 2], v[i + 3], v[i + 4], v[i + 5], v[i + 6], v[i + 7], v[i + 8], v[i + 9], v[i + 10],
        v[i + 11], v[i + 12] = c.joined, c.joined - c.cut, c.offered, c.since, c.step, c.joined - c.told, c.reserve,
        c.horizon, c.holds, c.round, c.joined - c.lapsed, #c.holes
    end
    for _, h in ipairs(c.holes) do
      i = #v
      v[i + 1], v[i + 2], v[i + 3] = c.joined - h[1], c.joined - h[2], h[3]
    end
  end

  v[#v + 1] = q.callers
  return cmsgpack.pack(v)
end

-- ahead returns what goes before a ticket of a lane.
function queue.ahead(q, class, c, ticket)
  local sum = queue.waiting(q, class - 1)
  if ticket < c.cut then
    return sum
  end

  local own = ticket - c.cut
  for _, h in ipairs(c.holes) do
    -- In a range with holes, the part before the ticket has its share of the tickets that are gone.
    local from, to = max(h[1], c.cut), min(h[2], ticket)
    if from < to then
      own = own - floor(h[3] * (to - from) / (h[2] - h[1]))
    end
  end

  return sum + c.offered + own + (q.many and lanes_of().beside(q, class, c, c.share, c.weight, own) or 0)
end

-- before_newcomer returns what goes before a caller that comes now.
function queue.before_newcomer(q, class, share, weight)
  if share ~= 0 and not q.many then
    lanes_of().begin(q)
  end

  if not q.many then
    return queue.waiting(q, class)
  end

  local c, own = queue.lane(q, class, share), 0
  local sum = queue.waiting(q, class - 1)
  if c then
    own = queue.left(c)
    sum = sum + own + c.offered
  end

  return sum + lanes_of().beside(q, class, c, share, weight, own)
end

-- behind returns what goes before callers that come now, and their own cost.
function queue.behind(q, class, share, weight, cost)
  if not q.many then
    return queue.waiting(q, class) + cost
  end
  local c = queue.lane(q, class, share)
  local own = cost + (c and queue.left(c) or 0)
  return queue.waiting(q, class - 1) + (c and c.offered or 0) + own + lanes_of().beside(q, class, c, share, weight, own)
end

-- make returns the lane of a share, which there is from then on.
function queue.make(q, class, share, weight, cost)
  if not q.many then
    lanes_of().begin(q)
  end
  return lanes_of().lane_for(q, class, share, weight, cost)
end

-- line_up adds callers of equal cost to the lane of a share, and returns the line, the ticket of the first caller, the
-- lane, and how many callers stand there. The lane may be a round; then only the first caller stands there.
function queue.line_up(r, class, share, weight, cost, many, reserve, horizon, seed)
  local q = queue.of(r)
  if not q then
    q = {id = seed, callers = 0, began = r.seen}
    for k = 1, CLASSES do
      q[k] = unused()
    end
    r.queue = q
  end

  local c = q[class]

  -- With shares the callers stand in a lane. A round takes one caller at a time.
  if share ~= 0 or q.many then
    c = lanes_of().join(q, class, share, weight, cost)
    many = lanes_of().is_round(c) and 1 or many
  end

  local ticket = c.joined
  c.joined = ticket + cost * many
  queue.joined(q, many)
  q[class].reserve, q[class].horizon = reserve, horizon
  queue.settle(q, c)
  return q, ticket, c, many
end

queue.unused = unused
end

-- part: offers
-- What waiters in the line of a row are offered, take, and leave; see queue.lua.
--
-- needs: frame (max, min, floor), queue (lanes_of, queue.of, queue.left, queue.waiting, queue.joined, queue.lapsed, queue.settle), search
--     (search_for, earliest), turn (turn, turn.at, turn.units)
-- defines: queue.before, queue.count, queue.leave, queue.hold, queue.pass, queue.free, queue.move, queue.call, queue.turns, queue.tell

do
local left = queue.left
local WAITS, COUNTED, PASSED, CLASSES = queue.WAITS, queue.COUNTED, queue.PASSED, queue.CLASSES
local MOST_HOLES = queue.MOST_HOLES
local LAPSE = ASK_SOON * 2 / 5 -- for so long, or a quarter of the horizon, an offer is good
queue.LAPSE, queue.MOST_HELD = LAPSE, 61000000
local DITHER = 0.618034 -- multiples of the golden ratio have fractions that are spread evenly
local SPARE, MOST_HELD = 1000000, queue.MOST_HELD

-- before returns the cost that goes before a waiter whose turn has come. It is a guess: waiters
-- are taken to come in the order of their tickets.
function queue.before(c, w)
  local stood = c.stood or 0
  if w.ticket == FRONT or w.state == queue.HAD then
    return stood
  end
  return max(stood, w.ticket - c.cut + c.offered)
end

-- hole notes that a ticket of a cost is given back. A ticket inside a range of which a part is gone is counted there. If there are too many
-- ranges, two neighbours become one: the two with the fewest waiters in their joint range, because nobody knows from then on which of its tickets
-- are gone. So all ranges stay small beside the line. If the nearest neighbours were joined, one range would grow over the whole line: callers who
-- left long ago would count among the last that came, and the cut would pass tickets that are gone as if their owners waited.
local function hole(c, ticket, cost)
  local from, to, H, i = ticket, min(ticket + cost, c.joined), c.holes, 1

  -- Find the ranges that overlap the ticket: all of them become one range.
  while H[i] and H[i][2] <= from do
    i = i + 1
  end

  local gone = to - from
  while H[i] and H[i][1] < to do
    local h = table.remove(H, i)
    from, to, gone = min(from, h[1]), max(to, h[2]), gone + h[3]
  end

  table.insert(H, i, {from, to, min(gone, to - from)})

  while #H > MOST_HOLES do
    local best, fewest = 1, MAX_NUMBER
    for k = 1, #H - 1 do
      local there = H[k + 1][2] - H[k][1] - H[k][3] - H[k + 1][3]
      if there < fewest then
        best, fewest = k, there
      end
    end
    local h = table.remove(H, best + 1)
    H[best][2], H[best][3] = h[2], H[best][3] + h[3]
  end
end

-- counted returns the part of a ticket's cost that counts as offered or left: all
-- of it, except the part that lapsed.
local function counted(c, w, cost)
  if w.state == COUNTED and w.round == c.round then
    return cost
  elseif w.ticket == FRONT or w.state ~= COUNTED and w.state ~= WAITS then
    return 0
  end
  return max(0, min(cost, w.ticket + cost - c.lapsed))
end

-- count counts a waiter whose turn has come and that waits for room.
function queue.count(q, c, w, cost, now)
  local missing = cost - counted(c, w, cost)
  if missing == cost then
    queue.joined(q, 1)
  end

  local lapsed = (w.state == WAITS or w.state == COUNTED) and w.ticket ~= FRONT and missing or 0
  w.state, w.round, c.offered = COUNTED, c.round, c.offered + missing
  if missing > 0 and c.since == 0 then
    c.since = now
  end

  if q.many then
    lanes_of().complete(q, c, w, cost, lapsed)
  end
end

-- take_out takes a ticket out of the costs that are offered and left. Their sum after
-- that is known, but not which tickets are gone where holes were joined. An offer to a
-- waiter that is gone is never taken, and keeps all waiters waiting until it lapses. So the part of
-- the offers that was guessed too large is taken back.
local function take_out(c, w, cost)
  local there = max(0, left(c) + c.offered - counted(c, w, cost))
  if w.ticket >= c.cut then
    hole(c, w.ticket, cost)
  else
    local H, stop = c.holes, w.ticket == FRONT and FRONT or min(w.ticket + cost, c.joined)
    c.offered = max(0, c.offered - counted(c, w, cost) + max(0, stop - c.cut))
    c.cut = max(c.cut, stop)
    while H[1] and H[1][2] <= c.cut do
      table.remove(H, 1)
    end
    if H[1] and H[1][1] < c.cut then
      H[1][1], H[1][3] = c.cut, min(H[1][3], H[1][2] - c.cut)
    end
  end

  -- The sum is known. What is above it was guessed, and is taken from the offers first, then from the ranges with holes.
  local more = max(0, left(c) + c.offered - there)
  local lost = min(more, c.offered)
  c.offered, more = c.offered - lost, more - lost
  for _, h in ipairs(c.holes) do
    local gone = min(more, h[2] - h[1] - h[3])
    h[3], more = h[3] + gone, more - gone
  end
end

-- leave takes a waiter with a ticket out of a lane: it starts, or gives up. Its search is s.
function queue.leave(q, c, w, s, starts)
  local cost = s.each
  if not starts then
    q.event = true
  end

  local was = counted(c, w, cost)
  if q.many then
    lanes_of().leave(q, c, w, s, was, starts)
  end

  queue.joined(q, was > 0 and -1 or 0)
  if was > 0 then
    take_out(c, w, cost)
  end

  if starts then
    c.step, c.holds, c.since = 0, 0, now -- they take what they are offered
  end

  -- All waiters have offers, so no ticket behind the cut is left to tell apart.
  if left(c) <= 0 then
    c.cut, c.holes = c.joined, {}
  end

  queue.settle(q, c)
end

-- hold keeps room for a waiter whose turn has come and that waits for more than there is. Its
-- program says again that it lives within that length.
function queue.hold(q, c, now, length)
  c.holds = max(c.holds, now + length + SPARE)
  queue.settle(q, c)
end

-- pass notes that a waiter whose turn has come waits in the line of a different budget.
function queue.pass(q, c, w, cost)
  if counted(c, w, cost) > 0 then
    take_out(c, w, cost)
    queue.joined(q, -1)
  end
  if w.state == COUNTED or w.state == WAITS then
    w.state = PASSED
  end
  queue.settle(q, c)
end

-- free notes that there may be room for a waiter whose turn has come.
function queue.free(r)
  local q = queue.of(r)
  if not q then
    return
  end

  if q.many then
    lanes_of().free(q)
  end

  -- In a line with shares, lanes.free has done the same for each lane.
  for k = 1, q.many and 0 or CLASSES do
    local c = q[k]
    if c.told < c.cut and not q.freed then
      c.since = now -- its waiters are told for the first time
    end
    c.holds, c.told = 0, FRONT
  end

  q.event, q.freed = true, true
end

-- move takes the cut over waiters whose cost is the amount, and returns the cost that the cut passed.
local function move(c, amount)
  local passed, H = 0, c.holes
  while passed < amount and c.cut < c.joined do
    local h = H[1]

    -- Before the next range, each ticket is of a waiter.
    if not h or c.cut < h[1] then
      local stop = min(h and h[1] or c.joined, c.cut + amount - passed)
      passed, c.cut = passed + stop - c.cut, stop
    else
      -- In a range, some tickets are of waiters. The cut passes the same part of the range as of its waiters.
      local size = h[2] - c.cut
      local live = size - min(h[3], size)
      if live <= amount - passed then
        passed, c.cut = passed + live, h[2]
        table.remove(H, 1)
      else
        -- Rounded up and down by turns: up alone, a cut that goes one ticket at a time would pass all that is gone first.
        local part = min(size, floor(size * (amount - passed) / live + c.cut * DITHER % 1))
        h[3] = max(0, h[3] - (part - (amount - passed)))
        passed, c.cut, h[1] = amount, c.cut + part, c.cut + part
      end
    end
  end

  return passed
end
queue.move = move

-- call offers the room within the horizon, High first. What is offered and not taken is at most the room within the horizon when it was offered.
-- Waiters that were told and did not come in time may never come: then their offer lapses, and the cut goes further each time. They
-- may still come.
function queue.call(r, u, now)
  local q = queue.of(r)
  if not q then
    return
  end

  local taken, hurry = 0, false
  q.began = min(q.began, now)
  for k = 1, CLASSES do
    local c = q[k]
    c.holds = min(c.holds, now + MOST_HELD) -- the clock may have been set back
    if q.many then
      local offered, near = lanes_of().call(r, u, q, k, now, taken)
      hurry, taken = hurry or near, taken + offered
      if lanes_of().is_left(q, k) then
        break
      end
    elseif left(c) > 0 or c.offered > 0 then
      local reserve = min(c.reserve, u.n - 1)

      -- Room within a third of the horizon is near: waiters that were told should come now.
      local near = turn.units(u, reserve, now + floor(c.horizon / 3)) > 0 and now > c.holds
      local amount = turn.units(u, reserve, now + c.horizon) - taken - c.offered

      if near then
        local untold = c.told < c.cut and not q.freed -- this call tells the waiters: see queue.tell
        c.since = (untold or c.since == 0) and now or min(c.since, now)
      else -- nobody is late before then
        c.since = c.offered > 0 and max(turn.at(u, reserve, now, 1, 1), c.holds) or 0
      end

      -- Waiters that were told and did not come in time may never come.
      local lapses = near and c.offered > 0 and now - c.since > max(LAPSE, floor(c.horizon / 4))
      if lapses and r.paused > 0 then -- in a slow start the row has room that nobody can take
        local t = earliest(search_for(u, 1, reserve, now, 0, false), now)
        near = not t or t <= now + floor(c.horizon / 3)
        c.since = near and c.since or now
      end

      if lapses and near then
        queue.lapsed(q, c.offered, queue.waiting(q, CLASSES))

        -- The step doubles, so that a line whose first waiters are gone is passed in few lapses.
        c.step = max(2 * c.step, c.offered)
        amount, c.offered, c.since = max(amount + c.offered, c.step), 0, now
        c.round, c.lapsed = now, c.cut
      end

      if amount > 0 and c.cut < c.joined then
        c.offered, c.since = c.offered + move(c, amount), now
      end

      hurry = hurry or near
      taken = taken + c.offered

      -- Lower classes are offered nothing before all of this class are.
      if left(c) > 0 then
        break
      end
    end
  end

  q.hurry = hurry
end
end

-- What programs are told of the line of a row.
do
local left, CLASSES = queue.left, queue.CLASSES
local COME = 'come %.0f %.0f %.0f %.0f %s'

-- turns returns in how long the first and the last waiter of each class that have no offer will have their
-- turn. Zero means that there is no such waiter. It also returns when the first of all waiters may start.
function queue.turns(r, u, now)
  local q, first, last, soon = r.queue, {0, 0, 0}, {0, 0, 0}, nil
  if q.many then
    return lanes_of().turns(q, u, now)
  end

  for k = 1, CLASSES do
    local waits, reserve = left(q[k]), min(q[k].reserve, u.n - 1)
    if waits > 0 then
      -- Waiters with an offer stand before all that have none.
      local all = queue.waiting(q, k)
      first[k], last[k] = turn.at(u, reserve, now, 1, all - waits + 1) - now, turn.at(u, reserve, now, 1, all) - now
    end
    if not soon and (waits > 0 or q[k].offered > 0) then
      soon = q[k].offered > 0 and turn.at(u, reserve, now, 1, 1) - now or first[k]
    end
  end

  return first, last, soon or 0
end

-- tell publishes whose turn it is, if waiters may not know: there is room within a third of the horizon,
-- or callers have left, so that the guesses of waiters behind them are too late. It returns
-- 2 if there was anything new, 1 if it is worth asking again soon, and otherwise 0.
function queue.tell(r, channel)
  local q = r.queue
  if not q then
    return 0
  elseif q.many then
    return lanes_of().tell(r, q, channel)
  end

  local news, gone = false, false
  for k = 1, CLASSES do
    news = news or q[k].told < q[k].cut
    gone = gone or #q[k].holes > 0
  end

  if not (q.hurry or q.event or gone) then
    return 0
  elseif not news then
    return 1
  end

  for k = 1, CLASSES do
    q[k].told = q[k].cut
  end

  redis.pcall('PUBLISH', channel, string.format(COME, q.id, q[1].cut, q[2].cut, q[3].cut, r.key))
  return 2
end
end
