package memstore

import (
	"context"
	"math"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Pause implements [throttle.Store].
func (s *Store) Pause(_ context.Context, c throttle.Charge, d time.Duration) error {
	s.change(&c, func(r *row, now int64) {
		if end := now + micros(d); d > 0 && end > r.paused {
			r.paused = end
			r.tell(0, end, false)
		}
	})
	return nil
}

// Resume implements [throttle.Store].
func (s *Store) Resume(_ context.Context, c throttle.Charge) error {
	s.change(&c, func(r *row, now int64) {
		if r.paused > now {
			r.lifts++
			r.tell(0, math.MaxInt64, true)
		}
		r.paused = 0
	})
	return nil
}

// change does something to one budget.
func (s *Store) change(c *throttle.Charge, do func(r *row, now int64)) {
	sh := s.shard(c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.clock.now()
	var q search
	s.ready(&q, c, 0, now)
	do(q.row, now)
}
