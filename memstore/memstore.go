// Package memstore keeps budgets in the memory of one process. It is exact,
// needs nothing, and keeps nothing for budgets that are idle. For programs
// that run more than once, use redisstore: every process with a memstore of its
// own has the whole limit to itself.
package memstore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Store keeps budgets in memory. Make one with [New]. It is safe for
// concurrent use; different budgets rarely share a lock. There is nothing to
// close.
type Store struct {
	clock    clock
	arrivals atomic.Int64 // tickets made so far
	lines    lines
	shards   [shardCount]shard
}

// New returns an empty store. Its clock is the machine's, made monotonic.
func New() *Store {
	s := &Store{clock: clock{base: time.Now()}}
	for i := range s.shards {
		s.shards[i].rows = make(map[[16]byte]*row)
	}
	return s
}

// Book implements [throttle.Store].
func (s *Store) Book(_ context.Context, b *throttle.Booking) (g throttle.Grant, err error) {
	if b.Turn == nil {
		g, decided := s.bookNow(b)
		if decided {
			return g, nil
		}
	}
	return s.queue(b), nil
}

// bookNow books for a caller that finds nobody in line. It returns false if there is
// somebody, or the start is beyond the horizon: then nothing was done.
func (s *Store) bookNow(b *throttle.Booking) (g throttle.Grant, decided bool) {
	var few [2]search
	searches := few[:min(len(b.Charges), len(few))]
	if len(b.Charges) > len(few) {
		searches = make([]search, len(b.Charges))
	}
	held := s.lock(b.Charges)
	defer s.unlock(held)

	now := s.clock.now()
	for i := range b.Charges {
		c, q := &b.Charges[i], &searches[i]
		c.Over = 0 // it may be of an earlier Book
		s.ready(q, c, b.Spread, now)
		q.from, q.horizon = now+micros(b.NotBefore), micros(b.Horizon)
		q.behind(b)
	}
	if b.Horizon > 0 && (b.Returns || b.Instead != 0 || inLine(searches)) {
		return g, false
	}
	for i := range searches {
		if b.Instead != 0 {
			searches[i].giveBack(b.Instead)
		}
	}
	t := find(b.Charges, searches, now+micros(b.NotBefore), &g)
	if isFar(b, t-now) {
		return g, false
	}
	s.place(b, searches, now, t, &g)
	if b.Instead < 0 {
		for i := range searches {
			searches[i].row.call()
		}
	}
	return g, true
}

// isFar reports whether a booking has to wait in line for a start that is so far away,
// and may.
func isFar(b *throttle.Booking, wait int64) bool {
	return b.Horizon > 0 && wait > micros(b.Horizon+b.NotBefore) && b.MaxWait != 0 &&
		(b.MaxWait < 0 || wait <= micros(b.MaxWait))
}

// place books the start at t, if it is of use.
func (s *Store) place(b *throttle.Booking, searches []search, now, t int64, g *throttle.Grant) {
	if t-now > micros(throttle.Farthest) {
		g.Wait = throttle.Never
		return
	}
	g.Wait = time.Duration(t-now) * time.Microsecond
	if b.MaxWait >= 0 && g.Wait > b.MaxWait || t == now && !s.board(b, searches, g) {
		return
	}
	g.OK, g.Mark, g.Stamp = true, t, 1
	switch near := t-now <= micros(b.Horizon+b.NotBefore); {
	case b.Horizon <= 0 || g.Held < 0:
	case near:
		searches[g.Held].row.keepBehind(class(b.Priority), t)
	default:
		pin(searches, t)
	}
	for i := range searches {
		c, q := &b.Charges[i], &searches[i]
		if c.Shadow {
			c.Over = time.Duration(q.earliest(t)-t) * time.Microsecond
		} else {
			g.Stamp += q.row.lifts
		}
		switch {
		case q.open:
		case q.rule.kind == throttle.KindUnlimited:
			q.row.bookProbe(t, &q.rule)
		case q.rule.kind != throttle.KindConcurrency:
			q.row.book(t, &q.rule)
		case t == now:
			q.row.flight.held += q.rule.cost
		}
	}
}

// ready makes q a search of the charge's row, whose shard is locked. It fills in
// what is there, because a search is large enough for a copy to be felt.
func (s *Store) ready(q *search, c *throttle.Charge, spread time.Duration, now int64) {
	sh := s.shard(c.Budget)
	q.rule.set(c, spread)
	if q.rule.kind == throttle.KindUnlimited && q.passBy(sh.rows[c.Budget.Key], now) {
		return
	}
	q.row = sh.row(c.Budget.Key, now)
	q.row.advance(now, &q.rule)
	q.open = q.rule.kind == throttle.KindUnlimited && q.row.isOpen(now)
	if q.rule.kind == throttle.KindConcurrency && q.row.flight == nil {
		q.row.flight = new(flight)
	}
}

// find returns the earliest start not before t that has room in every budget
// that counts, and notes who set it. Each answer is a lower bound for the others,
// so the search ends when a whole round moves nothing.
func find(charges []throttle.Charge, searches []search, t int64, g *throttle.Grant) int64 {
	from := t
	g.Held = -1
	for still := 0; still < len(searches); {
		for i := range searches {
			if still++; charges[i].Shadow {
				continue
			}
			if next := searches[i].earliest(t); next > t {
				t, still, g.Held = next, 1, i
				g.Paused = searches[i].row.paused > from
			}
		}
	}
	return t
}

// Cancel implements [throttle.Store].
func (s *Store) Cancel(b *throttle.Booking, g throttle.Grant) {
	if !g.OK && g.Ready == nil {
		return
	}
	if w, ok := g.Turn.(*waiter); ok {
		s.lines.mu.Lock()
		left := s.stepOut(w)
		for _, r := range left {
			s.serve(r)
		}
		s.lines.mu.Unlock()
	}
	s.each(b, func(_ int, q *search) {
		q.giveBack(g.Mark)
		if g.OK && g.Wait == 0 {
			q.release()
		}
		q.row.call()
	})
}

// Release implements [throttle.Store].
func (s *Store) Release(b *throttle.Booking, g throttle.Grant) {
	if !g.OK || g.Wait > 0 || !slices.ContainsFunc(b.Charges, isInFlight) {
		return
	}
	s.each(b, func(_ int, q *search) {
		q.release()
		q.row.call()
	})
}

// Settle implements [throttle.Store].
func (s *Store) Settle(_ context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	s.each(b, func(i int, q *search) {
		if q.rule.kind != throttle.KindConcurrency && q.rule.kind != throttle.KindUnlimited {
			q.row.settle(g.Mark, &q.rule, int64(costs[i]))
		}
	})
	return nil
}

// each does something for every charge of a booking, in one atomic step. Then those are
// served who waited for that.
func (s *Store) each(b *throttle.Booking, do func(i int, q *search)) {
	s.serveAll(s.change(b, do))
}

// change is each, and returns the rows in which somebody waits.
func (s *Store) change(b *throttle.Booking, do func(i int, q *search)) (waiting []*row) {
	held := s.lock(b.Charges)
	defer s.unlock(held)

	now := s.clock.now()
	for i := range b.Charges {
		var q search
		s.ready(&q, &b.Charges[i], b.Spread, now)
		do(i, &q)
		if q.row.line != nil {
			waiting = append(waiting, q.row)
		}
	}
	return waiting
}
