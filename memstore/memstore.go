// Package memstore keeps budgets in the memory of one process. It is exact,
// needs nothing, and keeps nothing for budgets that are idle. For programs
// that run more than once, use filestore on one machine, or redisstore: every process with a
// memstore of its own has the whole limit to itself.
package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// Book implements [store.Store].
func (s *Store) Book(_ context.Context, b *store.Booking) (g store.Grant, err error) {
	switch {
	case b.Turn != nil: // it comes from a line
	case len(b.Charges) == 1:
		if s.bookOne(b, &g) {
			return g, nil
		}
	case s.bookAll(b, &g):
		return g, nil
	}
	return s.bookInLine(b), nil
}

// bookAll books for a caller that finds no waiters in line. It returns false if there are
// some, or the start is beyond the horizon: then nothing was done.
func (s *Store) bookAll(b *store.Booking, g *store.Grant) (decided bool) {
	held := s.lock(b.Charges)
	defer s.unlock(held)
	var few [ledger.Few]*ledger.Row
	now := s.clock.now()
	rows := s.rows(few[:0], b.Charges, now)
	return ledger.BookShort(now, b, rows, g) || s.bookLong(now, b, rows, g)
}

// bookOne is bookAll for a booking of one charge, which most are.
func (s *Store) bookOne(b *store.Booking, g *store.Grant) (decided bool) {
	c := &b.Charges[0]
	sh := s.shard(&c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.clock.now()
	if sh.isDue(now) {
		sh.sweep(now, b.Charges)
	}
	rows := [...]*ledger.Row{sh.row(c, now)}
	return ledger.BookShort(now, b, rows[:], g) || s.bookLong(now, b, rows[:], g)
}

// bookLong is bookAll for what is not plain. The shards are locked.
func (s *Store) bookLong(now int64, b *store.Booking, rows []*ledger.Row, g *store.Grant) (decided bool) {
	var q ledger.Request // filled in, because a literal would be copied
	q.Now, q.Booking, q.Arrivals, q.Grant = now, b, &s.arrivals, g
	switch len(rows) { // few take no memory, and no more of the stack is cleared than they need
	case 1:
		q.Searches = make([]ledger.Search, 1)
	case 2:
		q.Searches = make([]ledger.Search, 2)
	default:
		q.Searches = make([]ledger.Search, len(rows))
	}
	for i, r := range rows {
		q.Open(i, r)
	}
	if !q.BookNow() {
		return false
	}
	if q.HasNews() {
		s.tell(q.News())
	}
	s.standBy(&q)
	return true
}

// Cancel implements [store.Store].
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	if !g.OK && g.Ready == nil {
		return
	}
	if w, ok := g.Turn.(*waiter); ok {
		s.giveUp(w)
	}
	s.change(b, func(q *ledger.Request) { q.Cancel(g) })
}

// Release implements [store.Store].
func (s *Store) Release(b *store.Booking, g store.Grant) {
	if !g.OK || g.Wait > 0 || !slices.ContainsFunc(b.Charges, isConcurrency) {
		return
	}
	s.change(b, (*ledger.Request).Release)
}

func isConcurrency(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// Settle implements [store.Store].
func (s *Store) Settle(_ context.Context, b *store.Booking, g store.Grant, costs []int) error {
	s.change(b, func(q *ledger.Request) { q.Settle(g, costs) })
	return nil
}

// Pause implements [store.Store].
func (s *Store) Pause(_ context.Context, c store.Charge, d time.Duration) error {
	s.keep(c)
	s.change(only(c), func(q *ledger.Request) { q.Pause(d + s.clock.since(q.Now)) })
	return nil
}

// Refuse implements [store.Store].
func (s *Store) Refuse(_ context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	s.keep(c)
	s.change(only(c), func(q *ledger.Request) {
		if r.Length > 0 {
			r.Length += s.clock.since(q.Now)
		}
		from, to = q.Refuse(r)
	})
	return from, to, nil
}

// Resume implements [store.Store].
func (s *Store) Resume(_ context.Context, c store.Charge) error {
	s.change(only(c), (*ledger.Request).Resume)
	return nil
}

// Reconcile implements [store.Store].
func (s *Store) Reconcile(_ context.Context, c store.Charge, of store.Quota) error {
	s.change(only(c), func(q *ledger.Request) { q.Reconcile(of) })
	return nil
}

// change does something for all charges of a booking, in one atomic step, and serves
// the lines that moved.
func (s *Store) change(b *store.Booking, do func(*ledger.Request)) {
	if n := s.changeRows(b, do); len(n.Moved) > 0 {
		s.dismiss(n.Closed)
		s.serve(n.Moved)
	}
}
