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
