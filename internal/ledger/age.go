package ledger

// advance brings the row to the time now and makes it fit for the rule.
func (r *Row) advance(now int64, u *rule) {
	if now < r.seen {
		r.stepBack(now, u)
	}
	r.obey(now, u)
	r.remember(now, u)
	r.seen = now
	r.prune(now, u)
	if r.queue != nil || r.slots != nil || r.leases != nil {
		r.forgetDead(now)
	}
}

// forgetDead forgets nodes and waiters that have been silent for too long.
func (r *Row) forgetDead(now int64) {
	r.expireLeases(now)
	if r.queue != nil {
		r.queue.forgetSilent(now)
	}
	if r.slots != nil && now-r.slots.asked > silence {
		r.slots.beyond = 0
	}
}

// remember makes the row complete for as long back as the rule needs. History
// that is not there is replaced by the most that there can have been, at the
// latest moment it can have happened.
func (r *Row) remember(now int64, u *rule) {
	if u.slots {
		return // it has no past
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
		r.pinUntil(0) // blocks of another unit cannot be told apart
	}
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

// isBlank reports whether no start that a limit counts is in the row, or was forgotten.
func (r *Row) isBlank() bool { return r.most == 0 || len(r.entries) == 0 && r.lost == 0 }

// atMost is the most that a length of time can have held: what each of the spans
// that cover it can. Beyond maxCount it makes no difference.
func (r *Row) atMost(length int64) int64 {
	spans := (length + r.span - 1) / r.span
	if spans > maxCount/max(r.most, 1) {
		return maxCount
	}
	return spans * r.most
}

// prune drops the entries that matter to no start to come.
func (r *Row) prune(now int64, u *rule) {
	k := 0
	for k < len(r.entries) && r.isOver(&r.entries[k], now) && r.entries[k].end(u.unit+u.pad, u.n) <= now {
		k++
	}
	if k > 0 {
		r.forget(k, u)
	}
}

// marked bounds for how far ahead marks of before a step are told from those after it,
// in microseconds. Few queues of a short limit are longer, and more would keep places taken.
const marked = 10_000_000

// Stall is the largest small step of a clock, in microseconds: as large as the delays
// among which larger steps are found out.
const Stall = 50_000

// stepBack moves the row to a clock that shows less than before, as if no time
// had passed since. Entries still to come are widened to begin now: their
// callers have slept for an unknown while. The upstream's windows stay where they are: after a
// small step back what started in this window, or is to come, reaches to where it was. Else
// starts at the edge of a window would count in the window before that alone.
func (r *Row) stepBack(now int64, u *rule) {
	shift, few, reach := now-r.seen, 0, len(r.entries)
	if u.aligned {
		start, _, _ := u.window(r.seen)
		few = r.after(start)
	}
	if u.aligned && -shift <= Stall {
		reach = few
	}

	for i := range r.entries {
		e := &r.entries[i]
		if e.first += shift; i < reach {
			e.last += shift
		}
	}
	for _, t := range r.times() {
		if *t != 0 {
			*t += shift
		}
	}
	for i := range r.leases {
		r.leases[i].until += shift
		if r.leases[i].asked != 0 {
			r.leases[i].asked += shift
		}
	}
	if l := r.queue; l != nil {
		l.began, l.asked = l.began+shift, l.asked+shift
		if l.until != 0 {
			l.until += shift
		}
	}
	if s := r.slots; s != nil {
		s.asked += shift
	}
	// Marks are times of the clock that they were booked by: those of before may point
	// to starts of others, however late they come.
	r.pinUntil(min(-shift, max(r.span, marked)))

	if u.aligned {
		r.carryOver(now, few)
	}
	r.widenPending(now)
}

// carryOver makes one entry, up to now, of those that are over but for the first few. The window of the upstream that has
// counted them may not be over yet, although it is by the clock that was set.
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

// widenPending has the entries to come begin now.
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

// pinUntil keeps cancelled places taken of all that was booked so far: up to the last
// start, or a mark that is so much later.
func (r *Row) pinUntil(later int64) {
	if k := len(r.entries); k > 0 {
		r.frozen = max(r.frozen, r.entries[k-1].last+later)
	}
}

// IsBefore reports whether the row is as it was before another state of it, if the clock was not set back.
func (r *Row) IsBefore(other *Row) bool { return r.seen < other.seen }
