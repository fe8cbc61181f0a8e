-- The line of waiters for a start in a row; docs/internals/line.md says what it promises and why. The
-- programs know their waiters. A row knows how much waits, and whose turn it is.
--
-- Each priority is a class, 1 for High to 3 for Low. The callers of one share and class are a lane; a line
-- without shares has one lane for each class. A lane counts the costs of all
-- waiters that joined. A waiter's ticket is 1 more than the costs of all that joined before it. FRONT, which is 0,
-- is the ticket of a waiter that goes before all others of its lane. The cut goes up as room comes, and
-- waiters with tickets below the cut may come. A ticket takes as many numbers as its cost, so the cut may be inside a ticket.
--
-- A line q is
--   id              a random number: tickets of another line are void
--   began           when it was made
--   event           something was given back, or a waiter left, in this call
--   freed           something was given back in this call: all waiters whose turn has come are told once more
--   hurry           whether a waiter should come soon, as call has found
--   callers         how many wait, or nil or false if a program that does not count them wrote the line
--   many            the lanes of shares, nil if the line has never had any: see lanes.lua
-- and for each class a table c, the lane of the callers without a share
--   joined, cut     the next ticket, and the first whose turn has not come
--   offered, since  the cost of waiters below the cut that have not started, and since when one of them could start. Zero means that none can.
--   step            by how much the cut went on at the last lapse
--   told            the cut that was published last
--   holds           until then offers do not lapse, because a waiter whose turn has come waits for more room than there is
--   reserve, horizon  of the last waiter that joined any lane of the class. The limit may be lower by now, so whoever uses the reserve leaves one unit
--                     usable at the least.
--   round, lapsed   when offers lapsed last, and the cut then
--   holes           {from, to, cost}: a range of tickets, to not included, and the cost of its callers that have left. In the order of tickets.
--   stood, furthest  of this call: the cost of the lane's waiters whose turn had come and that have to wait again, and the latest turn that a waiter of
--                   the lane was told. Both are nil at first.
--
-- The states of a ticket:
--   WAITS    its owner waits
--   COUNTED  its turn has come and it counts among the offers, unless these have lapsed since: then the lane has a later round than the ticket
--   PASSED   its turn had come, and its owner waits in the line of a different budget
--   HAD      its owner had a start, or has given the ticket up in this call
--
-- needs: frame (max, min, floor)
-- defines: lanes_of, queue, queue.of, queue.left, queue.waiting, queue.callers, queue.joined, queue.lapsed, queue.lane, queue.settle,
--     queue.write, queue.ahead, queue.before_newcomer, queue.behind, queue.make, queue.line_up, queue.unused

local lanes_of -- returns the functions for lanes of shares: see lanes.lua
local queue = {WAITS = 0, COUNTED = 1, PASSED = 2, HAD = 3, CLASSES = 3, MAX_HOLES = 6} -- the states of a ticket, and bounds
do
local CLASSES, MAX_HOLES = queue.CLASSES, queue.MAX_HOLES

-- unused returns a lane in which nobody has stood.
local function unused()
  return {joined = 1, cut = 1, offered = 0, since = 0, step = 0, told = 1, reserve = 0, horizon = 0, holds = 0, round = 0,
    lapsed = 1, holes = {}}
end

-- read_queue returns the stored line of a row, as write packs it, and raises an error if the text is no line. A line with lanes of shares begins with
-- true in place of a number, so that programs that know no shares cannot read it: to them there is no line.
local function read_queue(r)
  local v = cmsgpack.unpack(redis.call('GETRANGE', r.key, HEAD_SIZE + r.named, HEAD_SIZE + r.named + r.lined - 1))
  if v[1] == true then
    return lanes_of().read(r, v)
  end

  -- Stored text can be anything, so check all that other functions rely on.
  for _, number in ipairs(v) do
    if number % 1 ~= 0 or number > MAX_NUMBER or number < -MAX_NUMBER then
      error('no number of a line')
    end
  end

  -- Tickets are stored as distances from the next ticket of their class. A class in which nobody was is a single 0.
  local q, i = {id = v[1], began = v[2]}, 3
  for class = 1, CLASSES do
    if v[i] == 0 then
      q[class], i = unused(), i + 1
    else
      local c = {joined = v[i], cut = v[i] - v[i + 1], offered = v[i + 2], since = v[i + 3], step = v[i + 4],
        told = v[i] - v[i + 5], reserve = v[i + 6], horizon = v[i + 7], holds = v[i + 8], round = v[i + 9],
        lapsed = v[i] - v[i + 10], holes = {}}
      local hole_count = v[i + 11]
      assert(hole_count >= 0 and hole_count <= MAX_HOLES and c.cut <= c.joined and c.offered >= 0 and c.horizon >= 0)
      i = i + 12

      for k = 1, hole_count do
        c.holes[k] = {c.joined - v[i], c.joined - v[i + 1], v[i + 2] + 0} -- a sum fails if the number is missing
        assert(c.holes[k][1] < c.holes[k][2])
        i = i + 3
      end
      q[class] = c
    end
  end

  q.callers = v[i] -- nil in a line of a program that does not count callers
  return q
end

-- of returns the line of a row, or false if there is none, or its text is no line. Only the first call for a row reads the text.
function queue.of(r)
  if r.queue == nil then
    local is_line, q
    if r.lined > 0 then
      is_line, q = pcall(read_queue, r)
    end
    r.queue = is_line and q or false
  end
  return r.queue
end

-- left returns the cost of the waiters of a lane behind the cut, which were not offered anything.
function queue.left(c)
  local sum = c.joined - c.cut
  for _, hole in ipairs(c.holes) do
    sum = sum - hole[3]
  end
  return sum
end

-- waiting returns the cost of the waiters in the classes from 1 to class, with an offer or without. It returns 0 if there is no line.
function queue.waiting(q, class)
  if not q then
    return 0
  end

  local sum = 0
  for i = 1, class do
    sum = sum + (q.many and q.many.sum[i] or queue.left(q[i]) + q[i].offered)
  end
  return sum
end

-- callers returns how many callers wait. After a lapse that is a guess, because nobody knows how many callers the offers were for; it is at least 1
-- and at most the cost that waits. If a program that does not count callers wrote the line, the result is the cost.
function queue.callers(q)
  local cost = queue.waiting(q, CLASSES)
  return cost > 0 and max(1, min(cost, q.callers or cost)) or 0
end

-- joined adds callers, which may be below 0, to the count of callers that stand in a line, if the line has that count.
function queue.joined(q, callers)
  q.callers = q.callers and max(0, q.callers + callers)
end

-- lapsed takes the callers of offers that lapse out of the count of callers, in proportion to their cost: offered is the cost of these offers, and
-- waiting the cost of all waiters, theirs included. The result is rounded.
function queue.lapsed(q, offered, waiting)
  q.callers = q.callers and floor(q.callers * max(0, waiting - offered) / max(1, waiting) + 0.5)
end

-- lane returns the lane of a share in a class, or nil. Callers without a share have share 0.
function queue.lane(q, class, share)
  if q.many then
    return lanes_of().find(q, class, share)
  end
  return share == 0 and q[class] or nil
end

-- settle writes a lane that has changed into the columns, if the line has lanes of shares.
function queue.settle(q, c)
  if q.many then
    lanes_of().settle(q, c)
  end
end

-- write returns the line of a row as it is stored, in the form that read_queue reads. It returns '' if there are no waiters, and for a line with
-- shares that is too large: then the line is lost.
function queue.write(r)
  local q = queue.of(r)
  if not q or queue.waiting(q, CLASSES) <= 0 then
    return ''
  elseif q.many then
    return lanes_of().write(q)
  end

  local v = {q.id, q.began}
  for class = 1, CLASSES do
    local c, i = q[class], #v

    -- A class in which nobody was is a single 0. Waiters in front do not raise joined, but offered and, when their offers lapse, round.
    local is_unused = c.joined == 1 and c.offered == 0 and c.round == 0
    if is_unused then
      v[i + 1] = 0
    else
      v[i + 1], v[i + 2], v[i + 3], v[i + 4] = c.joined, c.joined - c.cut, c.offered, c.since
      v[i + 5], v[i + 6], v[i + 7], v[i + 8] = c.step, c.joined - c.told, c.reserve, c.horizon
      v[i + 9], v[i + 10], v[i + 11], v[i + 12] = c.holds, c.round, c.joined - c.lapsed, #c.holes
    end
    for _, hole in ipairs(c.holes) do
      i = #v
      v[i + 1], v[i + 2], v[i + 3] = c.joined - hole[1], c.joined - hole[2], hole[3]
    end
  end

  v[#v + 1] = q.callers
  return cmsgpack.pack(v)
end

-- ahead returns the cost that goes before a ticket of lane c in a class. Before a ticket below the cut, whose turn has come, go higher classes alone.
function queue.ahead(q, class, c, ticket)
  local sum = queue.waiting(q, class - 1)
  if ticket < c.cut then
    return sum
  end

  local own_ahead = ticket - c.cut -- the cost before the ticket in its own lane that was not offered anything
  for _, hole in ipairs(c.holes) do
    -- The tickets that are gone are taken to lie evenly in their range: take off the cost of those before the ticket.
    local from, to = max(hole[1], c.cut), min(hole[2], ticket)
    if from < to then
      own_ahead = own_ahead - floor(hole[3] * (to - from) / (hole[2] - hole[1]))
    end
  end

  sum = sum + c.offered + own_ahead
  return sum + (q.many and lanes_of().beside(q, class, c, c.share, c.weight, own_ahead) or 0)
end

-- before_newcomer returns the cost that goes before a caller that joins the lane of a share now, with that weight. The first caller with a share
-- gives the line lanes of shares.
function queue.before_newcomer(q, class, share, weight)
  if share ~= 0 and not q.many then
    lanes_of().begin(q)
  end

  if not q.many then
    return queue.waiting(q, class)
  end

  local c, own_ahead = queue.lane(q, class, share), 0 -- the share's lane, and the cost in it that was not offered anything
  local sum = queue.waiting(q, class - 1)
  if c then
    own_ahead = queue.left(c)
    sum = sum + own_ahead + c.offered
  end

  return sum + lanes_of().beside(q, class, c, share, weight, own_ahead)
end

-- behind returns the rank of the last of callers that join the lane of a share now: the cost that goes before the callers, and cost, which all of
-- them together have.
function queue.behind(q, class, share, weight, cost)
  if not q.many then
    return queue.waiting(q, class) + cost
  end
  local c = queue.lane(q, class, share)
  local sum, own = queue.waiting(q, class - 1), cost -- own is the cost without an offer in their lane, with their own
  if c then
    sum, own = sum + c.offered, own + queue.left(c)
  end
  return sum + own + lanes_of().beside(q, class, c, share, weight, own)
end

-- make returns the lane of a share in a class. If there is none it makes the lane or, if the line is full, returns a round. It gives a line without
-- lanes of shares its first lanes.
function queue.make(q, class, share, weight, cost)
  if not q.many then
    lanes_of().begin(q)
  end
  return lanes_of().lane_for(q, class, share, weight, cost)
end

-- line_up adds that many callers of equal cost to the lane of a share, and returns the line, the ticket of the first caller, the lane, and how many
-- of the callers stand there. The lane may be a round: then only the first caller stands there. A row without a line gets a line, whose id is seed.
-- reserve and horizon are the callers', and the line makes offers by them from now on.
function queue.line_up(r, class, share, weight, cost, callers, reserve, horizon, seed)
  local q = queue.of(r)
  if not q then
    q = {id = seed, callers = 0, began = r.seen}
    for i = 1, CLASSES do
      q[i] = unused()
    end
    r.queue = q
  end

  local c = q[class]

  -- With shares the callers stand in a lane. A round takes one caller at a time, because each caller raises the tag of its share.
  if share ~= 0 or q.many then
    c = lanes_of().join(q, class, share, weight, cost)
    callers = lanes_of().is_round(c) and 1 or callers
  end

  local ticket = c.joined
  c.joined = ticket + cost * callers
  queue.joined(q, callers)
  q[class].reserve, q[class].horizon = reserve, horizon
  queue.settle(q, c)
  return q, ticket, c, callers
end

queue.unused = unused
end

-- part: offers
-- What waiters in the line of a row are offered, take, and leave; see queue.lua.
--
-- needs: frame (max, min, floor), queue (lanes_of, queue.of, queue.left, queue.waiting, queue.joined, queue.lapsed, queue.settle), search
--     (search_for, earliest), turn (turn, turn.at, turn.units)
-- defines: queue.MAX_HELD, queue.before, queue.count, queue.leave, queue.hold, queue.pass, queue.free, queue.move, queue.starts_soon,
--     queue.call, queue.turns, queue.tell

do
local left = queue.left
local WAITS, COUNTED, PASSED, CLASSES = queue.WAITS, queue.COUNTED, queue.PASSED, queue.CLASSES
local MAX_HOLES = queue.MAX_HOLES
local LAPSE = ASK_SOON * 2 / 5 -- an offer lapses after this time, or after a quarter of the horizon if that is longer
local SPARE = 1000000 -- an offer is held for this much longer than its waiter's program needs to say that the waiter lives
local MAX_HELD = MAX_ASK + SPARE -- an offer is held for no longer than this
local DITHER = 0.618034 -- multiples of the golden ratio have fractions that are spread evenly
queue.MAX_HELD = MAX_HELD

-- before returns the cost that goes before a waiter whose turn has come. It is a guess: offers are taken to be for the tickets right below the cut,
-- and waiters to come in the order of their tickets, behind the waiters that stood in the lane in this call. A waiter in front, or that had a start,
-- is behind the latter only.
function queue.before(c, w)
  local stood = c.stood or 0
  if w.ticket == FRONT or w.state == queue.HAD then
    return stood
  end
  return max(stood, w.ticket - c.cut + c.offered)
end

-- join_holes makes one hole of two neighbours in a list of holes. It takes the two with the fewest waiters in their joint range, because nobody knows
-- afterwards which tickets of the range are gone. The two that are nearest to each other would be wrong: one hole would grow over the whole line, and
-- the cut would pass tickets that are gone as if their owners waited.
local function join_holes(holes)
  local best, fewest = 1, MAX_NUMBER
  for i = 1, #holes - 1 do
    local waiters = holes[i + 1][2] - holes[i][1] - holes[i][3] - holes[i + 1][3]
    if waiters < fewest then
      best, fewest = i, waiters
    end
  end

  local second = table.remove(holes, best + 1)
  holes[best][2], holes[best][3] = second[2], holes[best][3] + second[3]
end

-- add_hole makes a hole of a ticket of that cost in lane c, because its owner has left. Holes that overlap the ticket become one hole with it. If the
-- lane has more than MAX_HOLES then, neighbours are joined.
local function add_hole(c, ticket, cost)
  local from, to = ticket, min(ticket + cost, c.joined)
  local holes, i = c.holes, 1
  while holes[i] and holes[i][2] <= from do
    i = i + 1
  end

  local gone = to - from
  while holes[i] and holes[i][1] < to do
    local overlapped = table.remove(holes, i)
    from, to, gone = min(from, overlapped[1]), max(to, overlapped[2]), gone + overlapped[3]
  end

  -- The overlapped holes may have counted a part of the ticket as gone already, but no more than the range can be gone.
  table.insert(holes, i, {from, to, min(gone, to - from)})

  while #holes > MAX_HOLES do
    join_holes(holes)
  end
end

-- counted returns the part of a ticket's cost that counts in its lane, as offered or as left (see queue.left): all of it but the part whose offer
-- lapsed. A ticket in front counts only while it is among the offers. The ticket of a waiter that passed or had a start does not count.
local function counted(c, w, cost)
  -- No offer has lapsed since the ticket was counted among the offers.
  if w.state == COUNTED and w.round == c.round then
    return cost
  elseif w.ticket == FRONT or w.state ~= COUNTED and w.state ~= WAITS then
    return 0
  end
  return max(0, min(cost, w.ticket + cost - c.lapsed)) -- offers of all numbers below c.lapsed have lapsed
end

-- count notes that a waiter whose turn has come waits for room: the part of its cost that did not count in its lane counts among the offers from now
-- on, and the waiter's state is COUNTED. With shares its lane is dealt and charged what is missing: see lanes.complete.
function queue.count(q, c, w, cost, now)
  local missing = cost - counted(c, w, cost)

  -- Nothing of the cost counted, nor did the waiter as a caller: it was taken out when its offer lapsed or when it started, or it comes in front.
  if missing == cost then
    queue.joined(q, 1)
  end

  -- When an offer lapsed, the lane got its charge back, so complete charges the lane again. A waiter in front, or that had a start, was charged
  -- before.
  local is_charged_again = (w.state == WAITS or w.state == COUNTED) and w.ticket ~= FRONT
  local lapsed = is_charged_again and missing or 0
  w.state, w.round, c.offered = COUNTED, c.round, c.offered + missing
  if missing > 0 and c.since == 0 then
    c.since = now
  end

  if q.many then
    lanes_of().complete(q, c, w, cost, lapsed)
  end
end

-- take_offer takes the ticket of a waiter out of the offers of its lane. The ticket begins below the cut: a cut that is inside the ticket moves to
-- the ticket's end.
local function take_offer(c, w, cost)
  -- counted has the whole ticket, so add back the part behind the cut, which was not among the offers. A kept ticket may come back with a larger
  -- cost: it ends at joined, behind which nobody stands.
  local stop = w.ticket == FRONT and FRONT or min(w.ticket + cost, c.joined)
  c.offered = max(0, c.offered - counted(c, w, cost) + max(0, stop - c.cut))
  c.cut = max(c.cut, stop)

  -- Holes, and parts of holes, below the cut matter no longer.
  local holes = c.holes
  while holes[1] and holes[1][2] <= c.cut do
    table.remove(holes, 1)
  end
  local first = holes[1]
  if first and first[1] < c.cut then
    first[1], first[3] = c.cut, min(first[3], first[2] - c.cut)
  end
end

-- take_out takes the ticket of a waiter that starts, leaves or passes out of the costs that are offered and left in its lane.
local function take_out(c, w, cost)
  local known_sum = max(0, left(c) + c.offered - counted(c, w, cost)) -- what is offered and left without the ticket
  if w.ticket >= c.cut then
    add_hole(c, w.ticket, cost)
  else
    take_offer(c, w, cost)
  end

  -- Where holes were joined nobody knows which tickets are gone, so there may be an excess now over what is known. Take it off the offers first: an
  -- offer to a waiter that is gone is never taken, and has all others wait until it lapses. Count the rest as gone in the holes.
  local excess = max(0, left(c) + c.offered - known_sum)
  local lost = min(excess, c.offered)
  c.offered, excess = c.offered - lost, excess - lost
  for _, hole in ipairs(c.holes) do
    local gone = min(excess, hole[2] - hole[1] - hole[3])
    hole[3], excess = hole[3] + gone, excess - gone
  end
end

-- leave takes a waiter with a ticket out of its lane: the waiter starts if starts is true, and gives up otherwise. s is the waiter's search in the
-- row of the line. With shares the lane is charged for the start, or gets back its charge for a waiter that gives up.
function queue.leave(q, c, w, s, starts)
  local cost = s.each
  if not starts then
    q.event = true -- tell publishes news, because the waiters behind may come earlier
  end

  local still_counted = counted(c, w, cost) -- the part of the cost that counts until the ticket is taken out
  if q.many and starts then
    lanes_of().took(q, c, w, cost, still_counted)
  elseif q.many then
    lanes_of().left_by(q, c, w, s, still_counted)
  end

  if still_counted > 0 then
    queue.joined(q, -1)
    take_out(c, w, cost)
  end

  if starts then
    c.step, c.holds, c.since = 0, 0, now -- the lane's waiters take what they are offered
  end

  -- All waiters have offers, so every ticket behind the cut is gone: the cut passes them.
  if left(c) <= 0 then
    c.cut, c.holes = c.joined, {}
  end

  queue.settle(q, c)
end

-- hold keeps the offers of a lane from lapsing, for a waiter whose turn has come and that waits for more room than there is. The waiter's program
-- comes again, or renews the hold, within that length of time.
function queue.hold(q, c, now, length)
  c.holds = max(c.holds, now + length + SPARE)
  queue.settle(q, c)
end

-- pass notes that a waiter of that cost, whose turn has come here, waits in the line of a different budget: its offer goes to other waiters, and the
-- state PASSED says that it had its turn. The state HAD stays.
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

-- free notes that a row may have room for waiters whose turn has come: no offer is held any longer, and tell publishes once more whose turn it is.
-- It does nothing if the row has no line.
function queue.free(r)
  local q = queue.of(r)
  if not q then
    return
  end

  if q.many then
    lanes_of().free(q)
  else
    for class = 1, CLASSES do
      local c = q[class]
      if c.told < c.cut and not q.freed then
        c.since = now -- no earlier free of this call has lowered told, so the waiters are told for the first time
      end
      c.holds, c.told = 0, FRONT -- a cut above told is news
    end
  end

  q.event, q.freed = true, true
end

-- move moves the cut of a lane over waiters with the cost amount, or over all waiters if they cost less. It returns the cost of the waiters that the
-- cut passed. Tickets of callers that have left cost nothing: they are in the holes {from, to, cost} of the lane.
local function move(c, amount)
  local passed, holes = 0, c.holes
  while passed < amount and c.cut < c.joined do
    local first = holes[1]

    -- Before the next hole, each ticket is of a waiter.
    if not first or c.cut < first[1] then
      local stop = min(first and first[1] or c.joined, c.cut + amount - passed)
      passed, c.cut = passed + stop - c.cut, stop
    else
      -- In a hole, too, some tickets are of waiters, and nobody knows which. If rest is half of the cost of these waiters, the cut passes half of the
      -- hole.
      local size, rest = first[2] - c.cut, amount - passed
      local waiters = size - min(first[3], size) -- their cost
      if waiters <= rest then
        passed, c.cut = passed + waiters, first[2]
        table.remove(holes, 1)
      else
        -- Round up and down by turns. Rounded up alone, a cut that goes one ticket at a time would pass only tickets of callers that left.
        local part = min(size, floor(size * rest / waiters + c.cut * DITHER % 1))
        first[3] = max(0, first[3] - (part - rest)) -- in the part of the hole that the cut passes, all tickets but those for rest are gone
        passed, c.cut, first[1] = amount, c.cut + part, c.cut + part
      end
    end
  end

  return passed
end
queue.move = move

-- starts_soon reports whether a waiter of cost 1 could start within a third of the horizon. After a penalty turn.units does not say that: in a slow
-- start, turn.units counts room that nobody may take yet. Where the calendar boundaries end, starts_soon returns true.
function queue.starts_soon(u, reserve, horizon)
  local t = earliest(search_for(u, 1, reserve, now, 0, false), now)
  return not t or t <= now + floor(horizon / 3)
end

-- offer_class offers the waiters of a class, in a line without shares, the room within their horizon, less taken, the cost that higher classes were
-- offered. It reports whether waiters of the class should hurry.
--
-- Offers lapse when their waiters do not come in time after the cut was published: the waiters may never come. Then the cut goes on, twice as far
-- each time. Waiters that are late may still come.
local function offer_class(r, u, q, class, now, taken)
  local c = q[class]
  local reserve, horizon = min(c.reserve, u.n - 1), c.horizon -- the limit may have become smaller than the reserve

  local amount = turn.units(u, reserve, now + horizon) - taken - c.offered -- the room that is offered to nobody

  -- Waiters should hurry if there is room within a third of the horizon, and no waiter holds the offers.
  local hurries = turn.units(u, reserve, now + floor(horizon / 3)) > 0 and now > c.holds

  -- Note since when a waiter that was told could have started. Nobody is late before there is room.
  if hurries then
    local untold = c.told < c.cut and not q.freed -- this call tells the waiters: see queue.tell
    if untold or c.since == 0 or c.since > now then
      c.since = now
    end
  elseif c.offered > 0 then
    c.since = max(turn.at(u, reserve, now, 1, 1), c.holds)
  else
    c.since = 0
  end

  -- In a slow start after a penalty the room may be closed to all waiters: then nothing lapses.
  local lapses = hurries and c.offered > 0 and now - c.since > max(LAPSE, floor(horizon / 4))
  if lapses and r.paused > 0 and not queue.starts_soon(u, reserve, horizon) then
    hurries, lapses, c.since = false, false, now
  end

  -- The offers lapse: their room is offered again, or the step if that is more. The step doubles, so that a line whose first waiters are gone is
  -- passed in few lapses.
  if lapses then
    queue.lapsed(q, c.offered, queue.waiting(q, CLASSES))
    c.step = max(2 * c.step, c.offered)
    amount = max(amount + c.offered, c.step)
    c.offered, c.since = 0, now
    c.round, c.lapsed = now, c.cut
  end

  if amount > 0 and c.cut < c.joined then
    c.offered, c.since = c.offered + move(c, amount), now
  end
  return hurries
end

-- call offers the waiters of row r, under rule u, the room within their horizons, High first. Offers that are not taken are never more than that room
-- was when they were made. call notes in the line whether a waiter should hurry. Without a line it does nothing, and u may be nil.
function queue.call(r, u, now)
  local q = queue.of(r)
  if not q then
    return
  end

  local taken, hurry = 0, false -- taken is the cost that is offered to the classes so far
  q.began = min(q.began, now) -- the clock may have been set back
  for class = 1, CLASSES do
    local c, hurries = q[class], false
    local is_left = false -- whether a waiter of the class was offered nothing
    c.holds = min(c.holds, now + MAX_HELD) -- the clock may have been set back

    if q.many then
      local offered
      offered, hurries = lanes_of().call(r, u, q, class, now, taken)
      taken, is_left = taken + offered, lanes_of().is_left(q, class)
    elseif left(c) > 0 or c.offered > 0 then
      hurries = offer_class(r, u, q, class, now, taken)
      taken, is_left = taken + c.offered, left(c) > 0
    end
    hurry = hurry or hurries

    -- Lower classes are offered nothing before all waiters of this class have an offer.
    if is_left then
      break
    end
  end

  q.hurry = hurry
end
end

-- What programs are told of the line of a row.
do
local left, CLASSES = queue.left, queue.CLASSES
local COME = 'come %.0f %.0f %.0f %.0f %s' -- the line, the cut of each class, the key

-- turns returns three values about the line of row r, in microseconds from now on: by class, in how long the first waiter without an offer will have
-- its turn; by class, in how long the last one will; and in how long the first of all waiters may start, with an offer or without. Each is 0 if there
-- is no such waiter. With shares the lists are of waiters without a share, and a list of the lanes follows: see lanes.turns.
function queue.turns(r, u, now)
  local q = r.queue
  local first, last = {0, 0, 0}, {0, 0, 0}
  local soon -- in how long the first of all waiters may start
  if q.many then
    return lanes_of().turns(q, u, now)
  end

  for class = 1, CLASSES do
    local c = q[class]
    local waits, reserve = left(c), min(c.reserve, u.n - 1)

    -- Waiters with an offer stand before all that have none.
    if waits > 0 then
      local last_rank = queue.waiting(q, class)
      first[class] = turn.at(u, reserve, now, 1, last_rank - waits + 1) - now
      last[class] = turn.at(u, reserve, now, 1, last_rank) - now
    end

    -- The first class with waiters has the first of all waiters.
    if not soon and (waits > 0 or c.offered > 0) then
      soon = c.offered > 0 and turn.at(u, reserve, now, 1, 1) - now or first[class]
    end
  end

  return first, last, soon or 0
end

-- tell publishes the cuts of a line on a channel, if a cut is news and waiters should know: they should hurry, something was given back, or callers
-- have left, so that the waiters behind those expect their turns too late. It returns 2 if it published, 1 if no cut is news but waiters should ask
-- again soon, and 0 if there is no line, or waiters need not know.
function queue.tell(r, channel)
  local q = r.queue
  if not q then
    return 0
  elseif q.many then
    return lanes_of().tell(r, q, channel)
  end

  local has_news, has_holes = false, false
  for class = 1, CLASSES do
    has_news = has_news or q[class].told < q[class].cut
    has_holes = has_holes or #q[class].holes > 0
  end

  local should_tell = q.hurry or q.event or has_holes
  if not should_tell then
    return 0
  elseif not has_news then
    return 1
  end

  for class = 1, CLASSES do
    q[class].told = q[class].cut
  end

  redis.pcall('PUBLISH', channel, string.format(COME, q.id, q[1].cut, q[2].cut, q[3].cut, r.key))
  return 2
end
end
