-- Starts to come that do not fit any more, and are booked anew by their programs.
--
-- defines: ANEW, last_of, book_anew

local ANEW = 'anew %.0f %.0f %s'

-- last_of returns when the last starts before an end begin that cost so much
-- together. So much is to come.
local function last_of(r, cost, stop)
  local from, i = stop, r.size
  while i > 0 and cost > 0 do
    if r.F[i] < stop then
      from, cost = r.F[i], cost - r.N[i]
    end
    i = i - 1
  end
  return from
end

-- book_anew tells all programs to book the starts between two times anew. News are ANEW, those
-- two times, and the key. A program that does not hear it finds out from the upstream.
local function book_anew(r, from, stop, channel)
  if from < stop then
    redis.pcall('PUBLISH', channel, string.format(ANEW, from, stop, r.key))
  end
end
