-- What a server must have before it keeps budgets: see conn/admit.go. It is sent before the first
-- script that a server does not know yet, and writes nothing.
--
-- Result: what the server's scripts lack, in words, '' if nothing; what the server says of TIME instead of
-- telling it, '' if it does; seconds; the version of Redis, '' where scripts are not told, as before 7.0.

local lacks = {}

-- test notes that something is missing unless f returns true.
local function test(name, f)
  local ran, same = pcall(f)
  if not ran or not same then
    lacks[#lacks + 1] = name
  end
end

local LARGE = 2 ^ 53 - 1 -- rows have numbers up to that
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
