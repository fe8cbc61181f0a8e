-- The fleet's memory of a budget, for a store that forgot starts; docs/internals/state-loss.md says why it is enough.
--
-- A generation of a row begins when the row's key is made, and ends when the key is gone. The row counts the starts of each generation: generation
-- and count are the present generation and its starts, g1 and n1 the last generation before it and its starts, as far as programs have reported them.
-- The other generations that have a name stand behind the head, see names_of in row.lua, the youngest first: for each its name and its starts. A row
-- has at most LIVES names; the starts of still older generations are counted together, as older. A program remembers the counts that it saw, and when
-- the starts were. Starts that a program knows of and the row does not are booked again.
--
-- needs: age (pin_until, was_set, carry_over), entries (add), frame (max, min, floor, frame), row (open, names_of)
-- defines: read_history, TELLING, ordinal, branch, generations, knows, compare, is_part, MARKS, marked, present_of, learn, count_before,
--     rebook, rebook_samples, rebook_tokens, repair, all_told

-- read_history reads the calling program's history of the next row from the frame: what the program knows. recorded is the number of the program's
-- call of which the server has a record.
--
--   call               the number of the last call whose answer told the program of the row
--   ago, clock, at     how long ago that call was made; whether the program can tell that, and whether the clock was set: ELAPSED_UNKNOWN,
--                      ELAPSED_KNOWN or SET_FORWARD; the server's time in that answer
--   generation, count  the generation that the row had then, 0 if the program knows none, and how many starts it had
--   g1, n1             the generation before that generation, and its starts
--   older, mark        how many starts the generations had whose names are forgotten, and the mark of these starts
--   more, list         how many more generations the program names, the youngest first, and where in the frame the first of them is
--   size, samples      how many pairs of an age and a number of starts there are, the youngest first, and where in the frame the first pair is
--   elapsed            a lower bound on the time since that answer
--   outdated           whether the server has no record of that call: then the row is from a replica that lagged
local function read_history(recorded)
  local call, ago, clock, at, generation, count, g1, n1, older, mark, more, list = struct.unpack('<ddddddddddd', frame, cursor)
  local size, samples = struct.unpack('<d', frame, list + PAIR * more)

  local elapsed
  elapsed, cursor = struct.unpack('<d', frame, samples + PAIR * size)

  return {call = call, ago = ago, clock = clock, at = at, generation = generation, count = count, g1 = g1, n1 = n1, older = older,
    mark = mark, more = more, list = list, size = size, samples = samples, elapsed = elapsed, outdated = call > recorded}
end

local TELLING = 1000000 -- for how long after a loss nothing starts, so that all programs can report the starts that they know

-- ordinal returns the ordinal of a generation: younger generations have higher ordinals.
local function ordinal(generation)
  return floor(generation / NAMES)
end

-- branch returns the name of the branch of a generation. A server that forgot the last starts of a generation goes on with it under its name; the
-- generation as it was before the loss is counted under the name of its branch. Both begin with the same starts. The branch of a branch is the
-- generation.
local function branch(generation)
  return ordinal(generation) * NAMES + (generation + NAMES / 2) % NAMES
end

-- generations returns two tables for x, which is a row or a history: a list of the pairs {name, count} of its generations, the youngest first, and
-- the counts by name.
local function generations(x)
  local list, counts = {}, {}
  local function add_generation(g, n)
    if g ~= 0 then
      list[#list + 1], counts[g] = {g, n}, n
    end
  end
  add_generation(x.generation, x.count)
  add_generation(x.g1, x.n1)

  -- Only a history has a field list: its further names stand in the frame. The further names of a row are a text of their own.
  local text, at, stop = frame, x.list, nil
  if x.list then
    stop = at + PAIR * x.more
  else
    text, at = names_of(x), 1
    stop = #text + 1
  end

  while at < stop do
    local g, n
    g, n, at = struct.unpack('<dd', text, at)
    add_generation(g, n)
  end
  return list, counts
end

-- knows reports whether the program with history h has seen a generation.
local function knows(h, generation)
  local _, counts = generations(h)
  return counts[generation] ~= nil
end

-- compare returns three tables for learn: list, the names of all generations of a row and of history h, the youngest first; told, by name, of how
-- many starts the row knows; and counts, by name, of how many starts the program knows.
--
-- If the row is back at an earlier state, shared is how many starts the row's present generation and the branch of that generation have in common:
-- see count_before. Otherwise shared is false.
local function compare(r, h, shared)
  local row_generations, row_counts = generations(r)
  local program_generations, program_counts = generations(h)

  local list, told, counts = {}, {}, {}
  for i, pair in ipairs(row_generations) do
    local g, n = pair[1], pair[2]
    list[i], told[g] = g, n
  end

  for _, pair in ipairs(program_generations) do
    local g, n = pair[1], pair[2]
    local other = branch(g)

    -- If the row is older than the program's last call, and g is the row's present generation or the row names the branch of g, the server forgot
    -- starts of g, and goes on with g without these starts. Then the program's count is of the branch, unless the program counts both.
    if h.outdated and (g == r.generation or row_counts[other]) and not program_counts[other] then
      g, other = other, g
    end

    -- A row that does not name g still has the starts that g and other have in common: as many as the row counts for other or, if other is the row's
    -- present generation, shared.
    if not told[g] then
      local common = row_counts[other] or 0
      if shared and other == r.generation then
        common = shared
      end
      list[#list + 1], told[g] = g, common
    end

    -- A history can name a generation twice: starts that no row knew of are a generation of their own until the program marks them as reported, and
    -- by then a row may have told the program of a generation with the same name. The higher of the two counts is the program's.
    counts[g] = max(counts[g] or 0, n)
  end

  table.sort(list, function(first, second) return first > second end)
  return list, told, counts
end

-- is_part reports whether this program knows all that programs have told the row: at least as many starts of each generation but the present one.
-- told and counts are from compare.
local function is_part(r, told, counts)
  for g, n in pairs(told) do
    if g ~= r.generation and n > (counts[g] or 0) then
      return false
    end
  end
  return true
end

-- MARKS is an upper bound on marks. A row that cannot tell apart which starts it was told adds it to its mark: see mixed in learn.
local MARKS = 2147483647

-- marked returns the mark of a set of starts to which n starts of a generation are added. Two sets of starts have different marks, except in one of
-- two thousand million cases.
local function marked(mark, generation, n)
  -- n is cut to 20 bits, so that the product of the two is a whole number that a Lua number can hold.
  return (mark + generation % MARKS * (n % 1048576)) % MARKS
end

-- present_of returns the generation that the row has from now on: its own, or a new generation, whose name is seed or higher. A new generation begins
-- if the row has none, if a part of the row's own was forgotten, or if the row or the program names a younger generation. list, told and counts are
-- from compare.
local function present_of(r, list, told, counts, seed)
  local present, youngest = r.generation, ordinal(list[1])

  -- forgot: the program knows of more starts of the generation than the row has. If the branch has a name, the row forgot starts earlier.
  local forgot = present ~= 0 and max(told[present], counts[present] or 0) ~= r.count
  if present == 0 or forgot or told[branch(present)] or ordinal(present) < youngest then
    return max(seed, min(youngest + 1, LAST_ORDINAL) * NAMES + seed % NAMES)
  end
  return present
end

local learn
do
-- split_names splits the generations of a list, without the present one, in two lists, the youngest first: the generations that keep their names, and
-- the generations whose names the row forgets.
local function split_names(list, present)
  local kept, forgotten = {}, {}
  for _, g in ipairs(list) do
    if g ~= present and #kept < LIVES - 1 then
      kept[#kept + 1] = g
    elseif g ~= present then
      forgotten[#forgotten + 1] = g
    end
  end
  return kept, forgotten
end

-- set_names gives a row its present generation, and the earlier generations that have a name, as a list of the pairs {name, count}, the youngest
-- first. It opens the row. A new present generation has no starts yet.
local function set_names(r, present, earlier)
  open(r) -- only an open row is written with its names
  if present ~= r.generation then
    r.generation, r.count = present, 0
  end

  -- The youngest of the earlier generations stands in the head, and all others in the text of names.
  local last, names = earlier[1] or {0, 0}, {}
  for i = 2, #earlier do
    names[i - 1] = struct.pack('<dd', earlier[i][1], earlier[i][2])
  end
  r.g1, r.n1, r.names = last[1], last[2], table.concat(names)
end

-- learn takes over the counts of history h that are higher than the counts in the row, and returns how many starts are missing in the row. Counts
-- only rise, so starts that many programs tell of are counted once. The names of generations rise, too, and the row keeps the highest.
--
-- Generations whose names the row has forgotten can only be compared by the sum of their starts and its mark. Equal marks are of the same starts. If
-- this program knows all that programs have told the row, the difference of the sums is missing. Otherwise all starts of the program's sum are
-- missing, and doubtful: some may be counted twice. learn returns the number of doubtful starts as its second value. From then on the row cannot tell
-- apart which starts it was told, so all starts of such generations that other programs report are doubtful as well.
--
-- seed names a new generation: see present_of. If fresh is true the row takes over the names even if nothing is missing. Otherwise a row in which
-- nothing is missing is left as it is. shared is as for compare.
function learn(r, h, seed, fresh, shared)
  local list, told, counts = compare(r, h, shared)
  local present = present_of(r, list, told, counts, seed)
  local kept, forgotten = split_names(list, present)

  -- Of the two counts of a generation with a name, the higher one is true.
  local missing = max(0, (counts[present] or 0) - (told[present] or 0))
  local earlier = {}
  for i, g in ipairs(kept) do
    local known = counts[g] or 0
    missing = missing + max(0, known - told[g])
    earlier[i] = {g, max(told[g], known)}
  end

  -- The sums and marks of starts whose generations have no name: mine in the row, theirs in the history.
  local mine, my_mark = r.older, r.mark % MARKS
  local theirs, their_mark = h.older, h.mark % MARKS
  for _, g in ipairs(forgotten) do
    local known = counts[g] or 0
    mine, my_mark = mine + told[g], marked(my_mark, g, told[g])
    theirs, their_mark = theirs + known, marked(their_mark, g, known)
  end

  -- mixed: the row cannot tell apart which starts without a name it was told. Nor can it from now on, if the program's last generation loses its
  -- name: then covered, below, could not show later that the program has told the row.
  local mixed = r.mark >= MARKS
  for _, g in ipairs(forgotten) do
    mixed = mixed or g == h.generation
  end

  -- same: the row has the same starts without a name. covered: a program that knew all that this program knows has told the row. If neither is true,
  -- some starts may be missing.
  local same = theirs == mine and their_mark == my_mark
  local covered = (told[h.generation] or 0) > h.count and not h.outdated
  local doubtful = 0
  if theirs > 0 and not covered and not same then
    mixed = mixed or not is_part(r, told, counts)
    if mixed then
      missing, doubtful = missing + theirs, theirs
    elseif theirs > mine then
      missing, mine, my_mark = missing + theirs - mine, theirs, their_mark
    end
  end

  if missing == 0 and not fresh then
    return 0, 0
  end

  set_names(r, present, earlier)
  r.older, r.mark = mine, mixed and my_mark + MARKS or my_mark
  return missing, doubtful
end
end

-- count_before opens a row, and returns a lower bound on the starts that the row had before the call of history h. The server forgot that call:
-- starts that the row has got since are later than the call, so they are not counted.
local function count_before(r, h, now)
  open(r)
  local since = h.clock == ELAPSED_UNKNOWN and 0 or now - h.ago -- if the program cannot tell when it called, any start may be later
  local later_starts = 0
  for i = 1, r.size do
    later_starts = later_starts + (r.L[i] >= since and r.N[i] or 0)
  end
  return max(0, r.count - later_starts)
end

-- rebook books n starts again, none of which is younger than age, in microseconds: as starts of that age, the latest moment at which they can have
-- been. If age is below 0 some may still be to come: then all are booked as anywhere from now until that moment. The row is kept until they do not
-- count.
local function rebook(r, now, age, n)
  add(r, min(now, now - age), now - age, n)
  r.till = max(r.till, now - age + r.span)
end

-- rebook_samples books up to missing starts again: the starts of the samples of row r's history, from the youngest sample on. The starts of samples
-- that are older than a span are missing, too, but are not booked, because they do not matter any longer.
local function rebook_samples(r, now, missing)
  local h = r.history
  local at = h.samples
  for _ = 1, h.size do
    local age, n
    age, n, at = struct.unpack('<dd', frame, at)
    if missing > 0 and age < r.span then
      rebook(r, now, age, min(n, missing))
    end
    missing = missing - n
  end
end

-- rebook_tokens books up to missing starts again under rule u, a token bucket: as starts of the age of the youngest sample of row r's history, or
-- over the last span if back is true, which says that the row is back at an earlier state. It books nothing if all starts are so old that the bucket
-- has filled up since.
local function rebook_tokens(r, u, now, missing, back)
  local h = r.history
  local youngest, sum, at = nil, 0, h.samples -- a history that names a generation has a sample at least
  for _ = 1, h.size do
    local age, n
    age, n, at = struct.unpack('<dd', frame, at)
    youngest, sum = youngest or age, sum + n
  end

  if youngest >= r.span then
    return
  end

  -- Starts that are older than a span still count in a bucket, but never more than the bucket holds. A full history has forgotten its oldest samples,
  -- so count a whole bucket.
  if h.size > PARTS then
    sum = u.n
  end
  local n = min(sum, u.n, missing)

  if back then
    -- Book them over the whole last span. What other programs report is joined with this entry, and one entry never counts as more than the whole
    -- bucket.
    add(r, now - r.span, max(now, now - youngest), n)
    r.till = max(r.till, now - youngest + r.span)
  else
    rebook(r, now, youngest, n)
  end
end

-- repair books the starts that the program's history of a row has and the row lacks. The history does not say when each start was, and has starts
-- that were given back, so the row counts too much for a while. The first program that reports does not know which starts other programs booked
-- last, so nothing starts until the other programs have had time to report, too. u is a rule of the row, and seed the name of a new generation.
local function repair(r, u, now, seed)
  local h = r.history
  local generation, g1 = r.generation, r.g1

  -- An unlimited row counts no starts.
  if u.peak == 0 then
    return
  end

  -- The program knows nothing, or the row lacks nothing, as nearly always.
  local lacks_nothing = not h.outdated and h.generation == generation and h.count <= r.count and h.g1 == g1 and h.n1 <= r.n1
  if h.generation == 0 or lacks_nothing then
    return
  end

  -- If the record of calls is older than what the program saw, and the program saw this generation, the row is back at an earlier state, and other
  -- programs may have counted on from there.
  local back = h.outdated and generation ~= 0 and knows(h, generation)

  -- fresh is whether this program is the first to tell the row of generations before its own.
  local fresh = generation == 0 or g1 == 0 and not knows(h, generation)
  local missing, doubtful = learn(r, h, seed, fresh, back and count_before(r, h, now))
  local total_before = r.total
  if fresh then
    -- Book all samples: they also have costs that are no starts of the fleet, such as costs that others spent.
    missing = MAX_COUNT
  elseif missing == 0 then
    return
  end

  if u.tokens > 0 then
    rebook_tokens(r, u, now, missing, back)
  else
    rebook_samples(r, now, missing)
  end

  -- The clock was set: the upstream's window that has counted these starts may still last, although it is over by this clock.
  if u.boundaries and was_set(r, now) then
    carry_over(r, now, 0)
  end

  -- Count doubtful starts as starts of the present generation, so that programs learn of them and report them later.
  r.count = r.count + min(doubtful, r.total - total_before)
  if r.total > total_before then
    -- Otherwise a start that is given back could take out a start that was booked again for a different caller.
    pin_until(r)

    -- The first repair of a generation: the other programs have not reported yet.
    if fresh or r.generation ~= generation then
      r.opens = now + min(r.span, TELLING)
    end
  end
end

-- all_told returns when all programs will have reported the starts that the rows of a list of searches have lost, or 0 if nothing was lost. Shadows
-- are left out.
local function all_told(list)
  local opens = 0
  for _, s in ipairs(list) do
    if not s.shadow then
      opens = max(opens, s.row.opens)
    end
  end
  return opens
end
