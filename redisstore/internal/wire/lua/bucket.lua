-- Token buckets. A row knows the starts of the last span as entries, and all starts before them as a level: at and spent, how full of spent
-- tokens the bucket was at a moment. The level is counted in units that make all arithmetic whole: a token is u.micros units, and in each
-- microsecond u.tokens units flow back. The twin is internal/ledger/bucket.go.
--
-- needs: frame (max, min, ceil, floor), row (open)
-- defines: filling, add_up, due, spent, recount, forget, filled, bucket

-- filling returns an upper bound on the tokens that n starts can have taken: by the rule never more than the whole bucket, so entries that
-- were joined need not count more.
local function filling(u, n)
  return min(n, u.n)
end

-- add_up returns the level at the end of an entry, with the cost of the entry. Entries come in the order of time.
local function add_up(at, spent, last, n, u)
  return last, max(0, spent - (last - at) * u.tokens) + filling(u, n) * u.micros
end

-- due returns when excess tokens have flowed in, or 0 if that many are there already. Tokens that flow in during the jitter do not count: an
-- arrival may be later by the jitter than the arrival before the level was reached.
local function due(at, spent, excess, u)
  local missing = spent + excess * u.micros
  if missing <= 0 then
    return 0
  end
  return at + u.jitter + ceil(missing / u.tokens)
end

-- spent returns how many starts may still matter in a row.
local function spent(r)
  return r.total + (r.unit ~= 0 and ceil(r.level / math.abs(r.unit)) or 0)
end

-- recount converts the row's level to the units of the rule. A level of other units, or a level to which other limits added, is at most a
-- full bucket.
local function recount(r, u)
  if r.unit == u.micros then
    return
  end

  if r.unit ~= 0 then
    local old = math.abs(r.unit)
    local whole = floor(r.level / old)
    r.level = whole >= u.n and u.n * u.micros
      or whole * u.micros + ceil((r.level - whole * old) * u.micros / old)
  end
  r.unit = u.micros
end

-- forget counts an entry that is about to leave the row. A bucket remembers how much was spent: a bucket that is never left in peace for long
-- enough to fill up owes these tokens forever.
local function forget(r, last, n, u)
  if u.tokens > 0 then
    local _
    _, r.level = add_up(r.lost, r.level, last, n, u)
  elseif r.unit ~= 0 then
    -- The limit may be a bucket again: until then nothing flows in.
    local unit = math.abs(r.unit)
    r.unit, r.level = -unit, min(MAX_LEVEL, r.level + min(n, floor(MAX_LEVEL / unit)) * unit)
  end
  r.lost = max(r.lost, last)
end

-- filled returns the first moment not before t at which the bucket has room for search s, for all starts until then. Of the entries before
-- that moment, i … j-1 are counted in sum, and all before i in the level.
local function filled(s, t)
  local r, u = s.row, s.rule
  local F, L, N, size = r.F, r.L, r.N, r.size
  while true do
    while s.j <= size and F[s.j] <= t do
      s.sum = s.sum + filling(u, N[s.j])
      s.j = s.j + 1
    end
    while s.sum > s.room and s.i < s.j do
      s.at, s.spent = add_up(s.at, s.spent, L[s.i], N[s.i], u)
      s.sum = s.sum - filling(u, N[s.i])
      s.i = s.i + 1
    end

    local start = due(s.at, s.spent, s.sum - s.room, u)
    if start <= t then
      return t
    end
    t = start
  end
end

local bucket
do
-- overdrawn returns the begin of an entry to come up to which a start at t would overdraw the bucket, or nil. No start before that begin has
-- room: it would overdraw the bucket at the same moment.
local function overdrawn(s, t)
  local r, u = s.row, s.rule
  local F, L, N = r.F, r.L, r.N
  local i, at, spent, sum, own = s.i, s.at, s.spent, s.sum, 0
  for k = s.j, r.size do
    local n = filling(u, N[k])
    sum, own = sum + n, own + n
    while sum > s.room and i < s.j do
      at, spent = add_up(at, spent, L[i], N[i], u)
      sum = sum - filling(u, N[i])
      i = i + 1
    end

    if due(at, spent, sum - s.room, u) > F[k] or due(t + s.spread, 0, own - s.room, u) > F[k] then
      return F[k]
    end
  end
  return nil
end

-- bucket returns the first start not before t with which no run of entries breaks the rule: no run that ends with the start, goes over it,
-- or begins with it. Entries i … j-1 are those before t that together leave room, and sum is their cost; of the entries before them the
-- level counts.
function bucket(s, t)
  local r = s.row
  if r.level == 0 and r.total <= s.room then
    return t
  end
  open(r)
  if not s.at then
    s.at, s.spent = r.lost, r.level
  end

  while true do
    t = filled(s, t)
    local stop = overdrawn(s, t)
    if not stop then
      return t
    end
    t = stop
  end
end
end
