-- The line of waiters for a start in a row; docs/line.md says what it promises and why. The
-- programs know their waiters. A row knows how much waits, and whose turn it is.
--
-- Each priority is a class, 1 for High to 3 for Low. A class counts the costs of all
-- waiters that joined; the count before one is its ticket. The cut goes up as room comes, and
-- waiters with tickets below it may come.
--
-- A line q is
--   id              a random number: tickets of another line are void
--   began           when it was made
--   event           something was given back, or a waiter left, in this call
-- and for each class a table c
--   joined, cut     the next ticket, and the first whose turn has not come
--   offered, since  costs below the cut that did not come yet, and since when it stands
--   step            how far the cut went last because no waiter came
--   told            the cut that was published last
--   holds           until then a waiter whose turn has come waits for more room than there is
--   reserve, horizon  of the last waiter that joined
--   round, lapsed   when offers lapsed last, and the cut then
--   holes           {from, to, cost}: of the tickets in between so much has left
--
-- The state of a ticket: its owner waits; or its turn has come, and it is counted among the
-- offers since the lapse that its round names; or it passed, and waits in another line; or it
-- had a start.

local queue = {WAITS = 0, COUNTED = 1, PASSED = 2, HAD = 3, CLASSES = 3}
do
local WAITS, COUNTED, PASSED, CLASSES = queue.WAITS, queue.COUNTED, queue.PASSED, queue.CLASSES
local MOST_HOLES = 6
local LAPSE = ASK_SOON * 4 / 5 -- for so long, or a quarter of the horizon, an offer is good
local SPARE, MOST_HELD = 1000000, 61000000
local COME = 'come %.0f %.0f %.0f %.0f %s'

-- read takes a stored line apart.
local function read_queue(r)
  local v = cmsgpack.unpack(redis.call('GETRANGE', r.key, HEAD_SIZE, HEAD_SIZE + r.lined - 1))
  for _, x in ipairs(v) do
    assert(x % 1 == 0 and math.abs(x) <= MAX_NUMBER)
  end
  local q, i = {id = v[1], began = v[2]}, 3
  for k = 1, CLASSES do
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
local function left(c)
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
    sum = sum + left(q[k]) + q[k].offered
  end
  return sum
end

-- write returns a line as it is stored; '' if there are no waiters.
function queue.write(r)
  local q = queue.of(r)
  if not q or queue.waiting(q, CLASSES) <= 0 then
    return ''
  end
  local v = {q.id, q.began}
  for k = 1, CLASSES do
    local c, i = q[k], #v
    v[i + 1], v[i + 2], v[i + 3], v[i + 4], v[i + 5], v[i + 6], v[i + 7], v[i + 8], v[i + 9], v[i + 10],
      v[i + 11], v[i + 12] = c.joined, c.joined - c.cut, c.offered, c.since, c.step, c.joined - c.told, c.reserve,
      c.horizon, c.holds, c.round, c.joined - c.lapsed, #c.holes
    for _, h in ipairs(c.holes) do
      i = #v
      v[i + 1], v[i + 2], v[i + 3] = c.joined - h[1], c.joined - h[2], h[3]
    end
  end
  return cmsgpack.pack(v)
end

-- ahead returns what goes before a ticket of a class.
function queue.ahead(q, class, ticket)
  local c, sum = q[class], queue.waiting(q, class - 1)
  if ticket < c.cut then
    return sum
  end
  sum = sum + c.offered + ticket - c.cut
  for _, h in ipairs(c.holes) do
    local from, to = max(h[1], c.cut), min(h[2], ticket)
    if from < to then
      sum = sum - floor(h[3] * (to - from) / (h[2] - h[1]))
    end
  end
  return sum
end

-- before returns what goes before a waiter whose turn has come, as far as one can tell: they
-- are served in the order of their tickets.
function queue.before(c, w)
  local stood = c.stood or 0
  if w.ticket < 0 or w.state == queue.HAD then
    return stood
  end
  return max(stood, w.ticket - c.cut + c.offered)
end

-- line_up lets so many of equal cost stand in line, and returns the ticket of the first.
function queue.line_up(r, class, cost, many, reserve, horizon, seed)
  local q = queue.of(r)
  if not q then
    -- One that comes back soon after the last start that others waited for has been there.
    q = {id = seed, began = max(r.t1, r.t2, r.t3) > r.seen - r.span / 4 and r.seen - 2 * r.span or r.seen}
    for k = 1, CLASSES do
      q[k] = {joined = 0, cut = 0, offered = 0, since = 0, step = 0, told = 0, reserve = 0, horizon = 0, holds = 0, round = 0,
        lapsed = 0, holes = {}}
    end
    r.queue = q
  end
  local c = q[class]
  local ticket = c.joined
  c.joined, c.reserve, c.horizon = ticket + cost * many, reserve, horizon
  return q.id, ticket
end

-- hole notes that a ticket of a cost is given back.
local function hole(c, ticket, cost)
  local from, to, H, i = ticket, min(ticket + cost, c.joined), c.holes, 1
  while H[i] and H[i][2] < from do
    i = i + 1
  end
  local gone = to - from
  while H[i] and H[i][1] <= to do
    local h = table.remove(H, i)
    from, to, gone = min(from, h[1]), max(to, h[2]), gone + h[3]
  end
  table.insert(H, i, {from, to, min(gone, to - from)})
  while #H > MOST_HOLES do
    local best, gap = 1, MAX_NUMBER
    for k = 1, #H - 1 do
      if H[k + 1][1] - H[k][2] < gap then
        best, gap = k, H[k + 1][1] - H[k][2]
      end
    end
    local h = table.remove(H, best + 1)
    H[best][2], H[best][3] = h[2], H[best][3] + h[3]
  end
end

-- counted returns how much of a ticket's cost counts among what is offered, or is left: all
-- of it, but what lapsed.
local function counted(c, w, cost)
  if w.state == COUNTED and w.round == c.round then
    return cost
  elseif w.ticket < 0 or w.state ~= COUNTED and w.state ~= WAITS then
    return 0
  end
  return max(0, min(cost, w.ticket + cost - c.lapsed))
end

-- count counts a waiter whose turn has come and that waits for room.
function queue.count(c, w, cost, now)
  local missing = cost - counted(c, w, cost)
  w.state, w.round, c.offered = COUNTED, c.round, c.offered + missing
  if missing > 0 and c.since == 0 then
    c.since = now
  end
end

-- take_out takes a ticket out of what is offered and of what is left. How much there is after
-- that is known, but not which tickets are gone where holes were joined. What is offered to a
-- waiter that is gone is never taken, and keeps the others waiting until it lapses. So what was
-- guessed too much is taken back.
local function take_out(c, w, cost)
  local there = max(0, left(c) + c.offered - counted(c, w, cost))
  if w.ticket >= c.cut then
    hole(c, w.ticket, cost)
  else
    local H, stop = c.holes, w.ticket < 0 and 0 or min(w.ticket + cost, c.joined)
    c.offered = max(0, c.offered - counted(c, w, cost) + max(0, stop - c.cut))
    c.cut = max(c.cut, stop)
    while H[1] and H[1][2] <= c.cut do
      table.remove(H, 1)
    end
    if H[1] and H[1][1] < c.cut then
      H[1][1], H[1][3] = c.cut, min(H[1][3], H[1][2] - c.cut)
    end
  end
  local more = max(0, left(c) + c.offered - there)
  local lost = min(more, c.offered)
  c.offered, more = c.offered - lost, more - lost
  for _, h in ipairs(c.holes) do
    local gone = min(more, h[2] - h[1] - h[3])
    h[3], more = h[3] + gone, more - gone
  end
end

-- quit ends what one with a ticket had in a line: it starts, or leaves.
function queue.quit(q, class, w, cost, starts)
  local c = q[class]
  if not starts then
    q.event = true
  end
  if counted(c, w, cost) > 0 then
    take_out(c, w, cost)
  end
  if starts then
    c.step, c.holds = 0, 0
  end
  if left(c) <= 0 then
    c.cut, c.holes = c.joined, {}
  end
end

-- hold keeps room for a waiter whose turn has come and that waits for more than there is. Its
-- program says again that it lives within that length.
function queue.hold(c, now, length)
  c.holds = max(c.holds, now + length + SPARE)
end

-- pass notes that a waiter whose turn has come waits in another line.
function queue.pass(q, class, w, cost)
  local c = q[class]
  if counted(c, w, cost) > 0 then
    take_out(c, w, cost)
  end
  if w.state == COUNTED or w.state == WAITS then
    w.state = PASSED
  end
end

-- free notes that there may be room for a waiter whose turn has come.
function queue.free(r)
  local q = queue.of(r)
  for k = 1, q and CLASSES or 0 do
    q[k].holds, q[k].told, q.event = 0, -1, true
  end
end

-- move takes the cut over so much that waits, and returns over how much it went.
local function move(c, amount)
  local passed, H = 0, c.holes
  while passed < amount and c.cut < c.joined do
    local h = H[1]
    if not h or c.cut < h[1] then
      local stop = min(h and h[1] or c.joined, c.cut + amount - passed)
      passed, c.cut = passed + stop - c.cut, stop
    else
      local size = h[2] - c.cut
      local live = size - min(h[3], size)
      if live <= amount - passed then
        passed, c.cut = passed + live, h[2]
        table.remove(H, 1)
      else
        local part = min(size, ceil(size * (amount - passed) / live))
        h[3] = max(0, h[3] - (part - (amount - passed)))
        passed, c.cut, h[1] = amount, c.cut + part, c.cut + part
      end
    end
  end
  return passed
end

-- call offers what room there is within the horizon, High first. Waiters
-- that did not come in time may never come: then the cut goes further each time, and they
-- may still come.
function queue.call(r, u, now)
  local q = queue.of(r)
  if not q then
    return
  end
  local taken, hurry = 0, false
  q.began = min(q.began, now) -- the clock may have been set back
  for k = 1, CLASSES do
    local c = q[k]
    c.since, c.holds = min(c.since, now), min(c.holds, now + MOST_HELD)
    if left(c) > 0 or c.offered > 0 then
      local s = search_for(u, 1, min(c.reserve, u.n - 1), now, 0, false)
      local near = turn.units(s, now, now + floor(c.horizon / 3)) > 0 and now > c.holds
      local amount = turn.units(s, now, now + c.horizon) - taken - c.offered
      if near and c.offered > 0 and now - c.since > max(LAPSE, floor(c.horizon / 4)) then
        c.step = max(2 * c.step, c.offered)
        amount, c.offered, c.since = max(amount + c.offered, c.step), 0, now
        c.round, c.lapsed = now, c.cut
      end
      if amount > 0 and c.cut < c.joined then
        c.offered, c.since = c.offered + move(c, amount), now
      end
      hurry = hurry or near
      taken = taken + c.offered
      if left(c) > 0 then
        break
      end
    end
  end
  q.hurry = hurry
end

-- turns returns in how long the first waiter of each class without an offer will have its
-- turn, and the last; 0 if there is none.
function queue.turns(r, u, now)
  local q, first, last = r.queue, {0, 0, 0}, {0, 0, 0}
  for k = 1, CLASSES do
    local waits = left(q[k])
    if waits > 0 then
      local s, all = search_for(u, 1, min(q[k].reserve, u.n - 1), now, 0, false), queue.waiting(q, k)
      first[k], last[k] = turn.at(s, all - waits + 1) - now, turn.at(s, all) - now
    end
  end
  return first, last
end

-- tell publishes whose turn it is, if waiters may not know: there is room so soon that none
-- should sleep, or some have left, so that the guesses of the others are too late. It returns
-- 2 if there was anything new, 1 if it is worth asking again soon, and else 0.
function queue.tell(r, channel)
  local q = r.queue
  if not q then
    return 0
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
