package memstore

import (
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// punctual is by how many microseconds a caller may come later than the start that was booked for it. A
// caller that comes later gets another start: its own is nearly as old as a grant may be, and a
// caller takes an old grant for the answer of a slow store.
const punctual = 5_000

// bookInLine is Book for a caller that may have to wait in line, or has waited in a line.
func (s *Store) bookInLine(b *store.Booking) store.Grant {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	w, _ := b.Turn.(*waiter)
	if w == nil {
		w = new(waiter)
	}
	if w.grant.OK && s.clock.now()-w.grant.Handle.Start <= punctual && slices.Equal(w.booking.Charges, b.Charges) {
		return s.deliver(w)
	}
	w.Come(b)
	left := s.leave(w, (*ledger.Request).Leave)
	w.booking = *b
	w.booking.Charges = slices.Clone(b.Charges)
	if w.ends = math.MaxInt64; b.MaxWait >= 0 {
		w.ends = s.clock.now() + ledger.Micros(b.MaxWait)
	}
	g := s.try(w, (*ledger.Request).Stand)
	s.serveAll(left)
	if key, _, waits := w.Line(); waits && s.head(key) == w {
		s.serve(key)
	}
	return g
}

// deliver returns the start that was booked for a waiter, as a grant of now, and takes it from the waiter.
func (s *Store) deliver(w *waiter) store.Grant {
	g, now := w.grant, s.clock.now()
	w.grant = store.Grant{}
	g.Wait = time.Duration(max(0, g.Handle.Start-now)) * time.Microsecond
	g.Age = time.Duration(max(0, now-g.Handle.Start)) * time.Microsecond
	return g
}

// leave takes a waiter out of its line, by do, and gives back what was booked for it. It returns
// the lines in which there may be room now.
func (s *Store) leave(w *waiter, do func(*ledger.Request, *ledger.Waiter)) []ledger.Key {
	if !w.Keeps() && !w.grant.OK {
		return nil
	}
	return s.step(w, func(q *ledger.Request) {
		do(q, &w.Waiter)
		if w.grant.OK {
			q.Cancel(store.Grant{Handle: w.grant.Handle})
			w.grant = store.Grant{}
		}
	}).Moved
}

// step does something with the rows of a waiter's booking, and keeps account of the line
// in which it stands.
func (s *Store) step(w *waiter, do func(*ledger.Request)) ledger.News {
	return s.changeRows(&w.booking, func(q *ledger.Request) {
		if key, at, waits := w.Line(); waits {
			delete(s.shards[key[0]].budgets[key].line, at)
		}
		do(q)
		if key, at, waits := w.Line(); waits {
			s.audience(store.Budget{Key: key}).line[at] = w
		}
	})
}

// try books a start for a waiter, or puts it in a line, by do, a method of ledger.Request that decides which.
// It returns the grant to the waiter's caller.
func (s *Store) try(w *waiter, do func(*ledger.Request, *ledger.Waiter)) (g store.Grant) {
	s.step(w, func(q *ledger.Request) {
		do(q, &w.Waiter)
		s.standBy(q)
		g = *q.Grant
		if q.Waits && g.Ready == nil {
			w.ready = make(chan struct{})
			g.Ready = w.ready
		}
	})
	g.Turn, w.booking.Instead = w, store.Handle{}
	return g
}

// serve books for those at the head of a line, as far as starts are within their horizon,
// and looks again when the next one is.
func (s *Store) serve(key ledger.Key) {
	for {
		w := s.head(key)
		if w == nil {
			return
		}
		later, called := time.Duration(0), false
		ready := w.ready
		g := s.try(w, func(q *ledger.Request, w *ledger.Waiter) {
			// In one step: a penalty between the two would have it booked far behind its end.
			if later = q.Due(w, key); later == 0 {
				called = q.Serve(w, key)
			}
		})
		if later > 0 {
			s.lookAgain(key, later)
			return
		}
		if next, _, waits := w.Line(); waits {
			w.ready = ready // it waits elsewhere, and its caller does not know
			defer s.serve(next)
			continue
		}
		if w.grant = g; !g.OK || called {
			w.grant = store.Grant{}
		}
		s.clock.wake(ready)
	}
}

// head returns the waiter that is served next in a line; nil if there is none.
func (s *Store) head(key ledger.Key) *waiter {
	sh := &s.shards[key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.budgets[key]
	if b == nil {
		return nil
	}
	at, ok := b.Head(key)
	if !ok {
		if b.audience != nil && b.timer != nil {
			b.timer.Stop()
		}
		return nil
	}
	return b.line[at.Arrival]
}

// lookAgain serves a line later.
func (s *Store) lookAgain(key ledger.Key, later time.Duration) {
	sh := &s.shards[key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.budgets[key]
	if b.timer == nil {
		b.timer = s.clock.afterFunc(later, func() {
			s.lines.mu.Lock()
			defer s.lines.mu.Unlock()
			s.serve(key)
		})
	} else {
		b.timer.Reset(later)
	}
}

// serveAll serves lines after something has changed in their rows.
func (s *Store) serveAll(keys []ledger.Key) {
	for _, key := range keys {
		s.serve(key)
	}
}

// dismiss has the waiters book again that cannot wait until their budget opens, so that
// they are told.
func (s *Store) dismiss(closed []ledger.Closed) {
	for _, c := range closed {
		for _, w := range s.impatient(c) {
			s.step(w, func(q *ledger.Request) { q.Dismiss(&w.Waiter) })
			s.clock.wake(w.ready)
		}
	}
}

// impatient returns the waiters for a budget that cannot wait until it opens.
func (s *Store) impatient(c ledger.Closed) (all []*waiter) {
	sh := &s.shards[c.Key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, w := range sh.budgets[c.Key].line {
		if w.ends < c.Until {
			all = append(all, w)
		}
	}
	return all
}
