package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A Waiter is what a caller that waits, or waited, for a start remembers of the lines that
// it stood in. It has one arrival for each. It is kept by the store that the caller called,
// in memory: if that store dies, so does its caller. The zero Waiter has been nowhere.
type Waiter struct {
	class    int
	first    int64     // its arrival where it has not been yet, if it has been elsewhere first; 0: the newest
	arrivals []arrival // where it has been
	passed   []Key     // where it had its turn, and has not been booked since
	turn     Key       // where it had its last turn
	stand    *stand    // where it stands; nil: nowhere
	lost     bool      // it had a start, and gave it up: it goes before others' starts
	counted  []Key     // where its turn counts as one of its share
}

// An arrival is when a waiter came to the line of one budget. It is an order and no time.
type arrival struct {
	key Key
	at  int64
}

// A stand is a place in one of the lines.
type stand struct {
	key   Key
	class int
	share uint64 // the lane in which it stands
	place place
}

// inFront is an arrival before all others.
const inFront = -1 << 62

// Clone returns a copy, for a step that may fail.
func (w *Waiter) Clone() Waiter {
	c := *w
	c.arrivals, c.passed, c.counted = slices.Clone(w.arrivals), slices.Clone(w.passed), slices.Clone(w.counted)
	return c
}

// Line returns the budget in whose line the waiter stands, and the arrival that names its
// place.
func (w *Waiter) Line() (key Key, arrival int64, ok bool) {
	if w.stand == nil {
		return Key{}, 0, false
	}
	return w.stand.key, w.stand.place.arrival, true
}

// isCalled reports whether the waiter has had its turn, and is to come.
func (w *Waiter) isCalled() bool { return len(w.passed) > 0 && w.stand == nil }

// Keeps reports whether rows know of the waiter.
func (w *Waiter) Keeps() bool { return w.stand != nil || w.passed != nil || w.counted != nil }

// front reports whether the waiter goes before those in a row's line that had no turn yet.
func (w *Waiter) front(key Key) bool { return w.lost || slices.Contains(w.counted, key) }

// Come notes that the caller asks with b. It still stands where it stood.
func (w *Waiter) Come(b *store.Booking) {
	called := w.isCalled()
	if w.stand != nil {
		w.turn = w.stand.key // it comes before its turn, and must not pass those that had theirs
	} else if b.Returns && !called {
		w.lost = true
	}
	w.class = class(b.Priority)
	switch {
	case !b.Returns || w.first != 0 || called:
	case len(w.arrivals) > 0:
		w.first = w.oldest()
	default:
		w.first = inFront + b.Instead.Start
	}
}

// arrival returns when the waiter came to the line of a budget.
func (w *Waiter) arrival(key Key) (at int64, known bool) {
	for i := range w.arrivals {
		if w.arrivals[i].key == key {
			return w.arrivals[i].at, true
		}
	}
	return w.first, w.first != 0
}

// came notes the waiter's arrival.
func (w *Waiter) came(key Key, at int64) {
	i := slices.IndexFunc(w.arrivals, func(a arrival) bool { return a.key == key })
	if i < 0 {
		i = len(w.arrivals)
		w.arrivals = append(w.arrivals, arrival{})
	}
	w.arrivals[i] = arrival{key, at}
}

// pass notes that the waiter had its turn in a row.
func (w *Waiter) pass(key Key) {
	if w.turn = key; !slices.Contains(w.passed, key) {
		w.passed = append(w.passed, key)
	}
}

// oldest is when the waiter came to its first line.
func (w *Waiter) oldest() int64 {
	oldest := w.arrivals[0].at
	for _, a := range w.arrivals {
		oldest = min(oldest, a.at)
	}
	return oldest
}
