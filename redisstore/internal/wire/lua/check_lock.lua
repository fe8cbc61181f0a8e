-- Whether a script has its key to itself while it runs: see conn/admit.go. Meanwhile another connection
-- writes the key again and again.
--
--   KEYS 1 a key that nothing else uses
--   ARGV 1 the time of a test, as all scripts are told it; unused
--        2 what no other connection writes there
--        3 for how long to look, in microseconds
-- Result: 1 if the key was the script's alone

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

redis.call('SET', KEYS[1], ARGV[2], 'PX', '10000')
local start, looked = now(), 0
repeat
  looked = looked + 1
until now() - start >= tonumber(ARGV[3]) or looked == 100000
return redis.call('GET', KEYS[1]) == ARGV[2] and 1 or 0
