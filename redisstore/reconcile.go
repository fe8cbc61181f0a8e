package redisstore

import (
	"context"

	"github.com/fleetthrottle/throttle"
)

// Reconcile implements [throttle.Store].
func (s *Store) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
	if q.Left > 0 {
		return nil
	}
	return s.Pause(ctx, c, q.Reset)
}
