-- The fleet's memory of a budget, for a store that forgot; docs/state-loss.md
-- says why it is enough.
--
-- A generation of a row begins when its key is made and ends when that is gone. The row
-- counts the starts of each: generation and count are this one's, g1, n1 … those of the last
-- few before, as far as programs told. A program remembers the counts that it saw, and when
-- the starts were. What it knows and the row does not is booked again.

local TELLING = 1000000 -- so long the others have to tell what they know

-- learn takes over the counts that history h has and the row has not, and returns how
-- many starts that is. A generation of which the row has forgotten a part has ended: a
-- new one, with the random number seed, begins.
local function learn(r, h, seed)
  local generations, n = {}, {}
  local function count(generation, starts)
    if generation ~= 0 and not n[generation] then
      generations[#generations + 1], n[generation] = generation, 0
    end
    local more = generation ~= 0 and max(0, starts - n[generation]) or 0
    n[generation] = (n[generation] or 0) + more
    return more
  end
  local function count_all(x)
    return count(x.generation, x.count) + count(x.g1, x.n1) + count(x.g2, x.n2) + count(x.g3, x.n3)
  end
  count_all(r)
  local missing = count_all(h)
  if missing == 0 then
    return 0
  end
  if r.generation == 0 or n[r.generation] ~= r.count then
    r.generation, r.count = seed, 0
  elseif generations[1] == r.generation then
    table.remove(generations, 1)
  end
  r.g1, r.g2, r.g3 = generations[1] or 0, generations[2] or 0, generations[3] or 0
  r.n1, r.n2, r.n3 = n[r.g1] or 0, n[r.g2] or 0, n[r.g3] or 0
  return missing
end

-- rebook counts n starts of which the latest may be an age ago. Those that may
-- still be to come are taken to be anywhere from now until then.
local function rebook(r, now, age, n)
  add(r, min(now, now - age), now - age, n)
  r.till = max(r.till, now - age + r.span)
end

-- is_first reports whether the program with history h is the first to tell what was
-- lost, of a row that had these generations before: none told of another one, and it
-- does not know this one.
local function is_first(r, h, generation, g1)
  local knows = h.generation == generation or h.g1 == generation or h.g2 == generation or h.g3 == generation
  return r.generation ~= generation or (g1 == 0 and not knows)
end

-- repair books what the row lacks, and leaves cancelled places taken for a while:
-- what is booked so is not as sharp as what was. The first program to tell does not
-- know what others booked last, so no caller starts before they had time to tell, too.
-- It returns whether the row is older than what the program saw.
local function repair(r, u, now, seed)
  local h = r.history
  -- If the record of calls is older than what the program saw, so is the row, though
  -- others may have counted on from there.
  local stale, fresh, generation, g1 = h.outdated, r.generation == 0, r.generation, r.g1
  if u.free then
    return stale -- it has no starts
  end
  if h.generation == 0 or (not stale and h.generation == r.generation and h.count <= r.count and h.g1 == r.g1 and h.n1 <= r.n1) then
    return false -- nearly always
  end
  local missing, before = learn(r, h, seed), r.total
  if fresh or stale then
    missing = MAX_COUNT -- all, because more than the generations that are counted may be lost
  end
  if missing == 0 then
    return false
  end
  local lacking, all, youngest, at = missing, 0, nil, h.samples
  for _ = 1, h.size do
    local age, n
    age, n, at = struct.unpack('<dd', frame, at)
    youngest, all = youngest or age, all + n
    if missing > 0 and age < r.span and u.kind ~= TOKEN_BUCKET then
      rebook(r, now, age, min(n, missing))
    end
    missing = missing - n
  end
  if u.kind == FIXED_WINDOW and was_set(r, now) then
    carry_over(r, now, 0)
  end
  if u.kind == TOKEN_BUCKET and youngest < r.span then
    -- What is older than a span still counts in a bucket, but never more than all of it.
    local n = min(h.size > PARTS and u.n or all, u.n, lacking)
    if stale then
      -- One entry, which is never more than the whole bucket, however many tell of it.
      add(r, now - r.span, max(now, now - youngest), n)
      r.till = max(r.till, now - youngest + r.span)
    else
      rebook(r, now, youngest, n)
    end
  end
  if stale and not fresh then
    r.count = r.count + max(0, r.total - before) -- so that others learn of them
  end
  if r.total > before then
    pin_until(r)
    bound(r)
    if is_first(r, h, generation, g1) or (stale and r.opens + RECORD_TIME < now) then
      r.opens = now + min(r.span, TELLING)
    end
  end
  return stale
end

-- all_told returns when the programs will have told what the rows that count have
-- lost.
local function all_told(list)
  local opens = 0
  for _, s in ipairs(list) do
    if not s.shadow then
      opens = max(opens, s.row.opens)
    end
  end
  return opens
end
