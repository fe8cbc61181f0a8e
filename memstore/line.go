package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// classes is how many priorities there are.
const classes = 3

// class returns the index of a priority; 0 goes first.
func class(p throttle.Priority) int {
	return int(throttle.High - max(throttle.Low, min(p, throttle.High)))
}

// A line is the callers that wait for a start in one budget: see docs/line.md. It is
// changed under the lock of the store's lines and that of the row's shard, and read
// under either.
type line struct {
	queues [classes][]*waiter // each by arrival
	costs  [classes]int64     // of each queue
	called *waiter            // who had its turn, and comes for what is in flight too; nil: nobody
	timer  *time.Timer        // serves the line
	began  int64              // when there was nobody before it
}

// A waiter is a caller that waits, or waited, for a start. It has one arrival for
// each line that held it.
type waiter struct {
	booking  throttle.Booking
	class    int
	first    int64     // its arrival where it has not been yet, if it has been elsewhere first; 0: the newest
	arrivals []arrival // where it has been
	passed   []*row    // where it had its turn, and has not been booked since
	turn     *row      // where it had its last turn
	row      *row      // where it stands; nil: nowhere
	ends     int64     // when its patience is over
	lost     bool      // it had a start, and gave it up: it goes before others' starts
	ready    chan struct{}
	grant    throttle.Grant // what was booked for it, if that is OK
}

// An arrival is when a waiter came to the line of one budget. It is an order and no
// time.
type arrival struct {
	key [16]byte
	at  int64
}

// inFront is an arrival before all others.
const inFront = -1 << 62

// arrival returns when the waiter came to the line of a budget.
func (w *waiter) arrival(key [16]byte) (at int64, known bool) {
	for i := range w.arrivals {
		if w.arrivals[i].key == key {
			return w.arrivals[i].at, true
		}
	}
	return w.first, w.first != 0
}

// came notes the waiter's arrival.
func (w *waiter) came(key [16]byte, at int64) {
	if !slices.ContainsFunc(w.arrivals, func(a arrival) bool { return a.key == key }) {
		w.arrivals = append(w.arrivals, arrival{key, at})
	}
}

// cost is what the waiter costs a row.
func (w *waiter) cost(r *row) int64 {
	for i := range w.booking.Charges {
		if c := &w.booking.Charges[i]; c.Budget.Key == r.key {
			if c.Limit.Kind() == throttle.KindUnlimited {
				return 1
			}
			return int64(c.Cost)
		}
	}
	return 0
}

// ahead returns the costs of those in line who go before a caller of a priority that
// came then.
func (l *line) ahead(class int, key [16]byte, at int64) (sum int64) {
	for k := range class {
		sum += l.costs[k]
	}
	q := l.queues[class]
	if n := len(q); n == 0 || l.at(q[n-1], key) < at {
		return sum + l.costs[class]
	}
	for _, w := range q {
		if l.at(w, key) >= at {
			break
		}
		sum += w.cost(w.row)
	}
	return sum
}

// at is when one who stands in the line came.
func (l *line) at(w *waiter, key [16]byte) int64 {
	at, _ := w.arrival(key)
	return at
}

// find returns the place of an arrival in a queue.
func (l *line) find(class int, key [16]byte, at int64) (int, bool) {
	return slices.BinarySearchFunc(l.queues[class], at, func(w *waiter, at int64) int { return cmp.Compare(l.at(w, key), at) })
}

// head returns who is served next; nil if nobody waits.
func (l *line) head() *waiter {
	for k := range l.queues {
		if len(l.queues[k]) > 0 {
			return l.queues[k][0]
		}
	}
	return nil
}

// empty reports whether the line need not be kept.
func (l *line) empty() bool { return l.head() == nil && l.called == nil }

// enqueue puts a waiter in the row's line.
func (r *row) enqueue(w *waiter, at int64) {
	if r.line == nil {
		r.line = &line{began: r.seen}
		if slices.Max(r.tails[:]) > r.seen-r.span/4 {
			r.line.began -= busySpans * r.span // the last one was still there a moment ago
		}
	}
	l := r.line
	i, _ := l.find(w.class, r.key, at+1) // behind those who came at the same time
	l.queues[w.class] = slices.Insert(l.queues[w.class], i, w)
	w.row = r
	l.costs[w.class] += w.cost(r)
}

// busySpans is for how many windows somebody must have been in line for a limit to be in
// steady use. A job that asks for a little more than one window has no time for a line as old.
const busySpans = 2

// isBusy reports whether somebody was always in line.
func (r *row) isBusy(span int64) bool {
	return r.line != nil && r.seen-r.line.began >= busySpans*span
}

// leave takes a waiter out of the line that it stands in.
func (w *waiter) leave() {
	r := w.row
	if r == nil {
		return
	}
	at, _ := w.arrival(r.key)
	i, _ := r.line.find(w.class, r.key, at)
	i += slices.Index(r.line.queues[w.class][i:], w)
	r.line.costs[w.class] -= w.cost(r)
	r.line.queues[w.class] = slices.Delete(r.line.queues[w.class], i, i+1)
	w.row = nil
}

// pass notes that the waiter had its turn in a row.
func (w *waiter) pass(r *row) {
	if w.turn = r; !slices.Contains(w.passed, r) {
		w.passed = append(w.passed, r)
	}
}

// oldest is when the waiter came to its first line.
func (w *waiter) oldest() int64 {
	oldest := w.arrivals[0].at
	for _, a := range w.arrivals {
		oldest = min(oldest, a.at)
	}
	return oldest
}

// arrive ends a call: the waiter has come, or gives up.
func (w *waiter) arrive() {
	for _, r := range w.passed {
		if r.line != nil && r.line.called == w {
			r.line.called = nil
		}
	}
}

// settle ends what is kept for a waiter: it is booked, or gives up.
func (w *waiter) settle() {
	w.arrive()
	w.passed = nil
}

// keepBehind notes a start that its caller waited for in this row. Those of its priority,
// or of a lesser one, that come later keep behind it.
func (r *row) keepBehind(class int, start int64) {
	r.tails[class] = max(r.tails[class], start)
}

// untail notes that a start was given back: the next one may have its place.
func (r *row) untail(start int64) {
	for k := range r.tails {
		r.tails[k] = min(r.tails[k], start-1)
	}
	if r.pin == start {
		r.pin = 0
	}
}

// pin notes a start that several budgets have beyond the horizon.
func pin(searches []search, start int64) {
	for i := range searches {
		if !searches[i].open {
			searches[i].row.pin = start
		}
	}
}

// behind makes a search keep behind the starts that others waited for.
func (s *search) behind(b *throttle.Booking) {
	if b.Horizon <= 0 {
		return
	}
	for _, start := range s.row.tails[:class(b.Priority)+1] {
		s.tail = max(s.tail, start)
	}
}
