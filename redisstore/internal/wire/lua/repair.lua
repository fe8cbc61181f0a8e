-- The fleet's memory of a budget, for a store that forgot; docs/state-loss.md
-- says why it is enough.
--
-- A row lives from when its key is made until that is gone. It counts the starts
-- of each life: birth and count are this one's, b1, n1 … those of the last few
-- before, as far as anybody told. A program remembers the counts that it saw, and
-- when the starts were. What it knows and the row does not is booked again.

local SAMPLES = 8 -- who tells of more than so many has forgotten some
local TELLING = 1000000 -- so long the others have to tell what they know
local RECORDED = 60000000 -- older records are not there: see book.lua

local passed_over = 1 -- how many keys

-- known passes over what a program knows of the next key and returns where it
-- stands: the call that it knows it from, how long ago that was made, and what time
-- it was told, see heard; birth and count of four lives, this one first (0: none);
-- how many pairs of an age and a number of starts, the youngest first; and how much
-- time has passed at least since then, see least.
local function known()
  local from = here
  local size = struct.unpack('<d', blob, from + 88)
  here = from + 104 + 16 * size
  passed_over = passed_over + 1
  heard[KEYS[passed_over]] = from + 8
  least[KEYS[passed_over]] = struct.unpack('<d', blob, here - 8)
  return from
end

-- learn takes over the counts that k has and the row has not, and returns how
-- many starts that is. A life of which the row has forgotten a part has ended: a
-- new one, with the random number seed, begins.
local function learn(r, k, seed)
  local births, n = {}, {}
  local function count(birth, starts)
    if birth ~= 0 and not n[birth] then
      births[#births + 1], n[birth] = birth, 0
    end
    local more = birth ~= 0 and max(0, starts - n[birth]) or 0
    n[birth] = (n[birth] or 0) + more
    return more
  end
  count(r.birth, r.count)
  count(r.b1, r.n1)
  count(r.b2, r.n2)
  count(r.b3, r.n3)
  local missing = 0
  for i = 4, 10, 2 do
    missing = missing + count(k[i], k[i + 1])
  end
  if missing == 0 then
    return 0
  end
  if r.birth == 0 or n[r.birth] ~= r.count then
    r.birth, r.count = seed, 0
  elseif births[1] == r.birth then
    table.remove(births, 1)
  end
  r.b1, r.b2, r.b3 = births[1] or 0, births[2] or 0, births[3] or 0
  r.n1, r.n2, r.n3 = n[r.b1] or 0, n[r.b2] or 0, n[r.b3] or 0
  return missing
end

-- rebook counts n starts of which the latest may be an age ago. Those that may
-- still be to come are taken to be anywhere from now until then.
local function rebook(r, now, age, n)
  add(r, min(now, now - age), now - age, n)
  r.till = max(r.till, now - age + r.span)
end

-- is_first reports whether the program with the lives in k is the first to tell what
-- was lost, of a row that had the birth and b1 before: nobody told of another life,
-- and it does not know this one.
local function is_first(r, k, birth, b1)
  local knows = k[4] == birth or k[6] == birth or k[8] == birth or k[10] == birth
  return r.birth ~= birth or (b1 == 0 and not knows)
end

-- repair books what the row lacks, and leaves cancelled places taken for a while:
-- what is booked so is not as sharp as what was. Who is the first to tell does not
-- know what others booked last, so nobody starts before they had time to tell, too.
-- It returns whether the row is older than what the program saw.
local function repair(r, from, u, now, seed, recorded)
  local told, _, _, b0, n0, t1, m1 = struct.unpack('<ddddddd', blob, from)
  -- If the lane's record is older than what the program saw, so is the row, though
  -- others may have counted on from there.
  local stale, fresh, birth, b1 = told > recorded, r.birth == 0, r.birth, r.b1
  if u.free then
    return stale -- it has no starts
  end
  if b0 == 0 or (not stale and b0 == r.birth and n0 <= r.count and t1 == r.b1 and m1 <= r.n1) then
    return false -- nearly always
  end
  local k = {struct.unpack('<dddddddddddd', blob, from)}
  local missing, size, before = learn(r, k, seed), k[12], r.total
  if fresh or stale then
    missing = MAX_COUNT -- all, because more than the lives that are counted may be lost
  end
  if missing == 0 then
    return false
  end
  from = from + 96
  local lacking, all, youngest = missing, 0, nil
  for _ = 1, size do
    local age, n
    age, n, from = struct.unpack('<dd', blob, from)
    youngest, all = youngest or age, all + n
    if missing > 0 and age < r.span and u.kind ~= BUCKET then
      rebook(r, now, age, min(n, missing))
    end
    missing = missing - n
  end
  if u.kind == ALIGNED and was_set(r, now) then
    still_counts(r, now, 0)
  end
  if u.kind == BUCKET and youngest < r.span then
    -- What is older than a span still counts in a bucket, but never more than all of it.
    local n = min(size > SAMPLES and u.n or all, u.n, lacking)
    if stale then
      -- One entry, which is never more than the whole bucket, whoever tells of it.
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
    freeze(r)
    bound(r)
    if is_first(r, k, birth, b1) or (stale and r.opens + RECORDED < now) then
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
