// Package memstore keeps budgets in the memory of one process. It is exact,
// needs nothing, and keeps nothing for budgets that are idle. For programs
// that run more than once, use redisstore: every process with a memstore of its
// own has the whole limit to itself.
package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Store keeps budgets in memory. Make one with [New]. It is safe for
// concurrent use; different budgets rarely share a lock. There is nothing to
// close.
type Store struct {
	clock  clock
	shards [shardCount]shard
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
func (s *Store) Book(_ context.Context, b *throttle.Booking) (throttle.Grant, error) {
	var few [2]search
	searches := few[:min(len(b.Charges), len(few))]
	if len(b.Charges) > len(few) {
		searches = make([]search, len(b.Charges))
	}
	held := s.lock(b.Charges)
	defer s.unlock(held)

	now := s.clock.now()
	from := now + micros(b.NotBefore)
	for i := range b.Charges {
		c, q := &b.Charges[i], &searches[i]
		c.Over = 0 // it may be of an earlier Book
		s.ready(q, c, b.Spread, now)
		q.from = from
		if b.Instead != 0 {
			q.row.remove(b.Instead, &q.rule)
		}
	}

	t, g := find(b.Charges, searches, from)
	if t-now > micros(throttle.Farthest) {
		g.Wait = throttle.Never
		return g, nil
	}
	g.Wait = time.Duration(t-now) * time.Microsecond
	if b.MaxWait >= 0 && g.Wait > b.MaxWait {
		return g, nil
	}
	g.OK, g.Mark = true, t
	for i := range searches {
		c, q := &b.Charges[i], &searches[i]
		if c.Shadow {
			c.Over = time.Duration(q.earliest(t)-t) * time.Microsecond
		}
		q.row.book(t, &q.rule)
	}
	return g, nil
}

// ready makes q a search of the charge's row, whose shard is locked. It fills in
// what is there, because a search is large enough for a copy to be felt.
func (s *Store) ready(q *search, c *throttle.Charge, spread time.Duration, now int64) {
	q.row = s.shard(c.Budget).row(c.Budget.Key, now)
	q.rule.set(c, spread)
	q.row.advance(now, &q.rule)
}

// find returns the earliest start not before t that has room in every budget
// that counts. Each answer is a lower bound for the others, so the search ends
// when a whole round moves nothing.
func find(charges []throttle.Charge, searches []search, t int64) (int64, throttle.Grant) {
	g := throttle.Grant{Held: -1}
	for still := 0; still < len(searches); {
		for i := range searches {
			if still++; charges[i].Shadow {
				continue
			}
			if next := searches[i].earliest(t); next > t {
				t, still, g.Held = next, 1, i
				g.Paused = next == searches[i].row.paused
			}
		}
	}
	return t, g
}

// Cancel implements [throttle.Store].
func (s *Store) Cancel(b *throttle.Booking, g throttle.Grant) {
	if !g.OK {
		return
	}
	held := s.lock(b.Charges)
	defer s.unlock(held)

	now := s.clock.now()
	for i := range b.Charges {
		var q search
		s.ready(&q, &b.Charges[i], b.Spread, now)
		q.row.remove(g.Mark, &q.rule)
	}
}

// Release implements [throttle.Store].
func (s *Store) Release(b *throttle.Booking, g throttle.Grant) {}

// Settle implements [throttle.Store].
func (s *Store) Settle(_ context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	return nil
}

// Pause implements [throttle.Store].
func (s *Store) Pause(_ context.Context, c throttle.Charge, d time.Duration) error {
	sh := s.shard(c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()

	now := s.clock.now()
	var q search
	s.ready(&q, &c, 0, now)
	q.row.paused = max(q.row.paused, now+micros(d))
	return nil
}

// Status implements [throttle.Store].
func (s *Store) Status(_ context.Context, c throttle.Charge) (throttle.Status, error) {
	sh := s.shard(c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()

	st := throttle.Status{Limit: c.Limit}
	r := new(row) // a copy, because asking under another limit changes a row
	if kept, ok := sh.rows[c.Budget.Key]; ok {
		*r = *kept
		r.entries = slices.Clone(kept.entries)
	}
	now := s.clock.now()
	c.Cost = 1
	q := search{row: r, from: now}
	u := &q.rule
	u.set(&c, 0)
	r.advance(now, u)
	since := now - u.span
	if u.kind == throttle.Aligned {
		start, _ := u.window(now)
		since = start - 1
	}
	for _, e := range r.entries {
		switch {
		case u.kind == throttle.Paced && e.first <= now && e.last > now:
			st.Waiting += int((e.last - now + u.span - 1) / u.span) // a block that has begun
		case e.last > now:
			st.Waiting += int(e.n)
		case e.last > since:
			st.Used += int(e.n)
		}
	}
	if u.kind == throttle.Paced {
		st.Used = min(st.Used, 1)
	}
	st.Wait = time.Duration(q.earliest(now)-now) * time.Microsecond
	st.Paused = time.Duration(max(0, r.paused-now)) * time.Microsecond
	return st, nil
}
