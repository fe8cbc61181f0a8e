package memstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/store"
)

// keptByMemory is what a kept Turn begins with.
const keptByMemory = 'm'

// Traits implements [store.Store]: all waiters of the store are in this program.
func (s *Store) Traits() store.Traits {
	return store.Traits{Places: true, CallsWaiters: true, InMemory: s}
}

// PauseNote implements [store.Store]. A program that pauses a budget knows why.
func (s *Store) PauseNote(store.Budget) store.PauseNote { return store.PauseNote{} }

// KeepTurn implements [store.Store]. An arrival is a time, so a place is good in another process
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
	if len(kept) == 1 {
		return nil, true
	}
	return w, w.Restore(kept[1:], s.clock.now())
}

// Appoint implements [store.Store].
func (s *Store) Appoint(_ context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.appointments.make(s.clock.now(), &c, min(wait, farthest.Wait), again), nil
}
