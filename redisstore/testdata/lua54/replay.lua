-- Plays recorded calls of scripts in Lua 5.4, which Dragonfly runs, and compares answers and keys byte by byte with those
-- of Redis, which runs Lua 5.1. It reads the calls from a file that lua54_test.go writes, and prints where they differ.
--
--   lua5.4 replay.lua FILE
--
-- The libraries are made here as the scripts need them: numbers become text as in Dragonfly, floats by '%.17g'.

local input = assert(io.open(arg[1], 'rb')):read('a')
local at = 1

local function number()
  local n
  n, at = string.unpack('<I4', input, at)
  return n
end

local function text()
  local s
  s, at = string.unpack('<s4', input, at)
  return s
end

-- texts reads a list. An element that is missing is false.
local function texts()
  local all, count = {}, number()
  for i = 1, count do
    all[i] = number() == 1 and text() or false
  end
  return all
end

-- struct

local struct = {}

function struct.pack(format, ...)
  local values = {...}
  for i = 1, #format - 1 do
    values[i] = values[i] + 0.0 -- all numbers are floats, as in Lua 5.1
  end
  return string.pack(format, table.unpack(values, 1, #format - 1))
end

function struct.unpack(format, s, from)
  return string.unpack(format, s, from and math.tointeger(from))
end

-- cmsgpack, of which the scripts need numbers, texts, booleans and lists

local cmsgpack = {}
local encode

local function integer(n)
  if n >= 0 then
    return n <= 127 and string.pack('>B', n) or n <= 0xff and string.pack('>BB', 0xcc, n) or n <= 0xffff and string.pack('>BI2', 0xcd, n)
      or n <= 0xffffffff and string.pack('>BI4', 0xce, n) or string.pack('>BI8', 0xcf, n)
  end
  return n >= -32 and string.pack('>b', n) or n >= -128 and string.pack('>Bb', 0xd0, n) or n >= -32768 and string.pack('>Bi2', 0xd1, n)
    or n >= -2147483648 and string.pack('>Bi4', 0xd2, n) or string.pack('>Bi8', 0xd3, n)
end

local encoders = {
  boolean = function(b)
    return b and '\xc3' or '\xc2'
  end,
  number = function(n)
    local whole = math.tointeger(n)
    if whole then
      return integer(whole)
    end
    local short = string.pack('>Bf', 0xca, n)
    return string.unpack('>f', short, 2) == n and short or string.pack('>Bd', 0xcb, n)
  end,
  string = function(s)
    return (#s < 32 and string.char(0xa0 + #s) or #s < 256 and string.pack('>BB', 0xd9, #s) or string.pack('>BI2', 0xda, #s)) .. s
  end,
  table = function(t)
    local all = {#t < 16 and string.char(0x90 + #t) or string.pack('>BI2', 0xdc, #t)}
    for i = 1, #t do
      all[i + 1] = encode(t[i])
    end
    return table.concat(all)
  end,
}

function encode(v)
  return encoders[type(v)](v)
end

function cmsgpack.pack(...)
  local all = {...}
  for i, v in ipairs(all) do
    all[i] = encode(v)
  end
  return table.concat(all)
end

local formats = {[0xca] = '>f', [0xcb] = '>d', [0xcc] = '>B', [0xcd] = '>I2', [0xce] = '>I4', [0xcf] = '>I8', [0xd0] = '>b',
  [0xd1] = '>i2', [0xd2] = '>i4', [0xd3] = '>i8', [0xd9] = '>s1', [0xda] = '>s2'}

-- decode returns the value that begins at a place, and where the next value begins.
local function decode(s, i)
  local kind = string.byte(s, i)
  if not kind then
    error('Missing bytes in input.')
  elseif kind < 0x80 then
    return kind, i + 1
  elseif kind >= 0xe0 then
    return kind - 256, i + 1
  elseif kind >= 0xa0 and kind < 0xc0 then
    return string.sub(s, i + 1, i + kind - 0xa0), i + 1 + kind - 0xa0
  elseif kind == 0xc2 or kind == 0xc3 then
    return kind == 0xc3, i + 1
  elseif formats[kind] then
    return string.unpack(formats[kind], s, i + 1)
  end
  local count
  if kind >= 0x90 and kind < 0xa0 then
    count, i = kind - 0x90, i + 1
  elseif kind == 0xdc then
    count, i = string.unpack('>I2', s, i + 1)
  else
    error('Bad data format in input.')
  end
  local list = {}
  for k = 1, count do
    list[k], i = decode(s, i)
  end
  return list, i
end

function cmsgpack.unpack_limit(s, limit, offset)
  local all, i = {}, offset + 1
  while i <= #s and #all < limit do
    all[#all + 1], i = decode(s, i)
  end
  return i > #s and -1 or i - 1, table.unpack(all)
end

function cmsgpack.unpack(s)
  return select(2, cmsgpack.unpack_limit(s, math.huge, 0))
end

-- redis, on the keys of one call

local keys -- what they hold
local commands = {}

local function whole(s)
  return assert(math.tointeger(tonumber(s)), s .. ' is no integer')
end

function commands.GET(key)
  return keys[key]
end

function commands.GETRANGE(key, from, to)
  local s = keys[key] or ''
  from, to = whole(from), whole(to)
  return string.sub(s, from + 1, to < 0 and to or to + 1)
end

function commands.STRLEN(key)
  return #(keys[key] or '')
end

function commands.SET(key, value)
  keys[key] = value
  return {ok = 'OK'}
end

function commands.SETRANGE(key, from, value)
  local s = keys[key] or ''
  from = whole(from)
  keys[key] = string.sub(s, 1, from) .. string.rep('\0', from - #s) .. value .. string.sub(s, from + #value + 1)
  return #keys[key]
end

function commands.APPEND(key, value)
  keys[key] = (keys[key] or '') .. value
  return #keys[key]
end

function commands.PEXPIRE(_, ms)
  whole(ms)
  return 1
end

function commands.PUBLISH()
  return 0
end

local redis = {}

function redis.call(name, ...)
  local all = {...}
  for i, v in ipairs(all) do
    if type(v) == 'number' then
      all[i] = math.type(v) == 'integer' and string.format('%d', v) or string.format('%.17g', v)
    end
  end
  if name == 'SET' and all[3] == 'PX' then
    whole(all[4])
  end
  local command = commands[name] or error('no ' .. name .. ' is made here')
  local result = command(table.unpack(all))
  if result == nil then
    return false
  end
  return result
end

redis.pcall = redis.call

-- The calls

local env = setmetatable({redis = redis, struct = struct, cmsgpack = cmsgpack, unpack = table.unpack}, {__index = _G})

-- run returns what a script answers.
local function run(script, key_list, arguments)
  env.KEYS, env.ARGV = key_list, arguments
  return script()
end

-- visible returns bytes as a test can print them.
local function visible(s)
  return s and string.gsub(s, '[^ -~]', function(c) return string.format('\\x%02x', string.byte(c)) end) or 'nothing'
end

local scripts, differences, calls = {}, 0, 0

-- differs counts a difference, and prints the first ten.
local function differs(format, ...)
  differences = differences + 1
  if differences <= 10 then
    print(string.format(format, ...))
  end
end

for i = 1, number() do
  scripts[i] = {name = text(), run = assert(load(text(), '=user_script', 't', env))}
end
while at <= #input do
  local script, key_list, arguments, before, answer, after = scripts[number()], texts(), texts(), texts(), text(), texts()
  keys, calls = {}, calls + 1
  for i, key in ipairs(key_list) do
    keys[key] = before[i] or nil
  end
  local ran, got = pcall(run, script.run, key_list, arguments)
  if not ran then
    differs('%s: %s', script.name, got)
  else
    if got ~= answer then
      differs('%s answers %s and not %s', script.name, visible(got), visible(answer))
    end
    for i, key in ipairs(key_list) do
      if (keys[key] or false) ~= after[i] then
        differs('%s writes %s and not %s', script.name, visible(keys[key]), visible(after[i]))
      end
    end
  end
end
print(string.format('%d calls, %d differences', calls, differences))
os.exit(differences == 0)
