package memstore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Pause implements [throttle.Store].
func (s *Store) Pause(_ context.Context, c throttle.Charge, d time.Duration) error {
	end := int64(0)
	s.keep(c)
	waiting := s.change(only(c), func(_ int, q *search) {
		r := q.row
		q.wake(s.clock.now())
		end = r.seen + micros(d)
		r.shut(end)
	})
	s.dismiss(waiting, end)
	s.serveAll(waiting)
	return nil
}

// shut closes the row until an end, if it is not closed for longer.
func (r *row) shut(end int64) {
	if end > max(r.seen, r.paused) {
		r.paused = end
		r.tell(0, end, false)
	}
}

// dismiss has those in line book again who cannot wait until then, so that they are told.
func (s *Store) dismiss(rows []*row, until int64) {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	for _, r := range rows {
		if r.line == nil {
			continue
		}
		for _, q := range r.line.queues {
			for _, w := range slices.Clone(q) {
				if w.ends >= until {
					continue
				}
				held := s.lock(w.booking.Charges)
				w.leave()
				s.unlock(held)
				close(w.ready)
			}
		}
	}
}

// Resume implements [throttle.Store].
func (s *Store) Resume(_ context.Context, c throttle.Charge) error {
	s.each(only(c), func(_ int, q *search) {
		r := q.row
		if r == &untouched {
			return
		}
		q.wake(s.clock.now())
		if r.paused > r.seen {
			r.lifts++
			r.tell(0, math.MaxInt64, true)
		}
		if q.rule.kind == throttle.KindUnlimited {
			r.forgetProbe()
		}
		r.paused, r.ceiling = 0, ceiling{}
	})
	return nil
}

// only is a booking of one charge.
func only(c throttle.Charge) *throttle.Booking {
	return &throttle.Booking{Charges: []throttle.Charge{c}}
}
