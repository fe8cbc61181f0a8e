package memstore

import (
	"cmp"
	"math"
	"slices"

	"github.com/fleetthrottle/throttle"
)

// A flight is what a budget has in flight, and the line of those who wait for
// room. When there will be room nobody knows, so nobody is told a time: whoever
// is first in line is called when it is there.
type flight struct {
	held  int64     // the costs of what runs
	aside int64     // the costs of those who were called and did not come yet
	line  []*ticket // by arrival
}

// A ticket is a place in line.
type ticket struct {
	arrival int64
	cost    int64
	room    int64         // what may be taken besides the cost and what must stay free
	whole   int64         // what may be taken besides the cost
	ready   chan struct{} // closed when it is called
	called  bool
}

// taken is what nobody else can have.
func (f *flight) taken() int64 { return f.held + f.aside }

// busy reports whether there is anything to remember.
func (f *flight) busy() bool { return f.held > 0 || len(f.line) > 0 }

// admits reports whether there is room for the rule's cost, and nobody in line
// before arrival who waits for it. Those do not who only wait for more to be
// free than their cost: they let others pass.
func (f *flight) admits(u *rule, arrival int64) bool {
	if f.taken() > u.room {
		return false
	}
	for _, w := range f.line {
		if w.arrival >= arrival {
			break
		}
		if !w.called && f.taken() > w.whole {
			return false
		}
	}
	return true
}

// join puts a request in line.
func (f *flight) join(u *rule, arrival int64) *ticket {
	w := &ticket{arrival: arrival, cost: u.cost, room: u.room, whole: u.n - u.cost, ready: make(chan struct{})}
	i, _ := f.find(arrival)
	f.line = slices.Insert(f.line, i, w)
	return w
}

// leave takes a request out of the line, if it is in it, and reports whether it
// was called. What was set aside for it is free again.
func (f *flight) leave(arrival int64) (called bool) {
	i, ok := f.find(arrival)
	if !ok {
		return false
	}
	w := f.line[i]
	f.line = slices.Delete(f.line, i, i+1)
	if w.called {
		f.aside -= w.cost
	}
	return w.called
}

// find returns the place in line of an arrival.
func (f *flight) find(arrival int64) (int, bool) {
	return slices.BinarySearchFunc(f.line, arrival, func(w *ticket, a int64) int { return cmp.Compare(w.arrival, a) })
}

// call sets room aside for those in line, as far as it goes, and tells them.
func (f *flight) call() {
	for _, w := range f.line {
		switch {
		case w.called:
		case f.taken() <= w.room:
			w.called = true
			f.aside += w.cost
			close(w.ready)
		case f.taken() > w.whole:
			return
		}
	}
}

// release ends what runs.
func (s *search) release() {
	if s.rule.kind == throttle.KindConcurrency {
		s.row.flight.held -= s.rule.cost
	}
}

// call is flight.call, where anything is in flight.
func (r *row) call() {
	if r.flight != nil {
		r.flight.call()
	}
}

func isInFlight(c throttle.Charge) bool { return c.Limit.Kind() == throttle.KindConcurrency }

// board reports whether all that is in flight has room for a booking. If not,
// nothing is taken: the booking gets a place in the first line that it must
// stand in, if it can wait.
func (s *Store) board(b *throttle.Booking, searches []search, g *throttle.Grant) bool {
	arrival := int64(math.MaxInt64)
	if b.Instead < 0 {
		arrival = -b.Instead
	}
	for i := range searches {
		q := &searches[i]
		if q.rule.kind != throttle.KindConcurrency || b.Charges[i].Shadow {
			continue
		}
		f := q.row.flight
		if q.called && f.taken() <= q.rule.room || f.admits(&q.rule, arrival) {
			continue
		}
		g.Held = i
		if b.MaxWait != 0 {
			if b.Instead >= 0 {
				arrival = s.arrivals.Add(1)
			}
			g.Ready, g.Mark = f.join(&q.rule, arrival).ready, -arrival
		}
		return false
	}
	return true
}
