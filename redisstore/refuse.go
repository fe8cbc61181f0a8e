package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Refuse implements [throttle.Store]. Where the budget is not the fleet's, because it is
// in flight, or Redis is away, it only closes it.
func (s *Store) Refuse(ctx context.Context, c throttle.Charge, g throttle.Grant, d time.Duration) (from, to float64, err error) {
	if c.Node {
		if g.Node != 0 {
			g = ofNode(g)
		}
		return s.node().Refuse(ctx, c, g, d)
	}
	return 0, 0, s.Pause(ctx, c, d)
}
