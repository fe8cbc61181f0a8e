package fallback

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
)

// KeepTurn implements [throttle.PlaceKeeper]. Nobody stands in line in a share.
func (s *Store) KeepTurn(b *throttle.Booking, t throttle.Turn) []byte {
	return s.primary.(throttle.PlaceKeeper).KeepTurn(b, t)
}

// RestoreTurn implements [throttle.PlaceKeeper].
func (s *Store) RestoreTurn(b *throttle.Booking, kept []byte) (throttle.Turn, bool) {
	return s.primary.(throttle.PlaceKeeper).RestoreTurn(b, kept)
}

// Appoint implements [throttle.PlaceKeeper]. While the primary is away nobody makes appointments.
func (s *Store) Appoint(ctx context.Context, c throttle.Charge, wait time.Duration, again bool) (time.Duration, error) {
	if s.local(c.Budget.Group) != nil {
		return wait, nil
	}
	return s.primary.(throttle.PlaceKeeper).Appoint(ctx, c, wait, again)
}
