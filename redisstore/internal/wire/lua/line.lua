-- Callers that have to wait in line for a start: they take their places, keep them or give them up. How a line is stored, and whose turn it is,
-- is in queue.lua. internal/ledger/line.go does the same in Go.
--
-- What a caller wants is in a table:
--
--   class, horizon  of the caller; a horizon of 0 means that the caller stands in no line
--   tickets         the caller's tickets, by the index of the charge
--   first           the caller had a start before, so it goes first in lines where it has no ticket
--   asks_again      all programs have had time to report which starts a loss of data forgot
--   together        all of the equal callers may start together: a caller with claims has no equal callers
--   fresh           the caller came without tickets
--
-- needs: answer (FIVE, answer), book (seed, out), frame (max, min, floor, frame, cursor, now), offers (queue.before, queue.count,
--     queue.leave, queue.hold, queue.pass, queue.call), penalty (is_free), queue (lanes_of, queue, queue.of, queue.waiting, queue.lane,
--     queue.ahead, queue.before_newcomer, queue.behind, queue.make, queue.line_up), request (find), search (search_for, earliest), served
--     (served_of), slots (leave_line, first_open), turn (turn, turn.at)
-- defines: read_tickets, open_from, stand, quit, renew, started, keep_behind

local read_tickets, open_from, stand, quit, renew, started, keep_behind
do
local WAITS, PASSED, HAD = queue.WAITS, queue.PASSED, queue.HAD

-- read_tickets reads count tickets of a caller from the frame, and returns them by the index of the charge. The line of a ticket may have ended
-- since: see ticket_of. A ticket has the id of its line, its number in the lane as ticket, its state, the lane's round when it counted last, and the
-- share of its lane: see queue.lua.
function read_tickets(count)
  local by_charge = {}
  for _ = 1, count do
    local index, w = 0, {}
    index, w.id, w.ticket, w.state, w.round, w.share, cursor = struct.unpack('<dddddd', frame, cursor)
    by_charge[index] = w
  end
  return by_charge
end

-- ticket_of returns three values: a caller's ticket w in the line of search s, the line q, and the lane c of the ticket or, if the caller has no
-- ticket of this line, the lane of its share. Each is nil or false if there is none. A ticket of an earlier line, or of a lane that is gone, is void,
-- and counts as none.
local function ticket_of(want, s)
  local w, q = want.tickets[s.index], queue.of(s.row)
  local is_of_line = w and q and w.id == q.id
  local c = q and queue.lane(q, want.class, is_of_line and w.share or s.share)

  -- A ticket that the lane has not given yet is void, too: kept tickets come from outside, see docs/internals/places.md.
  local is_valid = is_of_line and c and w.ticket < c.joined
  return is_valid and w or nil, q, c
end

-- ahead_of returns the cost that goes before a caller in the line of search s; w, q and c are from ticket_of. The first caller with a share gives the
-- line lanes of shares: see queue.before_newcomer.
local function ahead_of(want, s, w, q, c)
  if w then
    return queue.ahead(q, want.class, c, w.ticket)
  elseif not q then
    return 0
  elseif want.first then
    return queue.waiting(q, want.class - 1) -- the caller gave up a start, so only higher classes go before it
  end
  return queue.before_newcomer(q, want.class, s.share, s.weight)
end

-- turn_in returns when a caller will have its turn in the line of search s, a time of the server. The caller asked for no start before from. alone is
-- the first time at which the row has room, ahead is the cost that goes before the caller, and w and c are from ticket_of.
local function turn_in(want, s, from, alone, ahead, w, c)
  local t = alone
  if ahead > 0 then
    t = max(t, now + 1) -- a caller behind others is never told a wait of 0: it would ask again at once
  end

  -- If no cost goes before a waiter, its turn has come. If it has no room within the horizon all the same, it stands behind the waiters that have
  -- offers.
  local offered_before = 0
  if ahead == 0 and w and t - from > want.horizon then
    offered_before = queue.before(c, w)
  end
  if ahead + offered_before > 0 then
    t = max(t, turn.at(s.rule, s.reserve, from, s.each, ahead + offered_before + s.each))
  end

  -- turn.at knows no slow start, in which those ahead do not all have room at once. So look for one start with the cost of all of them and the
  -- caller, but no more than the limit lets start at once. Where the calendar boundaries end, earliest returns nil, and t stays.
  if ahead > 0 and s.row.paused > 0 then
    local joint = search_for(s.rule, min(ahead + s.each, s.most), s.reserve, from, 0, false)
    t = max(t, earliest(joint, from) or t)
  end

  -- A caller whose turn is beyond the horizon keeps behind the callers of its lane that this call has put in line, the last of which has its turn at
  -- furthest. If one of these had its turn and has to wait again (stood), a caller whose turn is within the horizon keeps behind them, too: otherwise
  -- it would pass that waiter. A caller that had a start goes first.
  local goes_first = want.first or w and w.state == HAD
  if c and not goes_first and (t - from > want.horizon or c.stood) then
    t = max(t, c.furthest or 0)
  end
  return t
end

-- held_by finds the line in which a caller has to stand. Shadows are left out. held_by has each line offer its room, once in a call, and notes in
-- each search, as alone, the first start that the row alone has room for. It returns four values:
--
--   the search of that line, nil if the caller need not stand in a line
--   when the caller will have its turn in that line, a time of the server
--   min_start: the latest of the starts noted as alone, not before the time from
--   by: the index of the charge whose row has that start, 0 if min_start is the time from
--
-- Where the calendar boundaries end, the four values are nil, and a fifth is the time that the boundaries must reach.
--
-- A caller that had its turn in one row and waits in the line of a second one may find the start in the first row far away again, and so on
-- for ever. So it gets the first start that is possible in both: one such start at a time in each row.
local function held_by(list, want, from)
  local waits_in, turn_at
  local min_start, by = from, 0
  for _, s in ipairs(list) do
    if not s.shadow then
      -- Offer the room before the first caller of the call looks at the line.
      if not s.row.called then
        s.row.called = true
        queue.call(s.row, s.rule, now)
      end

      local w, q, c = ticket_of(want, s)
      local ahead = ahead_of(want, s, w, q, c)
      local alone, need = earliest(s, from)
      if not alone then
        return nil, nil, nil, nil, need
      end

      s.alone = alone
      if alone > min_start then
        min_start, by = alone, s.index
      end

      local t = turn_in(want, s, from, alone, ahead, w, c)
      local is_far = t - from > want.horizon

      -- A caller that had its turn in this row may book beyond the horizon, unless the row's pin, the one start that did so before, is still beyond the
      -- horizon.
      local may_be_far = w and w.state == PASSED and s.row.pin <= from + want.horizon

      -- Of several lines, the caller stands in the line with the latest turn.
      local has_to_wait = ahead > 0 or is_far and not may_be_far
      local is_latest = not turn_at or t > turn_at
      if has_to_wait and is_latest then
        waits_in, turn_at = s, t
      end
    end
  end

  return waits_in, turn_at, min_start, by
end

-- last_turn returns when the last of equal callers will have its turn in the line of search s, if the first has its turn at turn_at. Several callers
-- have no tickets: a caller with a ticket comes alone.
local function last_turn(want, s, callers, turn_at)
  if callers == 1 then
    return turn_at
  end

  local q, cost = queue.of(s.row), s.each * callers
  local rank = q and queue.behind(q, want.class, s.share, s.weight, cost) or cost

  -- The last caller has its turn no sooner than the first: turn.at knows less than turn_in, by which turn_at was found.
  return max(turn_at, turn.at(s.rule, s.reserve, now, s.each, rank))
end

-- take_ticket gives the first of equal callers a ticket in the line of search s; q and c are from ticket_of. It returns the ticket, the line,
-- the lane, and how many of the callers stand there from now on.
local function take_ticket(want, s, callers, q, c)
  local w = {state = WAITS, round = 0}

  -- A caller that had a start goes to the front of the line, with the ticket FRONT, for which line_up calls queue.count. It goes there alone, because
  -- line_up counts one caller. If the line begins now, the caller is first anyway. Every other caller gets the next ticket of its lane. seed, which is
  -- new in each call, becomes the id of a line that begins.
  if q and want.first then
    w.ticket, c, callers = FRONT, c or queue.make(q, want.class, s.share, s.weight, s.each), 1
  else
    q, w.ticket, c, callers = queue.line_up(s.row, want.class, s.share, s.weight, s.each, callers, s.reserve, want.horizon, seed)
  end

  w.id, w.share = q.id, c.share or 0
  want.tickets[s.index] = w
  return w, q, c, callers
end

-- answer_in_line answers callers that stand in the line of search s: when the first and the last of them will have their turn, the end of the row's
-- pause, 0 if the row has no pause that ends after s.from, and the number and the list of the tickets that the first of them has.
local function answer_in_line(want, s, callers, turn_at, t_last)
  answer(FIVE, callers, IN_LINE, turn_at, s.index, s.row.paused > s.from and s.row.paused or 0)

  local count, tickets = 0, {}
  for index, w in pairs(want.tickets) do
    count = count + 1
    tickets[count] = struct.pack('<dddddd', index, w.id, w.ticket, w.state, w.round, w.share)
  end
  answer('<dd', t_last, count)
  out[#out + 1] = table.concat(tickets)
end

-- line_up puts equal callers in the line of search s, in which the first of them will have its turn at turn_at, and answers them. A caller with a
-- ticket there keeps it. line_up returns how many callers stand there: all, or only the first if the last would wait for longer than max_wait, if the
-- lane is a round, or if the callers had starts and go to the front. Then serve goes on with the rest.
local function line_up(list, want, s, callers, turn_at, max_wait)
  local t_last = last_turn(want, s, callers, turn_at)
  if t_last - now > max_wait then
    callers, t_last = 1, turn_at
  end

  -- The caller waits in the line of s now, so offers in its other lines go to other waiters.
  for _, other in ipairs(list) do
    local w, q, c = ticket_of(want, other)
    if w and other ~= s and w.ticket < c.cut then
      queue.pass(q, c, w, other.each)
    end
  end

  local w, q, c = ticket_of(want, s)
  if not w then
    local placed -- how many of the callers stand in the line
    w, q, c, placed = take_ticket(want, s, callers, q, c)
    if placed < callers then
      callers, t_last = placed, turn_at
    end
  end

  -- The next callers of the lane in this call have no earlier turn: see turn_in.
  c.furthest = max(c.furthest or 0, turn_at)

  -- A waiter that had a start, or whose ticket is below the cut, has its turn, and there is no room yet: it counts among the offers, which are made
  -- by its reserve and horizon from now on. The state PASSED stays, because it lets the waiter book beyond the horizon: see held_by.
  local has_turn = w.state == HAD or w.ticket < c.cut
  if has_turn and w.state ~= PASSED then
    queue.count(q, c, w, s.each, now)
    q[want.class].reserve, q[want.class].horizon = s.reserve, want.horizon
  end

  if w.ticket < c.cut then
    -- Room for a large cost comes together slowly. The program asks again after half of the wait, within bounds: until then the offer must not lapse.
    if s.each > 1 then
      queue.hold(q, c, now, min(max(MIN_ASK, floor((turn_at - now) / 2)), MAX_ASK))
    end
    c.stood = (c.stood or 0) + s.each -- see turn_in and queue.before
  end

  answer_in_line(want, s, callers, turn_at, t_last)
  if want.fresh then
    want.tickets = {} -- the next of these callers gets tickets of its own
  end
  return callers
end

-- quit takes equal callers out of the lines of their searches. If starts is true, the callers start: callers says how many they are, and their shares
-- are charged, except by shadows and for callers that were charged before. Otherwise a caller gives up: it leaves its lines, and callers is not used.
function quit(list, want, starts, callers)
  for _, s in ipairs(list) do
    local w, q, c = ticket_of(want, s)
    local charges_newcomers = starts and not want.first and not s.shadow
    if w then
      -- Only a caller without equal callers has tickets. Count once what a share was served: a waiter that had a start before, or stands in front,
      -- was counted at its first start.
      if q.many and starts and w.state ~= HAD and w.ticket ~= FRONT then
        served_of().count(q, want.class, c.share, s.each)
      end

      queue.leave(q, c, w, s, starts)
      w.state = HAD -- of a ticket that was given up, too: it counts nowhere from now on
    elseif charges_newcomers and q and q.many then
      -- Callers that never stood in this line are charged to the lane of their share, because others of that share may wait there. A caller that had
      -- a start before was charged then, and a shadow has no places in line.
      lanes_of().start(q, want.class, s.share, s.weight, s.each * callers)
      served_of().count(q, want.class, s.share, s.each * callers)
    end
  end
end

-- renew keeps the offers of a waiter from lapsing, for that length of time from now, in microseconds, in each line in which its turn has come and its
-- cost is more than 1. Such a waiter waits for more room than there is.
function renew(list, want, length)
  for _, s in ipairs(list) do
    local w, q, c = ticket_of(want, s)
    if w and s.each > 1 and w.ticket < c.cut then
      queue.hold(q, c, now, length)
    end
  end
end

-- started notes a start at t in the rows that count starts. The caller asked for no start before from. If t is more than the horizon after from, t is
-- the pin of each of these rows, and nobody keeps behind it. Otherwise t counts only in the row of the charge that set it, whose index is held:
-- callers of the same class and of lower classes keep behind t, and so does the next of equal callers, if it keeps behind starts at all (follows). If
-- held is 0, or the index of a claim, no charge set t.
function started(list, want, held, t, from)
  local tail_field = 't' .. floor(want.class) -- numbers of a frame are floats, and Lua 5.4 writes a float as 1.0
  for _, s in ipairs(list) do
    if not is_free(s.rule, s.row) then
      if t - from > want.horizon then
        s.row.pin = t
      elseif s.index == held then
        s.row[tail_field] = max(s.row[tail_field], t)
        if s.follows then
          s.tail = max(s.tail, t)
        end
      end
    end
  end
end

-- keep_behind has a caller keep behind the starts that others waited for, except in rows where the caller had a start itself. It sets the fields
-- tail, horizon, single and follows of the searches, so it is called before the first search.
function keep_behind(list, want)
  local counting = 0 -- searches whose row counts starts
  for _, s in ipairs(list) do
    counting = counting + (is_free(s.rule, s.row) and 0 or 1)
  end

  for _, s in ipairs(list) do
    -- In a line in which the caller has a ticket, the ticket says whether the caller had a start.
    local had_start = want.first
    local w = ticket_of(want, s)
    if w then
      had_start = w.state == HAD or w.ticket == FRONT
    end
    had_start = had_start or s.late -- a caller that replaces a past start came before the callers that wait now

    -- Starts of the caller's class and of higher classes go before the caller.
    if not had_start then
      for class = 1, want.class do
        s.tail = max(s.tail, s.row['t' .. class])
      end
    end
    s.horizon, s.single = want.horizon, counting == 1
    s.follows = not had_start
  end
end

-- open_from finds out when the pauses of claims end. It returns four values:
--
--   the first moment, not before from, from which on no pause closes a claim; shadows are left out
--   the index of the claim whose pause ends last, nil if no pause lasts beyond from
--   the later of that moment and min_start, before which the rows have no room
--   by, the index of the charge that set min_start, or 0 if a claim set the later moment
--
-- If a claim and a charge set the same moment, the lower index counts.
function open_from(claims, from, min_start, by)
  if #claims == 0 then -- in a call without claims first_open does not exist
    return from, nil, min_start, by
  end

  local open_at, closed_by = first_open(claims, from, now)
  local set_by_claim = closed_by and (open_at > min_start or open_at == min_start and closed_by < by)
  return open_at, closed_by, max(min_start, open_at), set_by_claim and 0 or by
end

-- refuse refuses equal callers that may not wait until turn_at, their turn in the line of search s, takes them out of their lines, and answers them.
-- It returns how many it refused, 0 if they may wait, and the time that the calendar boundaries must reach, if they end too early.
--
-- All rows and claims together may have room later than each row alone, but not before min_start, which the charge with the index by set, or no
-- charge if by is 0. A refusal says that later time.
local function refuse(list, want, claims, s, callers, turn_at, max_wait, min_start, by)
  local t, held = turn_at, s.index
  local paused = s.row.paused > s.from and s.row.paused or 0

  -- Look for the later time. A caller that may wait without end is not refused, and a single row without claims has no later time.
  if max_wait < MAX_NUMBER and #list + #claims > 1 then
    local open_at, closed_by, first_room, set_by = open_from(claims, s.from, min_start, by)
    local start, index, pause_end = find(list, s.from, first_room, set_by)

    -- The refusal names a later start, or a claim that sets the same time as the turn.
    if not start then
      return 0, index -- in place of an index, find returns the time that the boundaries must reach
    elseif start > t or start == t and index == 0 and closed_by then
      t, held, paused = start, index, pause_end
    end

    -- No charge set the start, so the claim whose pause ends last did.
    if held == 0 then
      held, paused = closed_by, open_at
    end
  end

  -- A caller that may not wait at all is refused even if its turn is now: it gets no place.
  if max_wait > 0 and t - now <= max_wait then
    return 0
  end
  answer(FIVE, callers, REFUSED, t, held, paused)
  quit(list, want)
  return callers
end

-- stand puts equal callers in a line, if they have to stand in one, or refuses them. arrival is when the caller joined a line for slots, 0 if it
-- joined none. stand returns
--
--   how many callers were put in a line or refused, 0 if the first caller need not stand in a line
--   the time that the calendar boundaries must reach, if they end too early, and otherwise nil
--   min_start and by, the third and fourth value of held_by, if the first caller need not stand in a line
function stand(list, want, claims, callers, arrival, from, max_wait)
  local s, turn_at, min_start, by, need = held_by(list, want, from)
  if need or not s then
    return 0, need, min_start, by
  end

  -- The line for a start comes first: the caller leaves the line for slots.
  if #claims > 0 and arrival > 0 then
    leave_line(claims, arrival)
  end

  local refused
  refused, need = refuse(list, want, claims, s, callers, turn_at, max_wait, min_start, by)
  if refused > 0 or need then
    return refused, need
  end
  return line_up(list, want, s, callers, turn_at, max_wait)
end
end
