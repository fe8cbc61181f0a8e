package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Status implements [throttle.Store].
func (s *Store) Status(_ context.Context, c throttle.Charge) (throttle.Status, error) {
	sh := s.shard(c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()

	r := new(row) // a copy, because asking under another limit changes a row
	if kept, ok := sh.rows[c.Budget.Key]; ok {
		*r = *kept
		r.entries = slices.Clone(kept.entries)
	}
	now := s.clock.now()
	c.Cost = 1
	q := search{row: r, from: now}
	q.rule.set(&c, 0)
	r.advance(now, &q.rule)
	q.open = q.rule.kind == throttle.KindUnlimited && r.isOpen(now)

	st := throttle.Status{Limit: c.Limit}
	if q.rule.kind == throttle.KindConcurrency {
		st.Used, st.Waiting = r.inFlight()
	} else {
		st.Used, st.Waiting = r.starts(now, &q.rule)
		st.Waiting += r.waiting()
	}
	st.Wait = time.Duration(r.wait(&q)-now) * time.Microsecond
	st.Paused = time.Duration(max(0, r.paused-now)) * time.Microsecond
	st.Repeated = r.repeated(now)
	if r.ceiling.isOf(&q.rule) {
		st.Ceiling = cutOff(r.ceiling.at(now))
	}
	return st, nil
}

// starts sums the costs that count now: of starts that lie in the past, and of
// those to come.
func (r *row) starts(now int64, u *rule) (past, next int) {
	since := now - u.span
	if u.kind == throttle.KindFixedWindow {
		start, _ := u.window(now)
		since = start - 1
	}
	for _, e := range r.entries {
		switch {
		case u.kind == throttle.KindLeakyBucket && e.first <= now && e.last > now:
			next += int((e.last - now + u.span - 1) / u.span) // a block that has begun
		case e.last > now:
			next += int(e.n)
		case e.last > since && u.kind != throttle.KindUnlimited:
			past += int(e.n)
		}
	}
	if u.kind == throttle.KindLeakyBucket {
		past = min(past, 1)
	}
	return past, next
}

// inFlight sums the costs of what runs and of what waits in line.
func (r *row) inFlight() (held, waiting int) {
	if r.flight == nil {
		return 0, 0
	}
	for _, w := range r.flight.line {
		waiting += int(w.cost)
	}
	return int(r.flight.held), waiting
}

// wait returns when one that comes now would start, behind those in line.
func (r *row) wait(q *search) int64 {
	turn := q.from
	if sum := int64(r.waiting()); sum > 0 && q.rule.kind != throttle.KindConcurrency {
		turn = q.turn(sum + q.rule.cost)
	}
	q.behind(&throttle.Booking{Horizon: 1})
	return max(turn, q.earliest(q.from))
}

// waiting sums the costs of those in line for a start.
func (r *row) waiting() (sum int) {
	if r.line != nil {
		for _, cost := range r.line.costs {
			sum += int(cost)
		}
	}
	return sum
}
