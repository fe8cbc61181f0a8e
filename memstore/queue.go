package memstore

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// lines guards the lines of all rows. It is taken before the locks of shards, and only
// where somebody waits.
type lines struct {
	mu       sync.Mutex
	arrivals int64 // how many there were
}

// inLine reports whether somebody waits for one of the budgets. The shards are locked.
func inLine(searches []search) bool {
	for i := range searches {
		if searches[i].row.line != nil {
			return true
		}
	}
	return false
}

// queue is Book for a caller that may have to wait in line, or comes from one.
func (s *Store) queue(b *throttle.Booking) (g throttle.Grant) {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	w, _ := b.Turn.(*waiter)
	if w == nil {
		w = new(waiter)
	}
	if w.grant.OK && s.clock.now()-w.grant.Mark <= punctual && slices.EqualFunc(w.booking.Charges, b.Charges, sameCharge) {
		return s.deliver(w, b)
	}
	called := len(w.passed) > 0 && w.row == nil
	if w.row != nil {
		w.turn = w.row // it comes before its turn, and must not pass those who had theirs
	} else if b.Returns && !called {
		w.lost = true
	}
	left := s.stepOut(w)
	w.booking, w.class = *b, class(b.Priority)
	w.booking.Charges = slices.Clone(b.Charges)
	switch {
	case !b.Returns || w.first != 0 || called:
	case len(w.arrivals) > 0:
		w.first = w.oldest()
	default:
		w.first = inFront + max(b.Instead, 0)
	}
	if w.ends = math.MaxInt64; b.MaxWait >= 0 {
		w.ends = s.clock.now() + micros(b.MaxWait)
	}
	g = s.try(w, nil)
	copyOver(b, &w.booking)
	for _, r := range left {
		s.serve(r)
	}
	if w.row != nil && w.row.line.head() == w {
		s.serve(w.row)
	}
	return g
}

// punctual is by how many microseconds the caller of a start may be late. One that is
// later takes another: its start is nearly as old as it may be, and nobody may believe that
// the store is slow.
const punctual = 5_000

// deliver hands over what was booked for a waiter.
func (s *Store) deliver(w *waiter, b *throttle.Booking) throttle.Grant {
	g, now := w.grant, s.clock.now()
	w.grant = throttle.Grant{}
	g.Wait = time.Duration(max(0, g.Mark-now)) * time.Microsecond
	g.Age = time.Duration(max(0, now-g.Mark)) * time.Microsecond
	copyOver(b, &w.booking)
	return g
}

// copyOver tells a caller what was found out about its shadow charges.
func copyOver(to, from *throttle.Booking) {
	for i := range to.Charges {
		to.Charges[i].Over = from.Charges[i].Over
	}
}

// sameCharge reports whether what was booked for one charge is as good for the other.
func sameCharge(a, b throttle.Charge) bool {
	a.Over, b.Over = 0, 0
	return a == b
}

// stepOut takes a waiter out of its line, and gives back what was booked for it. It
// returns the rows in which there may be room now.
func (s *Store) stepOut(w *waiter) (left []*row) {
	if w.row == nil && !w.grant.OK && w.passed == nil {
		return nil
	}
	held := s.lock(w.booking.Charges)
	defer s.unlock(held)
	if w.row != nil {
		left = append(left, w.row)
	}
	left = append(left, w.passed...)
	w.leave()
	w.settle()
	if w.grant.OK {
		left = append(left, s.giveBack(&w.booking, w.grant.Mark)...)
		w.grant = throttle.Grant{}
	}
	return left
}

// giveBack takes a start, or a place in line for what is in flight, out of all rows. It
// returns those in which somebody waits. The shards are locked.
func (s *Store) giveBack(b *throttle.Booking, mark int64) (left []*row) {
	now := s.clock.now()
	for i := range b.Charges {
		var q search
		s.ready(&q, &b.Charges[i], b.Spread, now)
		q.giveBack(mark)
		if q.row.line != nil {
			left = append(left, q.row)
		}
	}
	return left
}

// try books a start for a waiter that is in no line, or puts it in one. It gives back
// what the booking replaces. If the waiter had its turn in a row just now, that is
// told.
func (s *Store) try(w *waiter, turn *row) (g throttle.Grant) {
	b := &w.booking
	held := s.lock(b.Charges)
	defer s.unlock(held)
	now := s.clock.now()
	if turn != nil {
		w.pass(turn)
	}
	searches := make([]search, len(b.Charges))
	for i := range b.Charges {
		c, q := &b.Charges[i], &searches[i]
		c.Over = 0
		s.ready(q, c, b.Spread, now)
		q.from, q.horizon = now+micros(b.NotBefore), micros(b.Horizon)
		if _, known := w.arrival(q.row.key); !w.lost && (!known || w.turn == q.row) {
			q.behind(b)
		}
		if b.Instead != 0 {
			q.giveBack(b.Instead)
		}
	}
	g.Held = -1
	at, wait := w.hold(searches, now, turn)
	switch patient := b.MaxWait < 0 || wait <= b.MaxWait; {
	case at < 0:
		s.place(b, searches, now, find(b.Charges, searches, now+micros(b.NotBefore), &g), &g)
	case !patient || b.MaxWait == 0:
		g.Held, g.Wait, g.Paused = at, wait, searches[at].row.paused > now
	default:
		r := searches[at].row
		came, known := w.arrival(r.key)
		if !known {
			s.lines.arrivals++
			came = s.lines.arrivals
		}
		w.came(r.key, came)
		r.enqueue(w, came)
		w.ready = make(chan struct{})
		g.Held, g.Wait, g.Paused, g.Ready = at, wait, r.paused > now, w.ready
	}
	g.Turn = w
	if b.Instead < 0 { // its room in flight may be another's
		for i := range searches {
			searches[i].row.call()
		}
	}
	b.Instead = 0
	if w.row == nil && (g.OK || g.Ready == nil) {
		w.settle()
	}
	return g
}

// hold returns the charge whose line the waiter must stand in, below 0 for none, and how
// long it will wait there, as far as one can tell.
//
// A waiter that had its turn in a row, and finds that another is not near any more where
// it had its turn before, might never find both near. So it has the first start that is
// possible in both: one such start at a time in each row.
func (w *waiter) hold(searches []search, now int64, turn *row) (at int, wait time.Duration) {
	at = -1
	near := w.booking.Horizon + w.booking.NotBefore
	for i := range searches {
		c, q := &w.booking.Charges[i], searches[i]
		if c.Shadow || q.rule.kind == throttle.KindConcurrency {
			continue
		}
		sum := int64(0)
		if l := q.row.line; l != nil {
			came, known := w.arrival(q.row.key)
			if !known {
				came = 1 << 62
			}
			sum = l.ahead(w.class, q.row.key, came)
			if l.called != nil {
				sum += l.called.cost(q.row)
			}
		}
		t := q.earliest(q.from)
		if sum > 0 {
			t = max(t, searches[i].turn(sum+q.rule.cost))
		}
		d := time.Duration(t-now) * time.Microsecond
		far := d > near && q.row != turn
		if far && slices.Contains(w.passed, q.row) {
			far = q.row.pin > now+micros(near)
		}
		if (sum > 0 || far) && (at < 0 || d > wait) {
			at, wait = i, d
		}
	}
	return at, wait
}

// serve books for those at the head of a row's line, as far as starts are within their
// horizon, and looks again when the next one is.
func (s *Store) serve(r *row) {
	for r.line != nil {
		w := r.line.head()
		if w == nil {
			s.close(r)
			return
		}
		if r.line.called != nil {
			return // it serves the line when it has come
		}
		if later := s.far(w, r); later > 0 {
			if r.line.timer == nil {
				r.line.timer = time.AfterFunc(later, func() { s.due(r) })
			} else {
				r.line.timer.Reset(later)
			}
			return
		}
		ready := w.ready
		g := s.move(w, r)
		if w.row != nil {
			w.ready = ready // it waits elsewhere, and its caller does not know
			if w.row.line.head() == w {
				defer s.serve(w.row)
			}
			continue
		}
		if w.grant = g; !g.OK {
			w.grant = throttle.Grant{}
		}
		close(ready)
	}
}

// move takes the first waiter out of a row's line and books for it, or lets it stand in
// another. What is in flight it must take by itself.
func (s *Store) move(w *waiter, r *row) (g throttle.Grant) {
	held := s.lock(w.booking.Charges)
	w.leave()
	flies := slices.ContainsFunc(w.booking.Charges, isInFlight)
	if flies {
		w.pass(r)
		r.line.called = w
	}
	s.unlock(held)
	if flies {
		return throttle.Grant{}
	}
	return s.try(w, r)
}

// far returns in how long the first start is within the horizon of the first waiter in a
// row's line; 0 if it is.
func (s *Store) far(w *waiter, r *row) time.Duration {
	held := s.lock(w.booking.Charges)
	defer s.unlock(held)
	now := s.clock.now()
	for i := range w.booking.Charges {
		c := &w.booking.Charges[i]
		if c.Budget.Key != r.key {
			continue
		}
		var q search
		s.ready(&q, c, w.booking.Spread, now)
		q.from, q.horizon = now, micros(w.booking.Horizon)
		if !w.lost {
			q.behind(&w.booking)
		}
		return max(0, time.Duration(q.earliest(now)-now)*time.Microsecond-w.booking.Horizon)
	}
	return 0
}

// due serves a line when it is time.
func (s *Store) due(r *row) {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	s.serve(r)
}

// close forgets a line in which nobody waits.
func (s *Store) close(r *row) {
	sh := &s.shards[r.key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if r.line.timer != nil {
		r.line.timer.Stop()
		r.line.timer = nil
	}
	if r.line.empty() {
		r.line = nil
	}
}

// serveAll serves lines after something has changed in their rows.
func (s *Store) serveAll(rows []*row) {
	if len(rows) == 0 {
		return
	}
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	for _, r := range rows {
		s.serve(r)
	}
}
