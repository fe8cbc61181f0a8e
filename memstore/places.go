package memstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
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

// Appoint implements [throttle.PlaceKeeper].
func (s *Store) Appoint(_ context.Context, c throttle.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.appointments.make(s.clock.now(), &c, min(wait, farthest.Wait), again), nil
}
