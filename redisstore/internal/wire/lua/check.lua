-- What a server must have before it keeps budgets: see conn/admit.go. It is sent before the first script that a server does not know yet, and
-- writes nothing.
--
-- Result: what the server's scripts lack, in words, '' if nothing; the server's error where it does not tell the time, '' if it does; the
-- time in seconds; the version of Redis, '' where scripts are not told it, as before 7.0.

local lacks = {}

-- test notes that something is missing unless f returns true.
local function test(name, f)
  local ran, same = pcall(f)
  if not ran or not same then
    lacks[#lacks + 1] = name
  end
end

local LARGE = 2 ^ 53 - 1 -- the largest number of a row
test('struct', function()
  return struct.unpack('<d', struct.pack('<d', LARGE)) == LARGE
end)
test('cmsgpack', function()
  local a, b = cmsgpack.unpack(cmsgpack.pack(unpack({LARGE, -1})))
  return a == LARGE and b == -1
end)
test('numbers of 53 bits', function()
  return string.format('%.0f', LARGE) == '9007199254740991'
end)

local t = redis.pcall('TIME')
return {table.concat(lacks, ', '), t.err or '', tonumber(t[1]) or 0, redis.REDIS_VERSION or ''}

-- part: check_lock
-- Whether a script has its key to itself while it runs: see conn/admit.go. Meanwhile a second connection writes the key again and again.
--
--   KEYS 1 a key that nothing else uses
--   ARGV 1 the time of a test, as all scripts are told it; unused
--        2 a text that no other connection writes there
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
