-- How scripts log an act. This part stands before each script that does.

-- is_logged reports whether the audit log of a key has the act: then the script is a copy of a call whose reply was lost.
local function is_logged(key, act)
  for _, entry in ipairs(redis.call('LRANGE', key, 0, 9)) do
    if string.match(entry, '^%d+ (.*)$') == act then
      return true
    end
  end
  return false
end

-- log appends an act, of which each has an id, to the audit log of a key, which keeps the last acts, as many as most.
local function log(key, act, most)
  local time = redis.call('TIME')
  redis.call('LPUSH', key, string.format('%.0f ', time[1] * 1000000 + time[2]) .. act)
  redis.call('LTRIM', key, 0, most - 1)
end

