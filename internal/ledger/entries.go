package ledger

import "slices"

// The entries of a row: the window of starts that still matter, in few bytes.
// First comes how entries are added, joined, bounded and dropped, then how a
// start is booked in them and taken out again.

const (
	// MaxEntries and EntryBytes bound the entries of a row in its form in Redis,
	// whatever the limit and the queue: with the head of that form they take at
	// most 4 KB there. Beside a line of waiters a row has less. A row of fewEntries
	// always fits.
	MaxEntries = 224
	EntryBytes = 3204
	fewEntries = EntryBytes / tripleBytes

	// tripleBytes is the largest number of bytes that an entry takes.
	tripleBytes = 27

	// maxCount is the largest N of a limit, and so enough to fill any window.
	maxCount = 1 << 40
)

// blockEnd returns when the units of a leaky bucket's entry are over: at the
// earliest when as many of them as one start can have, most, had their time,
// even if they were booked closer together.
func (e *entry) blockEnd(unit, most int64) int64 {
	return max(e.last+unit, e.first+min(e.n, most)*unit)
}

// join makes one entry of i and i+1.
func (r *Row) join(i int) {
	r.entries[i].last = r.entries[i+1].last
	r.entries[i].n += r.entries[i+1].n
	r.entries = slices.Delete(r.entries, i+1, i+2)
}

// after returns the index of the first entry that does not lie wholly before t.
func (r *Row) after(t int64) int {
	i := len(r.entries)
	for i > 0 && r.entries[i-1].last >= t {
		i--
	}
	return i
}

// later returns the costs of all entries that end after t, and the index of the
// first of these.
func (r *Row) later(t int64) (sum int64, i int) {
	sum = r.total
	for i < len(r.entries) && r.entries[i].last <= t {
		sum -= r.entries[i].n
		i++
	}
	return sum, i
}

// push counts n starts in [first, last], where first is not before the begin of
// the last entry. The starts share the last entry if that begins at shares or
// later.
func (r *Row) push(first, last, n, shares int64) {
	r.total += n
	if k := len(r.entries) - 1; k >= 0 {
		e := &r.entries[k]
		last = max(last, e.last)
		if e.first >= shares {
			e.last, e.n = last, e.n+n
			return
		}
	}
	r.entries = append(r.entries, entry{first, last, n})
}

// one returns the index of the entry that has the start at t; found is false if
// there is no such entry. If the start may be in several entries they are
// joined.
func (r *Row) one(t int64) (i int, found bool) {
	i = r.after(t)
	if i == len(r.entries) || r.entries[i].first > t {
		return 0, false
	}
	for i+1 < len(r.entries) && r.entries[i+1].first <= t {
		r.join(i)
	}
	return i, true
}

// add counts n starts in [first, last], and joins the entries that these
// overlap.
func (r *Row) add(first, last, n int64) {
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

// packed returns an upper bound on the bytes that a number takes in Redis, where
// rows are in MessagePack.
func packed(x int64) int {
	// A bit is for the sign. One byte holds negative numbers down to -32 alone, so count two at least.
	if x < 0 {
		x = max(1<<7, -2*x)
	}
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

// isSmall reports whether the entries fit their bounds.
func (r *Row) isSmall() bool {
	e := r.entries
	k := len(e)
	if k <= fewEntries || k > MaxEntries {
		return k <= fewEntries
	}
	if 3*k*packed(max(2*(e[k-1].last-e[0].first), r.total)) <= EntryBytes {
		return true // even if each of its numbers were the largest
	}

	// The quick bound was too high, so sum the numbers' own sizes.
	bytes, last := 0, e[0].first
	for i := range e {
		bytes += packed(e[i].first-last) + packed(e[i].last-e[i].first) + packed(e[i].n)
		last = e[i].last
	}
	return bytes <= EntryBytes
}

// bound joins the closest neighbours until the entries are small enough. It
// begins with entries that are more than a span before the last one, because the
// next booking is decided by the entries behind these. A start that has come is
// never joined with a start to come, which may yet be cancelled.
func (r *Row) bound() {
	if r.isSmall() {
		return
	}

	tail := r.entries[len(r.entries)-1].last - r.span
	for !r.isSmall() {
		// Any pair before the tail is better than a pair in it. Otherwise the narrowest pair is best: joined, it closes the least room.
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

// drop takes the first k entries out of the row.
func (r *Row) drop(k int) {
	for _, e := range r.entries[:k] {
		r.total -= e.n
	}
	r.entries = slices.Delete(r.entries, 0, k)
}

// widen returns [first, last], the interval of a new start, widened to touch a
// neighbour in the same part of the window, [start, end): then both become one
// entry. The neighbours are the entries i-1 and i. A start that begins within an
// entry shares that entry as it is.
func (r *Row) widen(i int, first, last, start, end int64) (int64, int64) {
	if i < len(r.entries) && r.entries[i].first <= first {
		return first, last
	}
	if i > 0 && r.entries[i-1].first >= start {
		first = r.entries[i-1].last
	}
	if i < len(r.entries) && r.entries[i].last < end && r.entries[i].first > last {
		last = r.entries[i].first
	}
	return first, last
}

// fuse returns [first, last], the units of a start of a leaky bucket, widened to
// touch the blocks to which there is no gap: they become one entry.
func (r *Row) fuse(first, last, unit int64) (int64, int64) {
	if i := r.after(first); i > 0 && r.entries[i-1].last == first-unit {
		first -= unit
	}
	if k := r.after(last + 1); k < len(r.entries) && r.entries[k].first == last+unit {
		last += unit
	}
	return first, last
}

// bookProbe counts a start of an unlimited budget, if the start goes first after
// a penalty. No row counts any other start of an unlimited budget.
func (r *Row) bookProbe(t int64, u *rule) {
	if t < r.paused+r.last.probe && t+u.length() >= r.paused {
		r.add(t, t+u.length(), 1)
		r.bound()
	}
}

// book counts the cost of a start at t, in an entry of its own or in an entry
// that the start shares with others.
func (r *Row) book(t int64, u *rule) {
	i := r.after(t)
	first, last := t, t+u.length()

	// Units of a leaky bucket without a gap between them are one block.
	if u.unit > 0 {
		first, last = r.fuse(first, last, u.unit)
	} else if u.aligned {
		_, _, keep := u.window(t)
		r.span = max(r.span, keep) // months and days differ in length
	}

	// Under a large limit the starts of one part of the window share an entry.
	shares, end := t, t
	if u.n > windowParts {
		shares, end = u.part(t)
	}

	switch k := len(r.entries); {
	case u.unit > 0:
		r.add(first, last, u.cost)

	// Most starts are behind all others.
	case k == 0 || r.entries[k-1].first <= t:
		r.push(first, last, u.cost, shares)
	default:
		first, last = r.widen(i, first, last, shares, end)
		r.add(first, last, u.cost)
	}

	r.until = max(r.until, last+r.span)
	r.bound()
}

// overfull reports whether a block has more units than time for them, so that
// taking a unit out frees nothing.
func (e *entry) overfull(unit int64) bool {
	return e.n-1 > (e.last-e.first)/unit // the product of both could overflow
}

// split puts back the rest of a block from which the booking at t was taken out:
// up to two halves, each with at most as many units as it has time for. How many
// exactly only matters to a limit of a different kind.
func (r *Row) split(e entry, rest, t int64, u *rule) {
	end := t + u.length() + u.unit
	if e.first < t {
		r.add(e.first, max(e.first, t-u.unit), max(1, min(rest, (t-e.first)/u.unit)))
	}
	if e.last >= end {
		r.add(end, e.last, max(1, min(rest, (e.last-end)/u.unit+1)))
	}
}

// remove takes the booking at t out again, and reports whether it could. A
// booking that may have been forgotten stays: an entry that overlaps it may hold
// only starts of other callers.
func (r *Row) remove(t int64, u *rule) bool {
	if t <= r.frozen || t+u.length() <= r.lost {
		return false
	}

	i, found := r.one(t)
	if !found {
		return false
	}

	e := r.entries[i]
	rest := max(0, e.n-u.cost)

	// The entry keeps its width if starts remain that can be anywhere in it.
	if rest > 0 && (u.unit == 0 || e.overfull(u.unit)) {
		r.entries[i].n = rest
		r.total -= u.cost
		return true
	}

	r.entries = slices.Delete(r.entries, i, i+1)
	r.total -= e.n

	// A block of a leaky bucket has the time of each unit, so the start leaves a gap in it.
	if u.unit > 0 {
		r.split(e, rest, t, u)
		r.bound()
	}

	return true
}

// counts reports whether a booking at t still counts.
func (u *rule) counts(t, now int64) bool {
	if !u.aligned {
		t += u.length()
	}
	since, _, _ := u.window(now)
	return t >= since
}
