package fallback

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits { return s.primary.Traits() }

// PauseNote implements [store.Store].
func (s *Store) PauseNote(b store.Budget) store.PauseNote { return s.primary.PauseNote(b) }

// KeepTurn implements [store.Store]. Nobody stands in line in a share.
func (s *Store) KeepTurn(b *store.Booking, t store.Turn) []byte {
	return s.primary.KeepTurn(b, t)
}

// RestoreTurn implements [store.Store].
func (s *Store) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	return s.primary.RestoreTurn(b, kept)
}

// Appoint implements [store.Store]. While the primary is away nobody makes appointments.
func (s *Store) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	if s.local(c.Budget.Group) != nil {
		return wait, nil
	}
	return s.primary.Appoint(ctx, c, wait, again)
}
