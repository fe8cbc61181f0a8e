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
		r.shut(micros(d), 0)
	})
	s.dismiss(waiting, end)
	s.serveAll(waiting)
	return nil
}

// Refuse implements [throttle.Store].
func (s *Store) Refuse(_ context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	end := int64(0)
	s.keep(c)
	waiting := s.change(only(c), func(_ int, q *search) {
		q.wake(s.clock.now())
		if q.rule.learns > 0 && r.Start.Mark != 0 {
			from, to = q.row.learn(r.Start.Mark, &q.rule)
		}
		q.row.shut(micros(r.Length), max(1, micros(r.Ago)))
		end = max(q.row.seen, q.row.paused)
	})
	s.dismiss(waiting, end)
	s.serveAll(waiting)
	return from, to, nil
}

// shut closes the row for so long, if it is not closed for longer, and tells those that
// wait; no time is no penalty. Refused is as of close.
func (r *row) shut(length, refused int64) {
	if length > 0 && r.close(length, refused) {
		r.tell(0, r.paused, false)
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
		r.paused, r.last, r.ceiling = 0, penalty{}, ceiling{}
	})
	return nil
}

// only is a booking of one charge.
func only(c throttle.Charge) *throttle.Booking {
	return &throttle.Booking{Charges: []throttle.Charge{c}}
}
