-- The requests of a call: its rows, its rules, its budgets of slots, and the charges of each caller. Rows are brought to the time now, and repaired,
-- before any caller is served. Open and find in internal/ledger/request.go do the same in Go.
--
-- needs: age (forward_step, advance), answer (closed), book (seed, rule_count, slots_count, budgets, recorded), frame (min, frame, now),
--     leases (load_slots, report), penalty (penalty.shut, is_free), repair (read_history, repair), row (penalty, load), rule (read_rule),
--     search (search_for, earliest), short (texts), slots (set_aside)
-- defines: rows, rules, rule_of, all_slots, histories, is_to_be_closed, passes_by, charges, find

local rows, rules, rule_of, all_slots, histories = {}, {}, {}, {}, {}
for i = 2, budgets do
  histories[i] = read_history(recorded)
end

-- is_to_be_closed reports whether the server forgot a pause that the program knows. A row that still knows counts more: the pause may have been
-- lifted.
local function is_to_be_closed(r)
  return closed[r.key] and (r.history.outdated or not r.stored)
end

-- passes_by reports whether a rule is unlimited and not closed, and its row is left as it is, like an open gate. If the clock was set forward a
-- pause may only seem to be over.
local function passes_by(u, r)
  return is_free(u, r) and r.lined == 0 and now >= r.seen and (r.paused == 0 or forward_step(r, now) == 0)
    and not is_to_be_closed(r)
end

-- Read the rules. Several budgets may share one rule, and several rules one row.
for _ = 1, rule_count do
  local at, behind, u, many, key = cursor, 0
  repeat
    cursor = at
    u, many, key = read_rule(behind)
    local r = rows[key]
    if not r then
      r = load(KEYS[key], texts[key])
      r.history, rows[key] = histories[key], r
    end
    u.row, rules[#rules + 1] = r, u

    if not passes_by(u, r) then
      local needs = advance(r, now, u)
      if needs then
        return struct.pack('<ddd', needs, now, now)
      end

      -- The first rule of a row repairs it: from then on the row knows what the program knows.
      if not rule_of[key] then
        repair(r, u, now, seed)
        if is_to_be_closed(r) then
          r.paused = now + penalty.shut(r, r.paused - now, closed[r.key], 0, 0)
        end
      end
      rule_of[key] = u
    end
    behind = behind + 1
  until behind == many
end

-- Read the budgets of slots, and the program's report of each.
for i = 1, slots_count do
  local slots = load_slots(KEYS[budgets + i], now)
  if not report(slots, ARGV[5], seed) then
    return struct.pack('<dd', LATE, now)
  end
  set_aside(slots)
  all_slots[i] = slots
end

-- charges returns a caller's charges: a list of searches for starts, and a list of claims of slots.
local function charges(count, from, spread)
  local list, claims = {}, {}
  for k = 1, count do
    local index, cost, reserve, more, share, weight
    index, cost, reserve, more, share, weight, cursor = struct.unpack('<dddddd', frame, cursor)
    if index <= slots_count then
      claims[#claims + 1] = {slots = all_slots[index], cost = cost, reserve = reserve, shadow = more == 1, index = k}
    else
      local u = rules[index - slots_count]
      if u.tells then
        cost = min(cost, u.n) -- a cost above the limit that the upstream told counts as all of it
      end
      local s = search_for(u, cost, reserve, from, spread, more == 1)
      s.each, s.more, s.index, s.share, s.weight = cost, more, k, share, weight
      list[#list + 1] = s
    end
  end
  return list, claims
end

-- find returns the earliest start not before t that has room in every budget that counts, the charge that set it, and the end of the pause that
-- closes that charge, 0 if none does. held is the charge that set t, if a charge did: the charge behind it is asked first. Each answer is a lower
-- bound for all budgets, so the search ends when a whole round moves nothing. Where the boundaries end it returns nil, and the time up to which
-- more are needed.
local function find(list, from, t, held)
  local paused, still, k, size = 0, 0, 1, #list

  -- The charge that has set t knows already that it has room then, so the next one is asked first.
  for i, s in ipairs(list) do
    if s.index == held then
      k, paused = i % size + 1, s.row.paused > from and s.row.paused or 0
    end
  end

  while still < size do
    local s = list[k]
    still = still + 1
    if not s.shadow then
      local start, need = earliest(s, t)
      if not start then
        return nil, need
      end
      if start > t then
        t, still, held = start, 1, s.index
        paused = s.row.paused > from and s.row.paused or 0
      end
    end

    k = k % size + 1
  end
  return t, held, paused
end
