-- The fleet's memory of a budget, for a store that forgot; docs/internals/state-loss.md
-- says why it is enough.
--
-- A generation of a row begins when the row's key is made and ends when the key is gone. The row
-- counts the starts of each generation: generation and count are the present one and its starts, g1,
-- n1 … g3, n3 the last generations before it and their starts, as far as programs have told. A
-- program remembers the counts that it saw, and when the starts were. Starts that a program knows of
-- and the row does not are booked again.

-- read_history reads what the calling program knows of the next row, its history of it:
--
--   call               the number of the last call whose answer told the program of the row
--   ago, clock, at     how long ago that call was made; whether the program can tell that, and
--                      whether the clock was set: ELAPSED_UNKNOWN, ELAPSED_KNOWN or SET_FORWARD;
--                      the server's time in that answer
--   generation, count  the generation that the row had then, 0 if the program knows none, and how
--                      many starts it had
--   g1, n1 … g3, n3    earlier generations of the row, and how many starts they had
--   size, samples      how many pairs of an age and a number of starts there are, the
--                      youngest first, and where in the frame the first pair is
--   elapsed            how much time has passed at least since that answer
--   outdated           the server has no record of that call: then the row is that of a replica
--                      that lagged
local function read_history(recorded)
  local call, ago, clock, at, generation, count, g1, n1, g2, n2, g3, n3, size, samples =
    struct.unpack('<ddddddddddddd', frame, cursor)
  local elapsed
  elapsed, cursor = struct.unpack('<d', frame, samples + 16 * size)
  return {call = call, ago = ago, clock = clock, at = at, generation = generation, count = count, g1 = g1, n1 = n1, g2 = g2, n2 = n2,
    g3 = g3, n3 = n3, size = size, samples = samples, elapsed = elapsed, outdated = call > recorded}
end

local TELLING = 1000000 -- for how long after a loss nothing starts, so that all programs can tell what they know

-- ordinal returns the ordinal of a generation: it is lower than those of younger generations.
local function ordinal(generation)
  return floor(generation / NAMES)
end

-- branch returns the name of the branch of a generation. A server that forgot the last starts of a
-- generation goes on with the generation; the starts of the generation as it was before are counted
-- under the name of its branch. Both begin with the same starts. The branch of a branch is the
-- generation.
local function branch(generation)
  return ordinal(generation) * NAMES + (generation + NAMES / 2) % NAMES
end

-- knows reports whether the program with history h has seen a generation.
local function knows(h, generation)
  return h.generation == generation or h.g1 == generation or h.g2 == generation or h.g3 == generation
end

-- generations returns {name, count} of each generation that x, a row or a history, names.
local function generations(x)
  local all = {}
  for _, v in ipairs({{x.generation, x.count}, {x.g1, x.n1}, {x.g2, x.n2}, {x.g3, x.n3}}) do
    all[#all + 1] = v[1] ~= 0 and v or nil
  end
  return all
end

-- in_common returns how many starts of the generations that history h names the row has. It returns
-- nil unless no program has told the row of the oldest generation that h names: only then may the
-- program know of still older generations that nobody has told the row of.
local function in_common(r, h)
  local told, n = {}, 0
  for _, v in ipairs(generations(r)) do
    told[v[1]] = v[2]
  end
  if h.g3 == 0 or told[h.g3] or h.g3 < r.g3 then
    return nil
  end
  for _, v in ipairs(generations(h)) do
    n = n + min(v[2], told[v[1]] or 0)
  end
  return n
end

-- sampled returns how many starts of history h are younger than span.
local function sampled(h, span)
  local n, at = 0, h.samples
  for _ = 1, h.size do
    local age, starts
    age, starts, at = struct.unpack('<dd', frame, at)
    n = n + (age < span and starts or 0)
  end
  return n
end

-- learn takes over the counts of history h that are higher than those of the row, and returns by how
-- many starts they are higher. Counts only rise, so starts that many programs tell of are counted
-- once. The names of generations rise, too, and the row keeps the last three names: generations
-- that are older were told before, and are not counted again.
--
-- If the row is back at an earlier state, shared is how many starts its generation and the branch
-- have in common. If a part of the row's generation was forgotten, or a later generation was told,
-- a new generation begins, whose name is seed, or higher. If fresh is true the row takes over the
-- names also if there is nothing to count.
local function learn(r, h, seed, fresh, shared)
  local list, n, told, missing = {}, {}, {}, 0
  for _, v in ipairs(generations(r)) do
    list[#list + 1], n[v[1]], told[v[1]] = v[1], v[2], v[2]
  end
  for _, v in ipairs(generations(h)) do
    local g, starts = v[1], v[2]
    local other = branch(g)
    if h.outdated and (g == r.generation or told[other]) and not knows(h, other) then
      g, other = other, g -- what the program knows is of the part that was forgotten
    end
    if not n[g] and ordinal(g) >= ordinal(r.g3) then
      list[#list + 1], n[g] = g, g == branch(r.generation) and shared or told[other] or 0
    end
    if n[g] and starts > n[g] then
      missing, n[g] = missing + starts - n[g], starts
    end
  end
  if missing == 0 and not fresh then
    return 0
  end
  table.sort(list, function(a, b) return a > b end)
  if r.generation == 0 or n[r.generation] ~= r.count or n[branch(r.generation)] or ordinal(r.generation) < ordinal(list[1]) then
    r.generation, r.count = max(seed, min(ordinal(list[1]) + 1, LAST_ORDINAL) * NAMES + seed % NAMES), 0
  end
  local before = {}
  for _, g in ipairs(list) do
    before[#before + 1] = g ~= r.generation and g or nil
  end
  r.g1, r.g2, r.g3 = before[1] or 0, before[2] or 0, before[3] or 0
  r.n1, r.n2, r.n3 = n[r.g1] or 0, n[r.g2] or 0, n[r.g3] or 0
  return missing
end

-- count_before returns how many starts a row had, at least, before the call of history h, which the
-- server forgot: the starts that the row has got since are later than that call.
local function count_before(r, h, now)
  local since, n = h.clock == ELAPSED_UNKNOWN and 0 or now - h.ago, 0
  open(r)
  for i = 1, r.size do
    n = n + (r.L[i] >= since and r.N[i] or 0)
  end
  return max(0, r.count - n)
end

-- rebook counts n starts, none of which is younger than age. If age is below 0 the starts may still be
-- to come: they are counted as anywhere from now until that time.
local function rebook(r, now, age, n)
  add(r, min(now, now - age), now - age, n)
  r.till = max(r.till, now - age + r.span)
end

-- repair books the starts that the program's history of a row has and the row lacks. The history does
-- not say when each start was, and has starts that were given back, so the row counts too much for
-- a while. The first program that tells does not know what others booked last, so nothing starts
-- until the others had time to tell, too.
local function repair(r, u, now, seed)
  local h = r.history
  local generation, g1 = r.generation, r.g1
  if u.peak == 0 then
    return -- an unlimited row counts no starts
  end
  -- If the record of calls is older than what the program saw, and the program saw this
  -- generation, the row is back at an earlier state, and others may have counted on from there.
  local back = h.outdated and generation ~= 0 and knows(h, generation)
  local fresh = generation == 0 or g1 == 0 and not knows(h, generation) -- nobody has told anything
  if h.generation == 0 or not back and h.generation == generation and h.count <= r.count and h.g1 == g1 and h.n1 <= r.n1 then
    return -- the row lacks nothing, as nearly always
  end
  local common = not back and in_common(r, h)
  local missing, before = learn(r, h, seed, fresh or common, back and count_before(r, h, now)), r.total
  if fresh then
    missing = MAX_COUNT -- all samples, because they may be of more generations than the history names
  elseif common then
    missing = max(missing, sampled(h, r.span) - common)
  elseif missing == 0 then
    return
  end
  local lacking, all, youngest, at = missing, 0, nil, h.samples
  for _ = 1, h.size do
    local age, n
    age, n, at = struct.unpack('<dd', frame, at)
    youngest, all = youngest or age, all + n
    if missing > 0 and age < r.span and u.tokens == 0 then
      rebook(r, now, age, min(n, missing))
    end
    missing = missing - n
  end
  if u.boundaries and was_set(r, now) then
    carry_over(r, now, 0)
  end
  if u.tokens > 0 and youngest < r.span then
    -- Starts that are older than a span still count in a bucket, but never more than the bucket holds.
    local n = min(h.size > PARTS and u.n or all, u.n, lacking)
    if back then
      -- One entry: it is never more than the whole bucket, however many programs tell of these starts.
      add(r, now - r.span, max(now, now - youngest), n)
      r.till = max(r.till, now - youngest + r.span)
    else
      rebook(r, now, youngest, n)
    end
  end
  if r.total > before then
    pin_until(r)
    if fresh or r.generation ~= generation then
      r.opens = now + min(r.span, TELLING)
    end
  end
end

-- all_told returns when all programs will have told what the rows of the searches in a list, without
-- shadows, have lost; 0 if nothing was lost.
local function all_told(list)
  local opens = 0
  for _, s in ipairs(list) do
    if not s.shadow then
      opens = max(opens, s.row.opens)
    end
  end
  return opens
end
