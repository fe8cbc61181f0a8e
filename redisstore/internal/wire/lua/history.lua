-- What the calling program knows of a row: its history of it; see docs/state-loss.md.

-- read_history reads the next one:
--
--   call               the call that the program knows the row from
--   ago, clock, at     how long ago that was made; whether the program can tell, and knows
--                      more: ELAPSED_UNKNOWN, ELAPSED_KNOWN or SET_FORWARD; the time that
--                      was answered
--   generation, count  this generation of the row, 0 if it knows none, and how many starts
--   g1, n1 … g3, n3    it had; the same of earlier ones
--   size, samples      how many pairs of an age and a number of starts there are, the
--                      youngest first, and where in the frame the first one is
--   elapsed            how much time has passed at least since that answer
--   outdated           the server forgot that call: then the row is that of a replica that
--                      lagged
local function read_history(recorded)
  local call, ago, clock, at, generation, count, g1, n1, g2, n2, g3, n3, size, samples =
    struct.unpack('<ddddddddddddd', frame, cursor)
  local elapsed
  elapsed, cursor = struct.unpack('<d', frame, samples + 16 * size)
  return {call = call, ago = ago, clock = clock, at = at, generation = generation, count = count, g1 = g1, n1 = n1, g2 = g2, n2 = n2,
    g3 = g3, n3 = n3, size = size, samples = samples, elapsed = elapsed, outdated = call > recorded}
end
