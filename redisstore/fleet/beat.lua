-- Stores or removes the report of a node, stores closed budgets that the node knows of, and returns the notes of pauses.
--
-- KEYS  1 index of nodes
--       2 record of the node
--       3 notes of pauses
--       4 index of closed budgets
--       5 and more: closing of each closed budget
-- ARGV  1 id of the node
--       2 its record, '' to remove the node
--       3 how long both are kept, in microseconds
--       and for each closed budget
--         its name in the index; remaining time of the closure in microseconds, 0 if the budget is open again; time since the closure; 1 if
--         the node knows the cause; the closing. Of several closings of a budget the first is kept until the latest end, but a closing from
--         a node that knows the cause replaces a closing from a node that only met the budget closed.
--
-- Result: now, in microseconds, and the notes as HGETALL returns them.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local keep = tonumber(ARGV[3])
if ARGV[2] == '' then
  redis.call('DEL', KEYS[2])
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[2], ARGV[2], 'PX', math.ceil(keep / 1000))
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - keep))
  redis.call('PEXPIRE', KEYS[1], math.ceil(keep / 1000))
end
for i = 5, #KEYS do
  local at = 5 * (i - 5) + 4
  local id, left, since, knows, text = ARGV[at], tonumber(ARGV[at + 1]), now - tonumber(ARGV[at + 2]), ARGV[at + 3] == '1', ARGV[at + 4]
  local length = math.ceil(left / 1000)

  if left <= 0 then
    redis.call('DEL', KEYS[i])
    redis.call('ZREM', KEYS[4], id)
  else
    local stored = redis.call('SET', KEYS[i], string.format('%.0f ', since) .. text, 'NX', 'PX', length)
    if not stored then
      local earlier = redis.call('GET', KEYS[i])
      if knows and not string.find(earlier, '"by":"', 1, true) then
        since = math.min(since, tonumber(string.match(earlier, '^%d+')) or since)
        redis.call('SET', KEYS[i], string.format('%.0f ', since) .. text, 'KEEPTTL')
      end
      redis.call('PEXPIRE', KEYS[i], length, 'GT')
    end

    redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', string.format('%.0f', now))
    redis.call('ZADD', KEYS[4], 'GT', string.format('%.0f', now + left), id)

    -- NX gives the index an expiry if it has none: GT does not, because it takes a key without expiry as kept for ever.
    local given = redis.call('PEXPIRE', KEYS[4], length, 'NX')
    if given == 0 then
      redis.call('PEXPIRE', KEYS[4], length, 'GT')
    end
  end
end
return {now, redis.call('HGETALL', KEYS[3])}
