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
	w, _ := b.Turn.(*waiter)
	if w == nil {
		w = new(waiter)
	}
	g, moved := s.stand(w, b)
	s.serve(moved)
	return g
}

// stand books for a waiter or puts it in a line. It returns the lines in which there may be room now, among them
// the waiter's own line if the waiter is at its head.
func (s *Store) stand(w *waiter, b *store.Booking) (g store.Grant, moved []ledger.Key) {
	shards := shardsOf(b.Charges)
	held := shards.with(w.shards)
	s.lockLines(held)
	defer s.unlockLines(held)

	if w.grant.OK && s.clock.now()-w.grant.Handle.Start <= punctual && slices.Equal(w.booking.Charges, b.Charges) {
		return s.deliver(w), nil
	}

	// Leave the old line before booking, or the rows would count the waiter twice.
	w.Come(b)
	moved = s.leave(w, (*ledger.Request).Leave)

	w.booking, w.shards = *b, shards
	w.booking.Charges = slices.Clone(b.Charges)
	w.ends = math.MaxInt64
	if b.MaxWait >= 0 {
		w.ends = s.clock.now() + ledger.Micros(b.MaxWait)
	}
	g = s.try(w, (*ledger.Request).Stand)

	if key, _, waits := w.Line(); waits {
		if head, _ := s.head(key); head == w {
			moved = append(moved, key)
		}
	}
	return g, moved
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

// serve books for the callers at the heads of lines, as far as their starts are within the horizon, and looks at each line
// again when its next start is. The caller holds no locks.
func (s *Store) serve(lines []ledger.Key) {
	for len(lines) > 0 {
		key := lines[0]
		w, shards := s.head(key)
		if w == nil {
			lines = lines[1:]
			continue
		}

		s.lockLines(shards)
		// Others may have served the waiter, or its caller may have left, before the lines were locked.
		if head, now := s.head(key); head == w && now == shards {
			next, done := s.serveHead(key, w)
			if done {
				lines = lines[1:]
			}
			lines = append(lines, next...)
		}
		s.unlockLines(shards)
	}
}

// serveHead books for the waiter at the head of a line. It returns the other line that the waiter stands in now, if there is
// one, and whether nobody else in this line can be served yet.
func (s *Store) serveHead(key ledger.Key, w *waiter) (next []ledger.Key, done bool) {
	later, called := time.Duration(0), false
	ready := w.ready
	g := s.try(w, func(q *ledger.Request, w *ledger.Waiter) {
		// In one step: a penalty between the two would have it booked far behind its end.
		later = q.Due(w, key)
		if later == 0 {
			called = q.Serve(w, key)
		}
	})
	if later > 0 {
		s.lookAgain(key, later)
		return nil, true
	}

	// A waiter that stands in the line of another budget now has a caller that waits on the same channel.
	other, _, waits := w.Line()
	if waits {
		w.ready = ready
		return []ledger.Key{other}, false
	}

	w.grant = g
	if !g.OK || called {
		w.grant = store.Grant{}
	}
	s.clock.wake(ready)
	return nil, false
}

// head returns the waiter that is served next in a line, and the shards of its charges; nil if there is none.
func (s *Store) head(key ledger.Key) (*waiter, shardSet) {
	sh := &s.shards[key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.budgets[key]
	if b == nil {
		return nil, shardSet{}
	}

	at, ok := b.Head(key)
	if !ok {
		if b.audience != nil && b.timer != nil {
			b.timer.Stop()
		}
		return nil, shardSet{}
	}
	w := b.line[at.Arrival]
	return w, w.shards
}

// lookAgain serves a line later.
func (s *Store) lookAgain(key ledger.Key, later time.Duration) {
	sh := &s.shards[key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.budgets[key]
	if b.timer == nil {
		b.timer = s.clock.afterFunc(later, func() { s.serve([]ledger.Key{key}) })
	} else {
		b.timer.Reset(later)
	}
}

// dismiss has the waiters book again that cannot wait until their budget opens, so that
// they are told. The caller holds no locks.
func (s *Store) dismiss(closed []ledger.Closed) {
	for _, c := range closed {
		for w, shards := range s.impatient(c) {
			s.lockLines(shards)
			if key, _, waits := w.Line(); waits && key == c.Key {
				s.step(w, func(q *ledger.Request) { q.Dismiss(&w.Waiter) })
				s.clock.wake(w.ready)
			}
			s.unlockLines(shards)
		}
	}
}

// impatient returns the waiters for a budget that cannot wait until it opens, with the shards of their charges.
func (s *Store) impatient(c ledger.Closed) map[*waiter]shardSet {
	sh := &s.shards[c.Key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all := make(map[*waiter]shardSet)
	b := sh.budgets[c.Key]
	if b == nil || b.audience == nil {
		return nil
	}
	for _, w := range b.line {
		if w.ends < c.Until {
			all[w] = w.shards
		}
	}
	return all
}
