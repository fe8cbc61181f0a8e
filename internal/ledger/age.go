package ledger

// Time passes over a row: what is forgotten, what stays, and what happens when
// the clock steps back. advance, at the end, is how all of it begins.

// marked bounds for how far ahead marks from before a step are told from marks
// after it, in microseconds. Few queues of a short limit are longer, and a larger
// bound would keep more places taken.
const marked = 10_000_000

// Stall is the largest small step of a clock, in microseconds: as large as the
// delays among which larger steps are found out.
const Stall = 50_000

// pinUntil keeps the places of all that was booked before now taken, also when
// they are cancelled: up to the last start, or a mark that is later by a time.
func (r *Row) pinUntil(later int64) {
	if k := len(r.entries); k > 0 {
		r.frozen = max(r.frozen, r.entries[k-1].last+later)
	}
}

// widenPending widens the entries to come so that they begin now.
func (r *Row) widenPending(now int64) {
	k := len(r.entries) - 1
	if k < 0 || r.entries[k].last <= now {
		return
	}
	for k > 0 && (r.entries[k-1].last > now || r.entries[k-1].first >= now) { // no two entries begin together
		r.join(k - 1)
		k--
	}
	r.entries[k].first = min(r.entries[k].first, now)
}

// carryOver makes one entry, up to now, of all entries that are over except the
// first few. The upstream's window that has counted them may still last,
// although it is over by the clock that was set.
func (r *Row) carryOver(now int64, few int) {
	last := r.after(now) - 1
	if last < few {
		return
	}
	for i := last; i > few; i-- {
		r.join(i - 1)
	}
	r.entries[few].last = now
}

// step moves the row to a clock that shows less than before, as if no time had
// passed since. Entries to come are widened to begin now: their callers have
// slept for an unknown time. The upstream's windows stay where they are, so
// after a small step back the entries of the present window, and entries to
// come, still reach to where they were. Otherwise starts at the edge of a window
// would count in the window before it alone.
func (r *Row) step(now int64, u *rule) {
	shift, few, reach := now-r.seen, 0, len(r.entries)

	// In a fixed window, entries before few are in windows that are over.
	if u.aligned {
		start, _, _ := u.window(r.seen)
		few = r.after(start)
	}

	// The upstream's window goes on, so entries of the present window reach as far as before.
	if u.aligned && -shift <= Stall {
		reach = few
	}

	for i := range r.entries {
		e := &r.entries[i]
		e.first += shift
		if i < reach {
			e.last += shift
		}
	}

	for _, t := range r.times() {
		if *t != 0 {
			*t += shift
		}
	}

	// A lease lasts as long as before, so its end moves with the clock.
	for i := range r.leases {
		r.leases[i].until += shift
		if r.leases[i].asked != 0 {
			r.leases[i].asked += shift
		}
		r.leases[i].comes = 0 // a start of the node, at which it comes, does not move with the clock
	}

	if l := r.queue; l != nil {
		l.asked += shift
		if l.until != 0 {
			l.until += shift
		}
	}

	if s := r.slots; s != nil {
		s.asked += shift
	}

	// Marks are times of the clock by which they were booked: older marks may
	// point to starts of other callers, however late they come.
	r.pinUntil(min(-shift, max(r.span, marked)))

	if u.aligned {
		r.carryOver(now, few)
	}

	r.widenPending(now)
}

// atMost returns an upper bound on the starts in a length of time: the sum of
// the bounds of the spans that cover it. Beyond maxCount it makes no difference.
func (r *Row) atMost(length int64) int64 {
	spans := (length + r.span - 1) / r.span
	if spans > maxCount/max(r.most, 1) {
		return maxCount
	}
	return spans * r.most
}

// isBlank reports whether the row neither has nor has forgotten a start that a
// limit counts.
func (r *Row) isBlank() bool { return r.most == 0 || len(r.entries) == 0 && r.lost == 0 }

// remember makes the row complete for as long back as the rule needs. History
// that is missing is replaced by an upper bound on its starts, at the latest
// moment at which they can have been.
func (r *Row) remember(now int64, u *rule) {
	if u.slots {
		return // slots have no past
	}
	if u.tokens > 0 {
		r.recount(u)
	}

	since, _, keep := u.window(now)
	if missing := r.lost - since + 1; missing > 0 {
		if n := r.atMost(missing); n > 0 {
			r.add(r.lost, r.lost, n)
			r.bound()
		}
		r.lost, r.level = since-1, 0
	}

	if u.unit > 0 && keep != r.span && r.span > 0 {
		r.pinUntil(0) // blocks of a different unit cannot be told apart
	}

	// The span and the bound of an older limit count until no entry needs them.
	if now >= r.until || r.isBlank() {
		r.span, r.most = keep, u.peak
	} else if keep > r.span {
		r.span, r.most = keep, max(r.atMost(keep), u.peak)
	} else {
		r.most = max(r.most, u.peak)
	}

	if keep == r.span {
		r.until = max(r.until, now+keep)
	}
}

// isOver reports whether no start to come can share an interval with an entry,
// and none has to stay behind it.
func (r *Row) isOver(e *entry, now int64) bool {
	return e.last+r.span <= now && (e.last < r.paused || now >= r.paused+r.last.probe)
}

// prune drops the entries that matter to no start to come.
func (r *Row) prune(now int64, u *rule) {
	k := 0
	for k < len(r.entries) && r.isOver(&r.entries[k], now) && r.entries[k].blockEnd(u.unit+u.pad, u.n) <= now {
		r.forget(&r.entries[k], u)
		k++
	}
	if k > 0 {
		r.drop(k)
	}
}

// forgetDead forgets the nodes and waiters that have been silent for too long.
func (r *Row) forgetDead(now int64) {
	r.expireLeases(now)
	if r.queue != nil {
		r.queue.forgetSilent(now)
	}
	if r.slots != nil && now-r.slots.asked > silence {
		r.slots.beyond = 0
	}
}

// advance brings the row to the time now, and makes it fit for the rule. It may
// give the rule the number of the row's note, and lower it to the row's ceiling.
func (r *Row) advance(now int64, u *rule) {
	// The clock was set back: move all times of the row with it.
	if now < r.seen {
		r.step(now, u)
	}

	// The note and the ceiling decide the numbers of the rule, which say for how long the row must remember starts.
	r.obeyNote(now, u)
	r.obey(now, u)
	r.remember(now, u)

	r.seen = now
	r.prune(now, u)
	if r.queue != nil || r.slots != nil || r.leases != nil {
		r.forgetDead(now)
	}
}
