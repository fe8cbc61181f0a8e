package redisstore

import (
	"cmp"
	"slices"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// find returns the index in the line of who came then, or where it would be.
func (f *flight) find(came int64) (int, bool) {
	return slices.BinarySearchFunc(f.line, came, func(w *waiter, came int64) int { return cmp.Compare(w.came, came) })
}

// wake lets those who came then book again.
func (f *flight) wake(came []int64) {
	for _, name := range came {
		if i, ok := f.find(name); ok && !f.line[i].woken {
			f.line[i].woken = true
			close(f.line[i].ready)
		}
	}
}

// called passes a message on to those who wait. It may come before the answer that
// says who they are.
func (fs *flights) called(key string, came []int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.all[key]
	if f == nil {
		return
	}
	if f.calls > 0 {
		f.early = append(f.early, came...)
	}
	f.wake(came)
}

// note keeps the books of what a call that stated the flights granted to the
// caller: its old place in line is gone, and it holds what it asked for or stands
// in line anew.
func (s *Store) note(c *caller, stated []*flight) {
	if len(stated) == 0 || c.Kind != wire.Reserve {
		return
	}
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	for i := range c.Charges {
		ch := &c.Charges[i]
		if !wire.Holds(ch) {
			continue
		}
		f := s.flights.all[s.flightKey(&ch.Budget)]
		s.step(f, c.Arrival)
		switch {
		case c.err != nil:
		case c.outcome.State == wire.Held:
			f.held += ch.Cost
		case c.outcome.State == wire.Waiting && c.outcome.Charge == i:
			c.ready = s.lineUp(f, ch, c.outcome.Arrival)
		}
	}
}

// lineUp puts a charge in line and returns its Ready.
func (s *Store) lineUp(f *flight, c *throttle.Charge, came int64) <-chan struct{} {
	w := &waiter{came: came, cost: c.Cost, reserve: c.Reserve, ready: make(chan struct{})}
	s.flights.latest = max(s.flights.latest, came)
	i, _ := f.find(came)
	f.line = slices.Insert(f.line, i, w)
	s.subs.Retain(s.channels(c.Budget.Group))
	if slices.Contains(f.early, came) {
		f.wake([]int64{came})
	}
	return w.ready
}

// step takes the waiter that came then out of the line, if there is one.
func (s *Store) step(f *flight, arrival int64) {
	if i, ok := f.find(arrival); ok {
		f.line = slices.Delete(f.line, i, i+1)
		s.subs.Release(s.channels(f.budget.Group))
	}
}

// giveUp ends what the store has in flight for the charges: what is held, or the
// place in line of the waiter that came then. The next call of each flight says so. It returns
// the charges in question.
func (s *Store) giveUp(charges []throttle.Charge, arrival int64, holds bool) (flying []throttle.Charge) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	for i := range charges {
		ch := &charges[i]
		if !wire.Holds(ch) {
			continue
		}
		flying = append(flying, *ch)
		f := s.flights.all[s.flightKey(&ch.Budget)]
		if f == nil {
			continue
		}
		if s.step(f, arrival); holds {
			f.held = max(0, f.held-ch.Cost)
		}
	}
	return flying
}

// lose ends a place in line whose owner did not hear what became of it.
func (s *Store) lose(b *throttle.Booking) {
	if b.Instead < 0 {
		if lost := s.giveUp(b.Charges, -b.Instead, false); lost != nil {
			s.lanes.join(stating(lost...))
		}
	}
}
