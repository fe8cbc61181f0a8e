package fleet

import (
	"reflect"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// waits are the callers of the program that stand in line.
type waits struct {
	mu  sync.Mutex
	all map[any]waiter // by what the store calls them: see waiterID
}

// A waiter is a caller in line.
type waiter struct {
	key   [16]byte  // of the budget that holds the caller
	since time.Time // when it stood in a line first
}

// A placeID names a caller in a line for slots.
type placeID struct {
	node  bool
	place int64
}

// waiterID returns by what a caller in line is known again: its place in a line for slots, or its turn. It returns nil for
// a caller that stands in no line.
func waiterID(h store.Handle, t store.Turn) any {
	switch {
	case h.Node != nil && h.Node.Place != 0:
		return placeID{true, h.Node.Place}
	case h.Place != 0:
		return placeID{false, h.Place}
	case t == nil || !reflect.ValueOf(t).Comparable():
		return nil
	}
	return t
}

// end notes that a caller stands in line no more.
func (w *waits) end(id any) (was waiter, ok bool) {
	if id == nil {
		return was, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok = w.all[id]
	delete(w.all, id)
	return was, ok
}

// begin notes that a caller stands in line.
func (w *waits) begin(id any, who waiter) {
	if id == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[any]waiter)
	}
	w.all[id] = who
}

// A waitSum is what a report says of the callers that wait for one budget.
type waitSum struct {
	callers int
	oldest  time.Time
}

// sums returns what a report says of all callers in line, by the hashed keys of the budgets that hold them.
func (w *waits) sums() map[[16]byte]waitSum {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[[16]byte]waitSum)
	for _, who := range w.all {
		s := all[who.key]
		s.callers++
		if s.oldest.IsZero() || who.since.Before(s.oldest) {
			s.oldest = who.since
		}
		all[who.key] = s
	}
	return all
}

// lately counts what happened in the last minute, in spans of ten seconds. The zero lately has counted nothing.
type lately struct {
	last  int64 // the span that was counted in last
	spans [6]int
}

const latelySpan = 10 * time.Second

// origin is what spans are counted from.
var origin = time.Now()

// add counts one more.
func (l *lately) add(now time.Time) {
	l.forget(now)
	l.spans[l.last%int64(len(l.spans))]++
}

// sum returns the count of the last minute.
func (l *lately) sum(now time.Time) (sum int) {
	l.forget(now)
	for _, n := range l.spans {
		sum += n
	}
	return sum
}

// forget takes out what is older than a minute.
func (l *lately) forget(now time.Time) {
	span := int64(now.Sub(origin) / latelySpan)
	for l.last < span {
		l.last = max(l.last+1, span-int64(len(l.spans))+1)
		l.spans[l.last%int64(len(l.spans))] = 0
	}
}
