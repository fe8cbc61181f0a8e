-- The short way of a call: starts now in sliding windows, and in nothing else, that have
-- room behind all that was booked before. That is what busy budgets are asked for. What
-- follows this file would do the same, in several times as many steps; whatever is not as
-- simple is left to it. Nothing is changed before all is known to be simple.

local rows, rules, added = {}, {}, {}
for i = 2, budgets do
  local r = read(KEYS[i], stored(KEYS[i]))
  r.history, rows[i], added[i] = read_history(recorded), r, 0
end
for i = 1, rule_count do
  rules[i] = read_rule()
end

-- is_empty reports whether no start of a row counts any more under a rule.
local function is_empty(r, u)
  return r.size == 0 or latest(r) + u.span <= now
end

-- joins reports whether a start now shares the last entry of a row.
local function joins(r, u)
  return u.n > WINDOW_PARTS and r.first >= part(u, now)
end

-- is_simple reports whether nothing has to be done with a row for a rule but to append to it:
-- no clock was set, nothing was lost, nothing is learned, paused, booked ahead or due to be
-- dropped, and there is no line. See age.lua, repair.lua and search.lua.
local function is_simple(r, u)
  local h = r.history
  if u.kind ~= SLIDING_WINDOW or h.outdated or not r.stored then
    return u.kind == SLIDING_WINDOW and h.generation == 0
  end
  return now >= r.seen and (h.ago < 0 or now - h.at - h.ago <= STALL + h.ago / STEADY)
    and (h.generation == 0 or h.generation == r.generation and h.count <= r.count and h.g1 == r.g1 and h.n1 <= r.n1)
    and r.span == u.span and r.lost <= now - u.span and r.unit == 0 and r.size > 0 and r.last < now
    and r.opens <= now and r.lined == 0 and r.top == 0
    and (r.paused == 0 or r.paused + max(min(#STEPS * u.span, r.ban), r.probe) <= now)
    and (is_empty(r, u) or r.old + u.span > now and (joins(r, u) or r.size * TRIPLE <= MAX_BYTES))
end

-- is_free reports whether all callers can start now. It adds up what they cost.
local function is_free()
  local at = cursor
  while at <= #frame do
    local callers, mark, max_wait, least, spread, _, first, tickets, count
    callers, mark, max_wait, least, spread, _, _, first, tickets, count, at = struct.unpack('<dddddddddd', frame, at)
    if callers < 0 or mark ~= 0 or max_wait < -1 or least ~= 0 or spread ~= 0 or first ~= 0 or tickets ~= 0 then
      return false
    end
    for _ = 1, count do
      local index, cost, reserve, shadow
      index, cost, reserve, shadow, at = struct.unpack('<dddd', frame, at)
      local u = rules[index]
      if not u or shadow ~= 0 then
        return false
      end
      local sum = added[u.key] + callers * cost
      if sum + (is_empty(rows[u.key], u) and 0 or rows[u.key].total) > u.n - reserve then
        return false
      end
      added[u.key] = sum
    end
    answer(FIVE, callers, 1, now, 0, 0)
  end
  return true
end

-- append counts n starts now in a row.
local function append(r, u, n)
  if is_empty(r, u) then
    r.lost, r.total, r.size, r.F, r.L, r.N = max(r.lost, latest(r)), n, 1, {now}, {now}, {n}
  else
    push(r, joins(r, u) and r.last or now, now, n)
  end
  r.span, r.most = u.span, now >= r.till and u.n or max(r.most, u.n)
  r.seen, r.till, r.count = now, max(r.till, now + u.span), r.count + n
  if r.generation == 0 then
    r.generation = seed
  end
end

local simple = not ARGV[4] and rule_count == budgets - 1
for i = 1, simple and rule_count or 0 do
  simple = simple and rules[i].key == i + 1 and is_simple(rows[i + 1], rules[i])
end
if simple and is_free() then
  for i = 2, budgets do
    local r = rows[i]
    append(r, rules[i - 1], added[i])
    save(r, '')
    answer_row(r, r.total, now)
    out[#out + 1] = NO_LINE
  end
  return finish()
end
out = {}
