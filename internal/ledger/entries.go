package ledger

import "slices"

const (
	// MaxEntries and EntryBytes, of the form in Redis, bound a row, whatever the limit and the queue. With the head of
	// that form they take no more than 4 KB there; beside a line of waiters a row has less. A row of fewEntries
	// always fits.
	MaxEntries = 224
	EntryBytes = 3204
	fewEntries = EntryBytes / tripleBytes

	// tripleBytes is the most that an entry takes.
	tripleBytes = 27

	// maxCount is the largest N of a limit, and so enough to fill any window.
	maxCount = 1 << 40
)

// end is when the units of a block are over: at the earliest when as many as one
// start can have, most, had their time, even if they were booked closer together.
func (e *entry) end(unit, most int64) int64 {
	return max(e.last+unit, e.first+min(e.n, most)*unit)
}

// overfull reports whether a block has more units than time for them, so that
// taking one out frees nothing.
func (e *entry) overfull(unit int64) bool {
	return e.n-1 > (e.last-e.first)/unit // the product of both could be too large
}

// add counts n starts in [first, last], joining what they overlap.
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

// push counts n starts in [first, last], the first of which is not before the last entry
// begins. They share that one if it begins at shares or later.
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

// one returns the index of the entry that has the start at t; false if there is none. A start
// that may be in several has them joined.
func (r *Row) one(t int64) (int, bool) {
	i := r.after(t)
	if i == len(r.entries) || r.entries[i].first > t {
		return 0, false
	}
	for i+1 < len(r.entries) && r.entries[i+1].first <= t {
		r.join(i)
	}
	return i, true
}

// after returns the index of the first entry that does not lie wholly before t.
func (r *Row) after(t int64) int {
	i := len(r.entries)
	for i > 0 && r.entries[i-1].last >= t {
		i--
	}
	return i
}

// join makes one entry of i and i+1.
func (r *Row) join(i int) {
	r.entries[i].last = r.entries[i+1].last
	r.entries[i].n += r.entries[i+1].n
	r.entries = slices.Delete(r.entries, i+1, i+2)
}

// packed is how many bytes a number takes in Redis, at the most.
func packed(x int64) int {
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

// isSmall reports whether the row fits its bounds.
func (r *Row) isSmall() bool {
	e := r.entries
	k := len(e)
	if k <= fewEntries || k > MaxEntries {
		return k <= fewEntries
	}
	if 3*k*packed(max(2*(e[k-1].last-e[0].first), r.total)) <= EntryBytes {
		return true // even if each of its numbers were the largest
	}
	bytes, last := 0, e[0].first
	for i := range e {
		bytes += packed(e[i].first-last) + packed(e[i].last-e[i].first) + packed(e[i].n)
		last = e[i].last
	}
	return bytes <= EntryBytes
}

// bound joins the closest neighbours until the row is small enough, those
// before tail first: the next booking is decided by what comes after it. What
// has started is never joined with what has not, which may yet be cancelled.
func (r *Row) bound() {
	if r.isSmall() {
		return
	}
	tail := r.entries[len(r.entries)-1].last - r.span
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

// Size returns how many entries the row has, and room for how many.
func (r *Row) Size() (entries, room int) { return len(r.entries), cap(r.entries) }
