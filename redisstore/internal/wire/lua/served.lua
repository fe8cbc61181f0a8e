-- What the lanes of a line were served, for status.lua: the costs with which callers have started since their lane was made. Nothing is
-- decided by it, so a line keeps it only while there is room in the row. Without shares nothing here is made.
--
-- The many of lanes.lua has
--   served  a list with a number for each lane, or nil if there is no room. No number means 0.
--   told    whether the row had such a list when it was read
--
-- needs: frame (max, min), queue (queue, queue.lane), row (MAX_SHARED)
-- defines: served_of, served.read, served.pack, served.of, served.count

local served_of
do
local LEAST_LINED = 3000 -- a line of fewer bytes has room again for what was served

local function make_served()
local served = {}

-- read takes the stored list of a line of lined bytes, and returns how many bytes the line has without the list.
function served.read(m, stored, lined)
  m.told = type(stored) == 'table'
  if not m.told then
    m.served = lined <= LEAST_LINED + m.more and {} or nil
    return lined
  end

  assert(#stored == #m.share)
  for _, x in ipairs(stored) do
    assert(x % 1 == 0 and x >= 0 and x <= MAX_COUNT)
    lined = lined - (x < 128 and 1 or x < 65536 and 3 or 5)
  end

  m.served = stored
  return lined
end

-- pack returns the text of a line, with the list if there is room for it.
function served.pack(m, line, list)
  local text = m.served and cmsgpack.pack({line[1], line[2], line[3], line[4], line[5], line[6], line[7], list})
  if text and #text <= MAX_SHARED + m.more then
    return text
  end
  m.served = nil
  return cmsgpack.pack(line)
end

-- of returns the cost that the lane at an index was served, or 0 if it is not known.
function served.of(m, i)
  return m.served and m.served[i] or 0
end

-- count counts the cost of starts of a share. A cost below 0 is given back.
function served.count(q, class, share, cost)
  local m, c = q.many, queue.lane(q, class, share)
  if m.served and c then
    m.served[c.index] = max(0, min((m.served[c.index] or 0) + cost, MAX_COUNT))
  end
end

return served
end

local made
function served_of()
  made = made or make_served()
  return made
end
end
