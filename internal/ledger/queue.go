package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// busySpans is for how many windows a line must have had waiters for a limit to be in
// steady use. A job that asks for a little more than one window has no time for a line as old.
const busySpans = 2

// isBusy reports whether the line has had waiters for so long.
func (r *Row) isBusy(span int64) bool {
	return r.queue != nil && r.seen-r.queue.began >= busySpans*span
}

// waiting sums the costs of those in line for a start.
func (r *Row) waiting() (sum int64) {
	if r.queue != nil {
		for _, c := range r.queue.lanes {
			sum += c.costs()
		}
	}
	return sum
}

// lineUp puts a waiter in the row's line, as one that came then, and returns the place
// that is its own, and the share in whose lane it stands.
func (r *Row) lineUp(class int, share store.Share, p place) (place, uint64) {
	if r.queue == nil {
		r.queue = &queue{began: r.seen}
		if slices.Max(r.tails[:]) > r.seen-r.span/4 {
			r.queue.began -= busySpans * r.span // the last one was still there a moment ago
		}
	}
	l := r.queue
	for l.has(p.arrival) { // it gave up a start at the same time as another
		p.arrival++
	}
	at := l.open(class, share)
	at.insert(p)
	l.asked = r.seen
	return p, at.share
}

// mostWeight is the largest of a share.
const mostWeight = 1000

// open returns the lane of a share, and makes one for a share that has none. The weight of a share is what its last caller said. There is no
// limit to the number of lanes: each has waiters, or leads others that have.
func (l *queue) open(class int, share store.Share) *lane {
	c := &l.lanes[class]
	own := c.of(share.ID)
	if own == nil {
		*c = append(*c, lane{share: share.ID})
		own = &(*c)[len(*c)-1]
	}
	own.weight = int64(max(1, min(share.Weight, mostWeight)))

	return own
}

// isCrowded reports whether a share has no lane, and so many others have.
func (l *queue) isCrowded(most, class int, share uint64) bool {
	if l == nil || share == 0 || l.lanes[class].of(share) != nil {
		return false
	}

	lanes := 0
	for _, c := range l.lanes {
		lanes += len(c)
	}
	return lanes >= most
}

// has reports whether a waiter of any class has that arrival.
func (l *queue) has(arrival int64) bool {
	for _, c := range l.lanes {
		for i := range c {
			if _, ok := c[i].find(arrival); ok {
				return true
			}
		}
	}
	return slices.ContainsFunc(l.called, func(p place) bool { return p.arrival == arrival })
}

// before returns the costs of the waiters that go before a caller of a share that came then, and of
// those that were called. Front says that it had its turn.
func (l *queue) before(class int, share uint64, arrival int64, front bool) (sum int64) {
	for _, p := range l.called {
		sum += p.cost
	}
	for _, c := range l.lanes[:class] {
		sum += c.costs()
	}
	return sum + l.lanes[class].before(l.lanes[class].of(share), arrival, front)
}

// head returns the place that is served next.
func (l *queue) head() (p place, ok bool) {
	if _, next := l.first(); next != nil {
		return next.places[0], true
	}
	return place{}, false
}

// first returns the class and the lane of the waiter that is served next; nil if no waiter has a place.
func (l *queue) first() (class int, next *lane) {
	for k, c := range l.lanes {
		if next := c.next(); next != nil {
			return k, next
		}
	}
	return 0, nil
}

// leave takes a place out of the line. Its share may have lost its lane: see Row.shortened.
func (l *queue) leave(class int, share uint64, p place) {
	c := &l.lanes[class]
	own := c.of(share)
	if own == nil {
		own = c.of(commonShare)
	}
	if own != nil {
		own.remove(p)
	}
	*c = c.tidy()
}

// forget takes a node's places out of the line.
func (l *queue) forget(node int64) {
	for k, c := range l.lanes {
		for i := range c {
			c[i].forget(node)
		}
		l.lanes[k] = c.tidy()
	}
	l.called = slices.DeleteFunc(l.called, func(p place) bool { return p.node == node })
}

// forgetSilent forgets the waiters that are only counted, if none of them has asked for
// long.
func (l *queue) forgetSilent(now int64) {
	if now-l.asked <= silence {
		return
	}
	for k, c := range l.lanes {
		for i := range c {
			c[i].costs, c[i].beyond = c[i].costs-c[i].beyond, 0
		}
		l.lanes[k] = c.tidy()
	}
}

// newest is the latest arrival of all.
func (l *queue) newest() (at int64) {
	if l == nil {
		return 0
	}
	for _, c := range l.lanes {
		for i := range c {
			if n := len(c[i].places); n > 0 {
				at = max(at, c[i].places[n-1].arrival)
			}
		}
	}
	return at
}

// clone returns a copy that shares nothing.
func (l *queue) clone() *queue {
	c := *l
	for k := range c.lanes {
		c.lanes[k] = c.lanes[k].clone()
	}
	c.called = slices.Clone(l.called)
	return &c
}

// empty reports whether the line need not be kept.
func (l *queue) empty() bool {
	for _, c := range l.lanes {
		if c.costs() > 0 {
			return false
		}
	}
	return len(l.called) == 0
}

// keepBehind notes a start that its caller waited for in this row. Those of its priority,
// or of a lesser one, that come later keep behind it.
func (r *Row) keepBehind(class int, start int64) {
	r.tails[class] = max(r.tails[class], start)
}

// untail notes that a start was given back: the next one may have its place.
func (r *Row) untail(start int64) {
	for k := range r.tails {
		r.tails[k] = min(r.tails[k], start-1)
	}
	if r.pin == start {
		r.pin = 0
	}
}
