package memstore

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/ledger"
)

// keptByMemory is what a kept Turn begins with.
const keptByMemory = 'm'

// KeepTurn implements [throttle.PlaceKeeper]. An arrival is a time, so a place is good in another process
// of the same program, too, if its clock is right.
func (s *Store) KeepTurn(_ *throttle.Booking, t throttle.Turn) []byte {
	kept := []byte{keptByMemory}
	if w, ok := t.(*waiter); ok {
		s.lines.mu.Lock()
		defer s.lines.mu.Unlock()
		kept = w.Keep(kept)
	}
	return kept
}

// RestoreTurn implements [throttle.PlaceKeeper].
func (s *Store) RestoreTurn(_ *throttle.Booking, kept []byte) (throttle.Turn, bool) {
	if len(kept) == 0 || kept[0] != keptByMemory {
		return nil, false
	}
	w := new(waiter)
	if len(kept) == 1 {
		return nil, true
	}
	return w, w.Restore(kept[1:], s.clock.now())
}

// appointments are those of all budgets.
type appointments struct {
	mu   sync.Mutex
	all  map[ledger.Key]ledger.Appointments
	most int // how many budgets there may be until those whose appointments are over are dropped
}

// Appoint implements [throttle.PlaceKeeper].
func (s *Store) Appoint(_ context.Context, c throttle.Charge, wait time.Duration, again bool) (time.Duration, error) {
	now, a := s.clock.now(), &s.appointments
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= a.most {
		maps.DeleteFunc(a.all, func(_ ledger.Key, of ledger.Appointments) bool { return max(of[0], of[1]) <= now })
		a.most = max(64, 2*len(a.all))
	}
	if a.all == nil {
		a.all = make(map[ledger.Key]ledger.Appointments)
	}
	of := a.all[c.Budget.Key]
	in := of.Make(now, &c, min(wait, farthest.Wait), again)
	a.all[c.Budget.Key] = of
	return in, nil
}
