-- What every script begins with: the time, and the frame of numbers that a program sends.
--
-- How to read these files. script.go says of which files, or parts of files, each script consists: they are joined as text, so a name is known
-- to all that stand behind it. In a file's first comment "needs" lists the names that the file uses of others, and "defines" its own names that
-- others may use. Functions that others use are local at the left; do … end hides the rest. Read a file from its end: Lua knows no function before
-- the function is defined. Files whose names are also in internal/ledger decide the same as the Go file, with the same functions in the same order.
--
-- A reply begins with its status and the time. NEEDS_BOUNDARIES says that a rule's calendar boundaries end too early, and NEEDS_TIME that the
-- program must state its lengths of time anew: then nothing was done, and the program makes the call again. Otherwise the status is DONE, or one
-- of two more that book.lua describes.
--
-- Names of one letter stand for the same in all files:
--
--   r  a row: one budget, see row.lua
--   u  a rule: what a limit says, see entries.lua
--   s  a search for the earliest start of one charge, see search.lua, or a claim of slots
--   q  a line: the waiters of a budget, see queue.lua
--   c  a lane of a line: the waiters of one share
--   w  a waiter's ticket, or what a caller wants of a line
--   m  the lanes of all shares in a line (lanes.lua), or a node that holds slots (slots.lua)
--   h  a history: what the calling program knows of a row, see repair.lua
--   v  a list of stored numbers: of a line, a lane, a head, slots
--   e  the boundaries of calendar windows
--   g  the name of a generation of a row
--   t  a time in microseconds
--   n  a cost, a number of starts, or the number of a limit
--   i, j, k  indexes
--
-- F, L and N are the columns of a row's entries: first, last and n of each. In lanes.lua and deals.lua the columns of lanes are C class,
-- F finish tag, L left, O offered, W weight, K cost, S since, H holds, P step. Lua has till and stop where Go has until and end, because Lua
-- reserves those words. Words in capitals that no file defines are constants: script.go writes their values in their places.
--
-- defines: max, min, ceil, floor, KEPT, IDLE, record_ms, frame, cursor, now

local max, min, ceil, floor = math.max, math.min, math.ceil, math.floor

local KEPT = 1000000 -- for how many microseconds a key outlives all that matters in it
local IDLE = KEPT -- KEPT, and longer in tests: see now
local record_ms = RECORD_MS -- for how many milliseconds the record of a call is kept; longer in tests, too

-- frame is a string of numbers, 8 bytes each. cursor is where the next number begins.
local frame, cursor = ARGV[2], 1

-- now is the time in whole microseconds: the server's time, unless a test passes its own. In such a test keys live an hour longer, because the server
-- still counts their lifetime by its own clock.
local now = tonumber(ARGV[1])
if now then
  IDLE, record_ms = IDLE + 3600 * 1000000, '3660000'
else
  local time = redis.call('TIME') -- seconds and microseconds
  now = time[1] * 1000000 + time[2]
end

-- part: check
-- Tests whether a server has all that the scripts need: see conn/admit.go. This script is sent before the first other script that a server does not
-- know yet, and writes nothing.
--
-- Result: what the server lacks, in words, or ''; the server's error if it does not tell the time, or ''; the time in seconds, 0 if the server does not
-- tell it; the version of Redis, or '' before 7.0, where scripts cannot read it.

local lacks = {}

-- test calls the function check, and adds the name to lacks if check raises an error or does not return true.
local function test(name, check)
  local ran, result = pcall(check)
  if not ran or not result then
    lacks[#lacks + 1] = name
  end
end

local LARGE = 2 ^ 53 - 1 -- the largest number of a row
test('struct', function()
  return struct.unpack('<d', struct.pack('<d', LARGE)) == LARGE
end)
test('cmsgpack', function()
  local large, negative = cmsgpack.unpack(cmsgpack.pack(unpack({LARGE, -1})))
  return large == LARGE and negative == -1
end)
test('numbers of 53 bits', function()
  return string.format('%.0f', LARGE) == '9007199254740991'
end)

local time = redis.pcall('TIME') -- seconds and microseconds, or an error
return {table.concat(lacks, ', '), time.err or '', tonumber(time[1]) or 0, redis.REDIS_VERSION or ''}

-- part: check_lock
-- Tests whether a script has its key to itself while it runs: see conn/admit.go. Meanwhile a second connection writes the key again and again.
--
--   KEYS 1 a key that nothing else uses
--   ARGV 1 the time of a test, as all scripts are told it; unused
--        2 a text that no other connection writes there
--        3 for how long to look, in microseconds
-- Result: 1 if the key was the script's alone, otherwise 0

-- now returns the server's time in microseconds, anew at each call.
local function now()
  local time = redis.call('TIME') -- seconds and microseconds
  return time[1] * 1000000 + time[2]
end

redis.call('SET', KEYS[1], ARGV[2], 'PX', '10000')
local start = now()
local looked = 0 -- how often the time was read: the time of some servers stands still while a script runs
repeat
  looked = looked + 1
until now() - start >= tonumber(ARGV[3]) or looked == 100000
return redis.call('GET', KEYS[1]) == ARGV[2] and 1 or 0
