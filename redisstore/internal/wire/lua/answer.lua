-- What the long way of a call answers with, and what it knows besides the frame.

-- closed has the budgets that the program knows to be closed, and for how long.
local closed = {}
for i = 7, #ARGV, 2 do
  closed[ARGV[i]] = tonumber(ARGV[i + 1])
end

local FIVE = '<ddddd'

local function answer(format, ...)
  out[#out + 1] = struct.pack(format, ...)
end
