package ledger

import (
	"cmp"
	"slices"
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
		for _, cost := range r.queue.costs {
			sum += cost
		}
	}
	return sum
}

// lineUp puts a waiter in the row's line, as one that came then, and returns the place
// that is its own.
func (r *Row) lineUp(class int, p place) place {
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
	i, _ := l.find(class, p.arrival)
	l.places[class] = slices.Insert(l.places[class], i, p)
	l.costs[class] += p.cost
	l.asked = r.seen
	return p
}

// find returns the place of an arrival in a queue.
func (l *queue) find(class int, arrival int64) (int, bool) {
	return slices.BinarySearchFunc(l.places[class], arrival, func(p place, a int64) int { return cmp.Compare(p.arrival, a) })
}

// has reports whether a waiter of any class has that arrival.
func (l *queue) has(arrival int64) bool {
	for k := range l.places {
		if _, ok := l.find(k, arrival); ok {
			return true
		}
	}
	return slices.ContainsFunc(l.called, func(p place) bool { return p.arrival == arrival })
}

// before returns the costs of the waiters that go before a caller of a class that comes now,
// and of those that were called.
func (l *queue) before(class int) (sum int64) {
	for _, cost := range l.costs[:class+1] {
		sum += cost
	}
	for _, p := range l.called {
		sum += p.cost
	}
	return sum
}

// ahead is before for a caller that came then. Waiters that are only counted are taken to have
// come later than all that had a place.
func (l *queue) ahead(class int, arrival int64) int64 {
	sum := l.before(class) - l.beyond[class]
	for _, p := range slices.Backward(l.places[class]) {
		if p.arrival < arrival {
			break
		}
		sum -= p.cost
	}
	return sum
}

// head returns the place that is served next.
func (l *queue) head() (p place, ok bool) {
	for k := range l.places {
		if len(l.places[k]) > 0 {
			return l.places[k][0], true
		}
	}
	return place{}, false
}

// leave takes a place out of the line. A waiter without one is taken off the count.
func (l *queue) leave(class int, p place) {
	if i, ok := l.find(class, p.arrival); ok {
		l.places[class] = slices.Delete(l.places[class], i, i+1)
	} else {
		p.cost = min(p.cost, l.beyond[class])
		l.beyond[class] -= p.cost
	}
	l.costs[class] -= p.cost
}

// forget takes a node's places out of the line.
func (l *queue) forget(node int64) {
	of := func(p place) bool { return p.node == node }
	for k, q := range l.places {
		for _, p := range q {
			if of(p) {
				l.costs[k] -= p.cost
			}
		}
		l.places[k] = slices.DeleteFunc(q, of)
	}
	l.called = slices.DeleteFunc(l.called, of)
}

// forgetSilent forgets the waiters that are only counted, if none of them has asked for
// long.
func (l *queue) forgetSilent(now int64) {
	if now-l.asked <= silence {
		return
	}
	for k := range l.beyond {
		l.costs[k] -= l.beyond[k]
		l.beyond[k] = 0
	}
}

// newest is the latest arrival of all.
func (l *queue) newest() (at int64) {
	if l == nil {
		return 0
	}
	for _, q := range l.places {
		if len(q) > 0 {
			at = max(at, q[len(q)-1].arrival)
		}
	}
	return at
}

// empty reports whether the line need not be kept.
func (l *queue) empty() bool {
	return l.costs == [classes]int64{} && len(l.called) == 0
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
