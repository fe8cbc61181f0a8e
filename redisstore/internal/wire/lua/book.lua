-- Books starts for several callers, in their order, each in all budgets of its charges or in none; gives unused starts back; and changes the
-- costs of starts.
--
-- KEYS  1 the record of the program's last call for this group (see docs/internals/once.md)
--       2… the budgets, then the budgets of slots, then the gates, all with the same hash tag
-- ARGV  1 the time in microseconds, or '' for the server's clock
--       2 the frame: numbers, 8 bytes each:
--         the number of this call among those of the program; a random number, to name new generations
--         with; how many rules follow; how long ago the call was made for the first time;
--         how many gates, see below
--         for each budget: the program's history of it (see repair.lua)
--         for each rule: see rule.lua
--         for each budget of slots: the program's report (see leases.lua)
--         for each group of operations that differ only in their last numbers:
--           the kind: RESERVE, CANCEL, SETTLE or RENEW; 1 if the callers have given other programs time
--             to tell
--           the start that they have, to give back first or to settle, or 0; when they
--             joined a line for slots, or 0
--           the least wait, spread, horizon (see throttle.Booking), 0 for none, their class,
--             and 1 if they had a start before and joined no line
--           how many tickets and charges each has, how many operations these are
--           for each operation, of equal callers:
--             for how many
--             the longest wait that is of use; to renew, within what time the caller will say again
--               that it waits
--             for each ticket: the charge, the line, the ticket, its state, its round, the share of its lane: see queue.lua
--             for each charge: the index of its slots, or of its rule behind all slots, cost,
--               reserve, whether it is a shadow or, to change, the new cost, and the caller's share, 0 if it has none, and
--               that share's weight
--       3 the channel of news
--       4 to 6 only if there are slots or pauses: how many budgets of slots, the program's
--         name, and what the channels of all programs begin with
--       7… the key of a budget that the program knows to be closed, and for how
--         long, in microseconds; and so on
--
-- Result, numbers of 8 bytes each:
--   DONE, now, 0 or the time then if it was done before, the number of the call, how long ago it was
--   first made when it was done, what was done; or NEEDS_BOUNDARIES, now, the time that the calendar boundaries
--   must reach, and nothing was done; or NEEDS_TIME, now, now if the program must say again what it says of lengths of time, or
--   whether the clock was set, and nothing was done; or LATE, now if a later call was made before; or SHUT,
--   now, and for each gate that is shut the index of its key and for how long it is, and
--   nothing was done.
--
-- What was done begins with the operations. ALL_NOW, start says that all callers have a start then and nothing held them back. Otherwise, for
-- each operation, until it has no callers left:
--   {how many, state, start, held, paused, over…}, over one for each charge that is a shadow
--
-- state is
--   REFUSED    nothing was spent; also the state of operations that book nothing
--   BOOKED
--   HELD       booked, and slots were taken with it
--   WAITING    only the slots had no room: start says when the caller joined the line
--   UNSETTLED  nothing can be booked before start, when all programs have told which starts a loss of data forgot: then ask again
--   IN_LINE    the callers joined a line: start is when the first may have its turn, and {when the last may, how many tickets it has, for each
--              the charge, the line, the ticket, its state, its round, the share of its lane} follows
-- held is the 1-based charge that set the start, 0 if none held it back, and paused the end of the pause that closes it, or 0.
--
-- Then follows for each budget, see row.lua, queue.lua and lanes.lua:
--   {generation, count, how many starts count now, the end of the last start, and a sum that says which of the next three lists follow: 1 for
--     earlier generations, 2 for a line, 4 for shares in it}
--   {g1, n1, older, mark, how many more generations, for each its name and its starts}
--   {the line, the costs that wait in it, whether waiters should hurry whose turn it is, in how long the first waiter may start, the three cuts,
--     the next ticket of each class, and in how long the first and the last of each class will have their turn}, of callers without a share
--   {how many lanes this call was about, for each its class, its share, its cut, its next ticket, in how long its first and its last waiter will
--     have their turn, and 1 if its cut is new}
--
-- and for each budget of slots, see leases.lua:
--   {generation, count, how many programs it knows, in how long the program should ask again at the latest, or 0, how many waiters of the
--     program's line were called, when each of them arrived…}
--
-- needs: frame (min, floor, record_ms, frame, now)
-- defines: call, seed, rule_count, repeated, gate_count, slots_count, budgets, record, decided, recorded, _, out, finish

local call, seed, rule_count, repeated, gate_count
call, seed, rule_count, repeated, gate_count, cursor = struct.unpack('<ddddd', frame, cursor)
seed = min(floor(now / 1000000), LAST_ORDINAL) * NAMES + seed -- of what begins now: see repair.lua
local slots_count = tonumber(ARGV[4] or 0)
local budgets = #KEYS - slots_count - gate_count -- the last key of one

-- The record is the answer as it was given.
local record = redis.call('GET', KEYS[1])
local decided, recorded, _ = 0, 0
if record then
  _, decided, _, recorded = struct.unpack('<dddd', record)
end

-- If the answer to this call was lost, give it again. If the program has made a later call since, nobody waits for this one.
if recorded == call then
  return struct.pack('<ddd', DONE, now, decided) .. string.sub(record, 25) -- in the time of then: the clock may have been set
elseif recorded > call then
  return struct.pack('<dd', LATE, now)
end

local out = {struct.pack('<ddddd', DONE, now, 0, call, repeated)} -- the answer

-- finish records what was done, and returns the answer.
local function finish()
  local done = table.concat(out)
  redis.call('SET', KEYS[1], done, 'PX', record_ms)
  return done
end

-- part: answer
-- What the long way of a call answers with, and what it knows besides the frame; and the gates, which are looked at before anything is done.
--
-- needs: book (gate_count, out), frame (max, now), row (stored, read)
-- defines: closed, FIVE, answer, LINE_AGAIN, shut_for

-- closed has the budgets that the program knows to be closed, and for how long.
local closed = {}
for i = 7, #ARGV, 2 do
  closed[ARGV[i]] = tonumber(ARGV[i + 1])
end

local FIVE = '<ddddd'

-- answer adds numbers to the answer.
local function answer(format, ...)
  out[#out + 1] = struct.pack(format, ...)
end

local LINE_AGAIN = 1000000 -- a gate with a line is looked at again after this time

-- shut_for returns for how long a gate stays shut, 0 if it is open. A clock that was set back, and a line in which callers may still wait, are
-- for the other scripts to settle.
local function shut_for(key)
  local head = stored(key)
  if not head then
    return closed[key] or 0
  end
  local r = read(key, head)
  return max(r.paused + r.probe - now, r.opens - now, r.lined > 0 and LINE_AGAIN or 0, now < r.seen and 1 or 0)
end

-- Gates are the keys of unlimited budgets: see docs/internals/unlimited.md. If a gate is shut, or the program knows that it should be, nothing
-- is done but to say so: the program makes the call again with its row among the others.
for i = #KEYS - gate_count + 1, #KEYS do
  local left = shut_for(KEYS[i])
  if left > 0 then
    answer('<dd', i, left)
  end
end
if #out > 1 then
  return struct.pack('<dd', SHUT, now) .. table.concat(out, '', 2)
end
