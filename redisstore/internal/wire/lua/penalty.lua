-- What a row, or a budget of slots, remembers of its last penalty, and what the next one makes of
-- that: ban, for how long it closed the budget; probe, for how long the first start after
-- it is alone; times, how often in a row it was met, 0 if it was no refusal. See docs/bans.md.
--
-- needs: frame (max, min, floor)
-- defines: penalty.step, penalty.remembered, penalty.repeated, penalty.forgive, penalty.shut

do
-- step returns the longest step of the slow start after a penalty.
function penalty.step(r)
  return min(floor(r.ban / 2), LONGEST_STEP)
end

-- remembered returns for how long after its end a refusal has to do with a penalty.
function penalty.remembered(r)
  return max(penalty.step(r), r.probe)
end

-- repeated returns how often a penalty was met again that lasts for so long, below 0 since
-- its end, while that is not forgotten.
function penalty.repeated(r, left)
  return left + penalty.remembered(r) > 0 and max(0, r.times - 1) or 0
end

-- grown is the most that a penalty of such a length grows to: as many times as long as it
-- has whole seconds.
local function grown(length)
  length = min(length, LONGEST_GROWN)
  return min(length * floor(length / 1000000), LONGEST_GROWN)
end

-- forgive forgets a penalty.
function penalty.forgive(r)
  r.ban, r.probe, r.times = 0, 0, 0
end

-- shut returns for how long r is closed now, if it was closed for left, below 0 since that
-- was over, and is to be for length, because a request was refused that was sent so long
-- ago; 0: none was. A request that was sent after the last penalty met that again, or in the
-- last half of it, because clocks drift; one that was sent before belongs to it, and its answer
-- came late. Its answer took so long; the store may have been away since.
function penalty.shut(r, left, length, refused, took)
  if left + penalty.remembered(r) <= 0 then
    penalty.forgive(r)
  end
  local ban, times = length, refused > 0 and 1 or 0
  local late = refused > 0 and -refused < left - floor(r.ban / 2)
  if refused > 0 and r.times > 0 and left <= 0 and not late then
    ban, times = max(length, min(2 * r.ban, grown(length))), r.times + 1
  end
  local probe, closed = max(LEAST_PROBE, min(2 * took, LONGEST_PROBE, ban)), max(left, ban)
  if late or left > 0 then
    ban, probe, times = max(r.ban, ban), max(r.probe, probe), max(r.times, times)
  end
  r.ban, r.probe, r.times = ban, probe, times
  return closed
end
end
