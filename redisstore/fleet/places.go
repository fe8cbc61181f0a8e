package fleet

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
)

// KeepTurn implements [throttle.PlaceKeeper], if the store is one.
func (r *Reporter) KeepTurn(b *throttle.Booking, t throttle.Turn) []byte {
	if k, ok := r.Store.(throttle.PlaceKeeper); ok {
		return k.KeepTurn(b, t)
	}
	return nil
}

// RestoreTurn implements [throttle.PlaceKeeper], if the store is one.
func (r *Reporter) RestoreTurn(b *throttle.Booking, kept []byte) (throttle.Turn, bool) {
	if k, ok := r.Store.(throttle.PlaceKeeper); ok {
		return k.RestoreTurn(b, kept)
	}
	return nil, false
}

// Appoint implements [throttle.PlaceKeeper], if the store is one.
func (r *Reporter) Appoint(ctx context.Context, c throttle.Charge, wait time.Duration, again bool) (time.Duration, error) {
	if k, ok := r.Store.(throttle.PlaceKeeper); ok {
		return k.Appoint(ctx, c, wait, again)
	}
	return wait, nil
}
