-- Callers that have to wait in line for a start; see queue.lua.
--
-- What a caller wants, w, is its class, its horizon, 0 if it stands in no line, its tickets
-- by charge, and whether it goes first in lines where it has none. A ticket has the share of its lane.
--
-- needs: answer (FIVE, answer), book (seed, out), frame (max, min, floor, frame, cursor, now), offers (queue.before, queue.count,
--     queue.leave, queue.hold, queue.pass, queue.call), penalty (is_free), queue (lanes_of, queue, queue.of, queue.waiting, queue.lane,
--     queue.ahead, queue.before_newcomer, queue.behind, queue.make, queue.line_up), request (find), search (search_for, earliest), served
--     (served_of), slots (leave_line, first_open), turn (turn, turn.at)
-- defines: read_tickets, stand, quit, renew, started, keep_behind

local read_tickets, stand, quit, renew, started, keep_behind
do
local WAITS, PASSED, HAD = queue.WAITS, queue.PASSED, queue.HAD

-- read_tickets reads the tickets of a caller, by charge. The line that gave a ticket may have ended
-- since.
function read_tickets(count)
  local by_charge = {}
  for _ = 1, count do
    local index, w = 0, {}
    index, w.id, w.ticket, w.state, w.round, w.share, cursor = struct.unpack('<dddddd', frame, cursor)
    by_charge[index] = w
  end
  return by_charge
end

-- ticket_of returns the caller's ticket in the line of a search, the line, and the caller's lane. Each is nil if it does not
-- exist. A ticket of a lane that was forgotten is void.
local function ticket_of(want, s)
  local w, q = want.tickets[s.index], queue.of(s.row)
  local has = w and q and w.id == q.id
  local c = q and queue.lane(q, want.class, has and w.share or s.share)
  return has and c and w.ticket < c.joined and w or nil, q, c
end

-- held_by returns the search whose line a caller has to stand in, or nil, and when the caller will have its
-- turn there. Then it returns the earliest time of a start, and the index of the
-- charge that set that time, or 0. A caller that had its turn in one row and waits in a second one may find the start in the
-- first row far away again, and so on for ever. So it gets the
-- first start that is possible in both: one such start at a time in each row.
local function held_by(list, want, from)
  local held, turn_at
  local least, by = from, 0
  for _, s in ipairs(list) do
    if not s.shadow then
      -- Room is offered once in a call, before its first caller looks at the line.
      if not s.row.called then
        s.row.called = true
        queue.call(s.row, s.rule, now)
      end
      local w, q, c = ticket_of(want, s)

      -- A ticket says who stands before the caller. After a start that was given up, only higher classes do; before a newcomer all do.
      local ahead = 0
      if w then
        ahead = queue.ahead(q, want.class, c, w.ticket)
      elseif q and want.first then
        ahead = queue.waiting(q, want.class - 1)
      elseif q then
        ahead = queue.before_newcomer(q, want.class, s.share, s.weight)
      end
      local t, need = earliest(s, from)
      if not t then
        return nil, nil, nil, nil, need
      end
      s.alone = t
      if t > least then
        least, by = t, s.index
      end
      if ahead > 0 then
        t = max(t, now + 1) -- the waiters before it do not start now, so this one waits for some time
      end
      local before = ahead > 0 and ahead or (w and queue.before(c, w) or 0)
      if before > 0 and (ahead > 0 or t - from > want.horizon) then
        t = max(t, turn.at(s.rule, s.reserve, from, s.each, before + s.each))
      end
      if ahead > 0 and s.row.paused > 0 then -- turn.at does not know that a slow start has room for a part of them only
        local together = search_for(s.rule, min(before + s.each, s.most), s.reserve, from, 0, false)
        t = max(t, earliest(together, from) or t)
      end
      if c and not (want.first or w and w.state == HAD) and (t - from > want.horizon or c.stood) then
        t = max(t, c.furthest or 0) -- none starts, or is told to come, before one of this call that goes first
      end
      local far = t - from > want.horizon

      -- It had its turn in this row: a start beyond the horizon is for one caller at a time, whose start is the pin.
      if far and w and w.state == PASSED then
        far = s.row.pin > from + want.horizon
      end

      -- Of several lines, the caller stands in the line with the latest turn.
      if (ahead > 0 or far) and not (turn_at and turn_at >= t) then
        held, turn_at = s, t
      end
    end
  end

  return held, turn_at, least, by
end

-- line_up puts callers in the line of a search, in which the first of them will have its
-- turn then, and answers.
local function line_up(list, want, s, callers, turn_at, max_wait)
  local t_last = turn_at
  if callers > 1 then
    local q = queue.of(s.row)
    local rank = q and queue.behind(q, want.class, s.share, s.weight, s.each * callers) or s.each * callers
    t_last = max(t_last, turn.at(s.rule, s.reserve, now, s.each, rank))
  end

  if t_last - now > max_wait then
    callers, t_last = 1, turn_at -- the others are asked one by one
  end

  -- The caller waits in the line of s now, so offers in its other lines go to other waiters.
  for _, o in ipairs(list) do
    local w, q, c = ticket_of(want, o)
    if w and o ~= s and w.ticket < c.cut then
      queue.pass(q, c, w, o.each)
    end
  end

  -- A caller that had a start goes to the front. A new caller gets the next ticket of its lane.
  local w, q, c = ticket_of(want, s)
  if not w then
    w = {state = WAITS, round = 0}
    if q and want.first then
      w.ticket, c = FRONT, c or queue.make(q, want.class, s.share, s.weight, s.each)
    else
      local stood
      q, w.ticket, c, stood = queue.line_up(s.row, want.class, s.share, s.weight, s.each, callers, s.reserve, want.horizon, seed)
      if stood < callers then
        callers, t_last = stood, turn_at
      end
    end

    w.id, w.share = q.id, c.share or 0
    want.tickets[s.index] = w
  end

  c.furthest = max(c.furthest or 0, turn_at) -- the callers behind it in this call do not start before

  -- The waiter's turn has come, and there is no room yet: it counts among the offers.
  if w.state == HAD or w.state ~= PASSED and w.ticket < c.cut then
    queue.count(q, c, w, s.each, now)
    q[want.class].reserve, q[want.class].horizon = s.reserve, want.horizon
  end

  if w.ticket < c.cut then
    -- Room for a large cost comes together slowly, so the offer must not lapse meanwhile.
    if s.each > 1 then
      queue.hold(q, c, now, min(max(ASK_LEAST, floor((turn_at - now) / 2)), ASK_LAST))
    end

    c.stood = (c.stood or 0) + s.each
  end

  answer(FIVE, callers, IN_LINE, turn_at, s.index, s.row.paused > s.from and s.row.paused or 0)
  local count, told = 0, {}
  for k, t in pairs(want.tickets) do
    count = count + 1
    told[#told + 1] = struct.pack('<dddddd', k, t.id, t.ticket, t.state, t.round, t.share)
  end

  answer('<dd', t_last, count)
  out[#out + 1] = table.concat(told)
  if want.fresh then
    want.tickets = {} -- the next of them has others
  end

  return callers
end

-- quit ends what callers have in lines: they leave, or start; many is how many.
function quit(list, want, starts, many)
  for _, s in ipairs(list) do
    local w, q, c = ticket_of(want, s)
    if w then
      -- A waiter that had its turn, or stands in front, was counted before.
      if q.many and starts and w.state ~= HAD and w.ticket ~= FRONT then
        served_of().count(q, want.class, c.share, s.each)
      end
      queue.leave(q, c, w, s, starts)
      w.state = HAD
    elseif q and q.many and starts and not want.first and not s.shadow then
      lanes_of().start(q, want.class, s.share, s.weight, s.each * many)
      served_of().count(q, want.class, s.share, s.each * many)
    end
  end
end

-- renew keeps the offer of a waiter that came and waits for more room than there is, for a length of time.
function renew(list, want, length)
  for _, s in ipairs(list) do
    local w, q, c = ticket_of(want, s)
    if w and s.each > 1 and w.ticket < c.cut then
      queue.hold(q, c, now, length)
    end
  end
end

-- started notes a start that was waited for. Callers of its class and of lower classes
-- keep behind it in the row that held it, the next of equal callers as well. A start beyond the horizon is the row's pin.
function started(list, want, held, t, from)
  for _, s in ipairs(list) do
    local tail = 't' .. floor(want.class) -- Lua 5.4 has 1.0 of a number of a frame
    if is_free(s.rule, s.row) then
      -- the row is left as it is
    elseif t - from > want.horizon then
      s.row.pin = t
    elseif s.index == held then
      s.row[tail] = max(s.row[tail], t)
      s.tail = s.follows and max(s.tail, t) or s.tail
    end
  end
end

-- keep_behind lets a caller keep behind the starts that others waited for, but where it had
-- a start itself.
function keep_behind(list, want)
  local counting = 0 -- searches whose row counts starts
  for _, s in ipairs(list) do
    counting = counting + (is_free(s.rule, s.row) and 0 or 1)
  end

  for _, s in ipairs(list) do
    local w, had = ticket_of(want, s), want.first
    if w then
      had = w.state == HAD or w.ticket == FRONT
    end
    for k = 1, had and 0 or want.class do
      s.tail = max(s.tail, s.row['t' .. k])
    end
    s.horizon, s.single = want.horizon, counting == 1
    s.follows = not had
  end
end

-- refuse refuses callers that may not wait until their turn in the line of a search, and returns for how many it did that, and the calendar
-- boundaries that it needs, if it needs more. The rows together, and the claims, may have room later than each of the rows:
-- no earlier than least, which the charge by set.
local function refuse(list, want, claims, s, callers, turn_at, max_wait, least, by)
  local t, held, paused = turn_at, s.index, s.row.paused > s.from and s.row.paused or 0

  -- A caller that waits for any time is not refused, and needs no later bound.
  if max_wait < MAX_NUMBER and #list + #claims > 1 then
    local from, gate = s.from, nil
    if #claims > 0 then
      from, gate = first_open(claims, from, now)
    end
    if from > least or gate and from == least and gate < by then -- of those that set it the first counts
      by = 0
    end
    local start, index, till = find(list, s.from, max(least, from), by)
    if not start then
      return 0, index
    elseif start > t or start == t and index == 0 then
      t, held, paused = start, index, till
    end
    if held == 0 then
      held, paused = gate, from
    end
  end

  if max_wait > 0 and t - now <= max_wait then
    return 0
  end

  answer(FIVE, callers, REFUSED, t, held, paused)
  quit(list, want)
  return callers
end

-- stand puts callers in a line, if they have to stand in one, or refuses them. It returns
-- how many it did that for, the calendar boundaries that it needs, if it needs more, and for
-- one that starts what held_by returns.
function stand(list, want, claims, callers, arrival, from, max_wait)
  local s, turn_at, least, by, need = held_by(list, want, from)
  if need or not s then
    return 0, need, least, by
  end

  -- The line for a start comes first: the caller leaves the line for slots.
  if #claims > 0 and arrival > 0 then
    leave_line(claims, arrival)
  end

  local refused
  refused, need = refuse(list, want, claims, s, callers, turn_at, max_wait, least, by)
  if refused > 0 or need then
    return refused, need
  end

  return line_up(list, want, s, callers, turn_at, max_wait)
end
end
