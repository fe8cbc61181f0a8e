package ledger

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// MaxBytes bounds the binary form of a row, whatever its limit and however many wait.
	MaxBytes = 4096

	// These are the first bytes of a row's binary form. Another form has another one. A row with
	// which no share waits is as rows were before there were shares.
	version       = 1
	versionShares = 2
	versionAsked  = 2 // is added where nodes are asked, or have a guard: see Pass
)

// ErrCorrupt says that bytes are no row.
var ErrCorrupt = errors.New("ledger: not a row")

// A TooManyNodesError says that more nodes hold slots of one budget than a row can name.
type TooManyNodesError struct{ Nodes int }

func (e *TooManyNodesError) Error() string {
	return fmt.Sprintf("ledger: %d nodes hold slots of one budget, more than a row can name", e.Nodes)
}

// numbers are those of the row's head that are at least 0 and no times.
func (r *Row) numbers() [8]*int64 {
	return [...]*int64{
		&r.span, &r.most, &r.last.length, &r.last.probe, &r.last.times, &r.level, &r.ceiling.window, &r.lifts,
	}
}

// MarshalBinary returns the row in at most [MaxBytes]. Waiters for which there is no room
// are counted, and not listed: see [Row.Lists].
func (r *Row) MarshalBinary() ([]byte, error) {
	if r.queue == nil && r.slots == nil {
		return r.append(nil), nil // always small enough: see bound
	}
	for places := maxPlaces; ; places /= 2 {
		short := r.shortened(places)
		if b := short.append(nil); len(b) <= MaxBytes {
			return b, nil
		} else if places == 0 {
			return nil, &TooManyNodesError{len(short.leases)}
		}
	}
}

// shortened returns a copy of the row that lists so many places of each line, and the
// leases that are of any use.
func (r *Row) shortened(places int) *Row {
	c := r.Clone()
	used := make(map[int64]bool)
	use := func(p place) { used[p.node] = true }
	if c.queue != nil {
		c.queue.shorten(places)
		for _, c := range c.queue.lanes {
			for i := range c {
				for _, p := range c[i].places {
					use(p)
				}
			}
		}
		for _, p := range c.queue.called {
			use(p)
		}
	}
	if c.slots != nil {
		c.slots.shorten(min(places, maxSlotPlaces))
		for _, w := range c.slots.line {
			use(w.place)
		}
	}
	c.leases = slices.DeleteFunc(c.leases, func(l lease) bool { return l.held == 0 && !used[l.node] })
	return c
}

func (r *Row) append(b []byte) []byte {
	w := writer{b: append(b, version), shares: r.queue.hasShares(), asked: r.isAsked()}
	if w.shares {
		w.b[len(b)] = versionShares
	}
	if w.asked {
		w.b[len(b)] += versionAsked
	}
	w.number(r.seen)
	for _, x := range r.numbers() {
		w.number(*x)
	}
	w.signed(r.unit)
	w.float(r.ceiling.top)
	for _, t := range r.times() {
		w.time(*t, r.seen)
	}
	w.time(r.frozen, r.seen)
	w.number(int64(len(r.entries)))
	last := r.seen
	for _, e := range r.entries {
		w.signed(e.first - last)
		w.number(e.last - e.first)
		w.number(e.n)
		last = e.last
	}
	w.number(int64(len(r.leases)))
	for _, l := range r.leases {
		w.signed(l.node)
		w.signed(l.until - r.seen)
		w.number(l.held)
		if w.asked {
			w.time(l.asked, r.seen)
		}
	}
	w.queue(r)
	w.slots(r)
	return w.b
}

// isAsked reports whether nodes are asked to come, or have a guard. In a row in which nobody waits that means nothing.
func (r *Row) isAsked() bool {
	if r.queue == nil && r.slots == nil {
		return false
	}
	return r.queue != nil && r.queue.guard != 0 || slices.ContainsFunc(r.leases, func(l lease) bool { return l.asked != 0 })
}

// queue writes the line for starts, if there is one.
func (w *writer) queue(r *Row) {
	l := r.queue
	if w.flag(l != nil); l == nil {
		return
	}
	w.signed(l.began - r.seen)
	w.signed(l.asked - r.seen)
	if w.asked {
		w.signed(l.guard)
		w.time(l.until, r.seen)
	}
	w.places(r, l.called)
	for _, c := range l.lanes {
		if !w.shares {
			w.number(c.beyond())
			w.places(r, c.places())
			continue
		}
		w.number(int64(len(c)))
		for i := range c {
			w.number(int64(c[i].share))
			w.number(c[i].weight)
			w.number(c[i].lead)
			w.number(c[i].served)
			w.number(c[i].beyond)
			w.places(r, c[i].places)
		}
	}
}

func (w *writer) places(r *Row, all []place) {
	w.number(int64(len(all)))
	last := r.seen
	for _, p := range all {
		if w.place(r, p, last); w.shares {
			w.flag(p.front)
		}
		last = p.arrival
	}
}

// place writes a place behind one that came at last. An arrival may be far before all
// times: the difference wraps around, and so does the sum when it is read.
func (w *writer) place(r *Row, p place, last int64) {
	w.signed(p.arrival - last)
	w.number(p.cost)
	w.number(int64(1 + slices.IndexFunc(r.leases, func(l lease) bool { return l.node == p.node })))
}

// slots writes what is in flight, and the line for it.
func (w *writer) slots(r *Row) {
	s := r.slots
	if w.flag(s != nil); s == nil {
		return
	}
	w.number(s.held)
	w.number(s.beyond)
	w.signed(s.asked - r.seen)
	w.number(int64(len(s.line)))
	last := r.seen
	for _, p := range s.line {
		w.place(r, p.place, last)
		w.signed(p.room)
		w.number(p.whole)
		w.flag(p.called)
		last = p.arrival
	}
}
