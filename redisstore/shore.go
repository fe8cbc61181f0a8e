package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// on returns the island that a group's callers are on; nil if there is none.
func (s *Store) on(group string) *island {
	if s.bridges.mode == Wait {
		return nil
	}
	s.bridges.mu.Lock()
	defer s.bridges.mu.Unlock()
	if br := s.bridges.all[group]; br != nil {
		return br.island
	}
	return nil
}

// ashore does something with a grant of an island, if that is still there, and
// reports whether it is one.
func (s *Store) ashore(b *throttle.Booking, g throttle.Grant, do func(*island, *throttle.Booking, throttle.Grant)) bool {
	if g.Mark < islandMark {
		return false
	}
	if isl := s.on(b.Charges[0].Budget.Group); isl != nil {
		own, _, _ := isl.parts(b)
		g.Mark -= islandMark
		do(isl, &own, g)
	}
	return true
}

// settle changes what a start on the island cost.
func (isl *island) settle(b, own *throttle.Booking, g throttle.Grant, costs []int) {
	_ = isl.local.Settle(context.Background(), own, g, costs) // a memory does not fail
	isl.mu.Lock()
	defer isl.mu.Unlock()
	for i := range b.Charges {
		c := &b.Charges[i]
		if more := costs[i] - c.Cost; more > 0 && !wire.Holds(c) && !wire.Unlimited(c) {
			isl.add(c, int64(more), time.Now())
		}
	}
}

// pause closes a budget on the island, or opens it.
func (isl *island) pause(c throttle.Charge, d time.Duration) {
	part, ok := isl.part(c)
	key := isl.store.key(&c.Budget)
	switch {
	case !ok:
	case d < 0:
		isl.store.pauses.Forget(key)
		_ = isl.local.Resume(context.Background(), part)
	default:
		now := time.Now()
		isl.store.pauses.Note(key, now.Add(d), now)
		_ = isl.local.Pause(context.Background(), part, d)
	}
}

// status is Status on the island; ok is false if it has no part of the limit.
func (isl *island) status(ctx context.Context, c throttle.Charge) (st throttle.Status, ok bool) {
	part, ok := isl.part(c)
	if ok {
		st, _ = isl.local.Status(ctx, part)
	}
	return st, ok
}

// tellTime is how long Redis has to hear of the starts on an island.
const tellTime = 2 * time.Second

// tellStarts tells Redis what was started on the island, which is closed: as a
// life of its budgets that it does not know. It reports whether it heard all.
func (s *Store) tellStarts(isl *island) bool {
	told := make(map[string]*caller)
	for key, t := range isl.recent() {
		s.history.AddUnreported(key, history.Generation{ID: isl.generation, Count: t.count}, t.starts)
		c := stating(t.charge)
		c.joined = time.Now()
		told[key] = c
		s.lanes.join(c)
	}
	timer := time.NewTimer(tellTime)
	defer timer.Stop()
	for key, c := range told {
		select {
		case <-c.done:
			if c.err != nil {
				return false
			}
			s.history.MarkReported(key)
		case <-timer.C:
			return false
		}
	}
	return true
}

// recent returns what still matters of the starts on the island.
func (isl *island) recent() map[string]*tally {
	isl.mu.Lock()
	defer isl.mu.Unlock()
	now, all := time.Now(), make(map[string]*tally)
	for key, t := range isl.starts {
		if !t.starts.Expired(now) {
			own := *t
			own.starts.Starts = slices.Clone(t.starts.Starts)
			all[key] = &own
		}
	}
	return all
}
