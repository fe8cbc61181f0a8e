-- What programs are told of the line of a row; see queue.lua.

do
local left, CLASSES = queue.left, queue.CLASSES
local COME = 'come %.0f %.0f %.0f %.0f %s'

-- turns returns in how long the first waiter of each class without an offer will have its
-- turn, and the last; 0 if there is none. It also returns when the first of all that wait may start.
function queue.turns(r, u, now)
  local q, first, last, soon = r.queue, {0, 0, 0}, {0, 0, 0}, nil
  for k = 1, CLASSES do
    local waits, reserve = left(q[k]), min(q[k].reserve, u.n - 1)
    if waits > 0 then
      local all = queue.waiting(q, k)
      first[k], last[k] = turn.at(u, reserve, now, 1, all - waits + 1) - now, turn.at(u, reserve, now, 1, all) - now
    end
    if not soon and (waits > 0 or q[k].offered > 0) then
      soon = q[k].offered > 0 and turn.at(u, reserve, now, 1, 1) - now or first[k]
    end
  end
  return first, last, soon or 0
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
