package memstore

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

const (
	// slots is into how many parts a window is cut when its limit is too
	// large to keep every start by itself.
	slots = 128

	// maxEntries and maxBytes, of the form in Redis, bound a row, whatever the limit
	// and the queue. With the head, and the line of those who wait, so much takes no
	// more than 4 KB there. A row of fewEntries always fits.
	maxEntries = 224
	maxBytes   = 2880
	fewEntries = maxBytes / 27

	// maxCount is the largest N of a limit, and so enough to fill any window.
	maxCount = 1 << 40
)

// An entry says that n starts, costs summed, lie in [first, last].
type entry struct{ first, last, n int64 }

// end is when the units of a block are over: at the earliest when as many as one
// start can have, most, had their time, even if they were booked closer together.
func (e *entry) end(unit, most int64) int64 {
	return max(e.last+unit, e.first+min(e.n, most)*unit)
}

// overfull reports whether a block has more units than time for them, so that
// taking one out frees nothing.
func (e *entry) overfull(unit int64) bool {
	return e.first+e.n*unit > e.last+unit
}

// A row is one budget: see docs/booking.md for what it promises. All times are
// microseconds of the store's clock.
type row struct {
	key     [16]byte
	entries []entry // sorted, disjoint
	total   int64   // the sum of their n

	seen   int64 // the latest time that anybody asked
	lost   int64 // no start later than this was forgotten; 0: none was
	span   int64 // entries are kept for so long
	most   int64 // no span holds more than this
	until  int64 // span and most are needed until then, even if a caller's limit is smaller
	paused int64 // closed until then; kept for the slow start after it
	last   penalty
	frozen int64 // places up to then stay taken when they are cancelled

	level  int64 // Bucket: what was spent of it at lost, in units; see bucket.go
	micros int64 // units of a token in level; negative: other limits added to it; 0: it was no bucket

	ceiling ceiling             // what was learned of the upstream; zero: nothing
	lifts   int64               // how many pauses ended before their time
	line    *line               // those who wait for a start; nil: nobody does
	tails   [classes]int64      // the last start that those of each priority waited for
	pin     int64               // the last start that is, or was, beyond the horizon
	flight  *flight             // InFlight: what runs and who waits; nil: nothing yet
	watches map[*watch]struct{} // who wants to know of pauses; see watch.go
}

// expiry is when nothing in the row can matter any more; while anybody waits or wants
// to hear of pauses, or anything is in flight, not yet.
func (r *row) expiry(now int64) int64 {
	if r.line != nil || len(r.watches) > 0 || r.flight != nil && r.flight.busy() {
		return now
	}
	end := max(r.seen, r.ceiling.forgotten())
	if r.paused > 0 {
		end = max(end, r.paused+max(r.last.probe, r.last.step(), int64(len(steps))*r.span))
	}
	if k := len(r.entries); k > 0 {
		end = max(end, r.entries[k-1].last+r.span)
	}
	return end
}

// advance brings the row to the time now and makes it fit for the rule.
func (r *row) advance(now int64, u *rule) {
	if now < r.seen {
		r.stepBack(now)
	}
	r.obey(now, u)
	r.remember(now, u)
	r.seen = now
	r.prune(now, u)
}

// remember makes the row complete for as long back as the rule needs. History
// that is not there is replaced by the most that there can have been, at the
// latest moment it can have happened.
func (r *row) remember(now int64, u *rule) {
	if u.kind == throttle.KindConcurrency {
		return // it has no past
	}
	back, keep, most := u.span, u.span, u.n
	switch u.kind {
	case throttle.KindFixedWindow:
		start, end := u.window(now)
		back, keep, most = now-start+1, end-start, 2*u.n // its first moment counts
	case throttle.KindLeakyBucket:
		most = 1
	case throttle.KindTokenBucket:
		most = 2 * u.n // a full one, and what flows in
		r.recount(u)
	case throttle.KindUnlimited:
		most = 0 // what starts is not counted
	}
	if missing := r.lost - (now - back); missing > 0 {
		if n := r.atMost(missing); n > 0 {
			r.add(r.lost, r.lost, n)
		}
		r.lost, r.level = now-back, 0
	}
	if u.kind == throttle.KindLeakyBucket && keep != r.span && r.span > 0 {
		r.freeze(0) // blocks of another unit cannot be told apart
	}
	if now >= r.until {
		r.span, r.most = keep, most
	} else if keep > r.span {
		r.span, r.most = keep, max(r.atMost(keep), most)
	} else {
		r.most = max(r.most, most)
	}
	if keep == r.span {
		r.until = max(r.until, now+keep)
	}
}

// atMost is the most that a length of time can have held: what each of the spans
// that cover it can. Beyond maxCount it makes no difference.
func (r *row) atMost(length int64) int64 {
	spans := (length + r.span - 1) / r.span
	if spans > maxCount/max(r.most, 1) {
		return maxCount
	}
	return spans * r.most
}

// prune drops the entries that matter to no start to come.
func (r *row) prune(now int64, u *rule) {
	k := 0
	for k < len(r.entries) && r.isOver(&r.entries[k], now) {
		if u.kind == throttle.KindLeakyBucket && r.entries[k].end(u.span+u.pad, u.n) > now {
			break
		}
		k++
	}
	if k > 0 {
		r.forget(k, u)
	}
}

// marked bounds for how far ahead marks of before a step are told from those after it,
// in microseconds. Few queues of a short limit are longer, and more would keep places taken.
const marked = 10_000_000

// stepBack moves the row to a clock that shows less than before, as if no time
// had passed since. Entries still to come are widened to begin now: their
// callers have slept for an unknown while.
func (r *row) stepBack(now int64) {
	shift := now - r.seen
	for i := range r.entries {
		r.entries[i].first += shift
		r.entries[i].last += shift
	}
	for _, t := range []*int64{&r.lost, &r.until, &r.paused, &r.ceiling.fell} {
		if *t != 0 {
			*t += shift
		}
	}
	// Marks are times of the clock that they were booked by: those of before may point
	// to starts of others, however late they come.
	r.freeze(min(-shift, max(r.span, marked)))
	k := len(r.entries) - 1
	if k < 0 || r.entries[k].last <= now {
		return
	}
	for k > 0 && r.entries[k-1].last >= now {
		r.join(k - 1)
		k--
	}
	r.entries[k].first = min(r.entries[k].first, now)
}

// freeze keeps cancelled places taken of all that was booked so far: up to the last
// start, or a mark that is so much later.
func (r *row) freeze(later int64) {
	if k := len(r.entries); k > 0 {
		r.frozen = max(r.frozen, r.entries[k-1].last+later)
	}
}

// add counts n starts in [first, last], joining what they overlap.
func (r *row) add(first, last, n int64) {
	i := r.after(first)
	r.total += n
	if i == len(r.entries) || r.entries[i].first > last {
		r.entries = slices.Insert(r.entries, i, entry{first, last, n})
		return
	}
	for i+1 < len(r.entries) && r.entries[i+1].first <= last {
		r.join(i)
	}
	e := &r.entries[i]
	e.first, e.last, e.n = min(e.first, first), max(e.last, last), e.n+n
}

// after returns the index of the first entry that does not lie wholly before t.
func (r *row) after(t int64) int {
	i := len(r.entries)
	for i > 0 && r.entries[i-1].last >= t {
		i--
	}
	return i
}

// join makes one entry of i and i+1.
func (r *row) join(i int) {
	r.entries[i].last = r.entries[i+1].last
	r.entries[i].n += r.entries[i+1].n
	r.entries = slices.Delete(r.entries, i+1, i+2)
}

// packed is how many bytes a number takes in Redis.
func packed(x int64) int {
	switch {
	case x < 1<<7:
		return 1
	case x < 1<<8:
		return 2
	case x < 1<<16:
		return 3
	case x < 1<<32:
		return 5
	}
	return 9
}

// isSmall reports whether the row fits its bounds.
func (r *row) isSmall() bool {
	e := r.entries
	k := len(e)
	if k <= fewEntries || k > maxEntries {
		return k <= fewEntries
	}
	if k*(2*packed(e[k-1].last-e[0].first)+packed(r.total)) <= maxBytes {
		return true // even if each of its numbers were the largest
	}
	bytes, last := 0, e[0].first
	for i := range e {
		bytes += packed(e[i].first-last) + packed(e[i].last-e[i].first) + packed(e[i].n)
		last = e[i].last
	}
	return bytes <= maxBytes
}

// bound joins the closest neighbours until the row is small enough, those
// before tail first: the next booking is decided by what comes after it. What
// has started is never joined with what has not, which may yet be cancelled.
func (r *row) bound(tail int64) {
	for !r.isSmall() {
		best, width, inTail := -1, int64(0), true
		for i := range len(r.entries) - 1 {
			e, next := &r.entries[i], &r.entries[i+1]
			w, late := next.last-e.first, next.last > tail
			alike := e.last > r.seen || next.last <= r.seen
			if alike && (best < 0 || (inTail && !late) || (inTail == late && w < width)) {
				best, width, inTail = i, w, late
			}
		}
		r.join(best)
	}
}
