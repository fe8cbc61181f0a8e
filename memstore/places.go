package memstore

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// keptByMemory is the first byte of a kept Turn.
const keptByMemory = 'm'

// Traits implements [store.Store]: all waiters of the store are in this program.
func (s *Store) Traits() store.Traits {
	return store.Traits{Places: true, SummonsWaiters: true, InMemory: s}
}

// PauseNote implements [store.Store]. A program that pauses a budget knows why.
func (s *Store) PauseNote(store.Budget) store.PauseNote { return store.PauseNote{} }

// KeepTurn implements [store.Store]. An arrival is a time, so a place is good in a second process
// of the same program, too, if its clock is right.
func (s *Store) KeepTurn(_ *store.Booking, t store.Turn) []byte {
	kept := []byte{keptByMemory}
	if w, ok := t.(*waiter); ok {
		s.lockLines(w.shards)
		defer s.unlockLines(w.shards)
		kept = w.Keep(kept)
	}
	return kept
}

// RestoreTurn implements [store.Store].
func (s *Store) RestoreTurn(_ *store.Booking, kept []byte) (store.Turn, bool) {
	if len(kept) == 0 || kept[0] != keptByMemory {
		return nil, false
	}
	w := new(waiter)

	// The caller left without a place, so it comes back as a new caller.
	if len(kept) == 1 {
		return nil, true
	}
	return w, w.Restore(kept[1:], s.clock.now())
}

// Appoint implements [store.Store].
func (s *Store) Appoint(_ context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.appointments.make(s.clock.now(), &c, min(wait, store.MaxAhead), again), nil
}

// appointments has the appointments of all budgets.
type appointments struct {
	mu   sync.Mutex
	all  map[ledger.Key]ledger.Appointments
	most int // at how many budgets the ones with past appointments are dropped
}

// make makes an appointment with a caller that leaves now.
func (a *appointments) make(now int64, c *store.Charge, wait time.Duration, again bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()

	// Drop past appointments only when the map has doubled, so that a call costs the same on average.
	if len(a.all) >= a.most {
		maps.DeleteFunc(a.all, func(_ ledger.Key, of ledger.Appointments) bool { return max(of[0], of[1]) <= now })
		a.most = max(64, 2*len(a.all))
	}

	if a.all == nil {
		a.all = make(map[ledger.Key]ledger.Appointments)
	}

	of := a.all[c.Budget.Key]
	in := of.Make(now, c, wait, again)
	a.all[c.Budget.Key] = of

	return in
}
