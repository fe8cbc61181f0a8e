package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Refuse implements [throttle.Store]. A start that no row knows, because it was taken from
// a share while Redis was away, teaches nothing.
func (s *Store) Refuse(ctx context.Context, c throttle.Charge, g throttle.Grant, d time.Duration) (from, to float64, err error) {
	if c.Node {
		if g.Node != 0 {
			g = ofNode(g)
		}
		return s.node().Refuse(ctx, c, g, d)
	}
	mark := g.Mark
	if flies(&c) || mark >= islandMark {
		mark = 0
	}
	return s.pause(ctx, c, max(0, min(d, throttle.Farthest)), max(0, mark))
}
