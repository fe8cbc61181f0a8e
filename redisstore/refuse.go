package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Refuse implements [throttle.Store]. A start that no row knows, because it was taken from
// a share while Redis was away, teaches nothing.
func (s fleetStore) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	if wire.Holds(&c) || r.Start.Mark < 0 {
		r.Start.Mark = 0
	}
	r.Length, r.Ago = max(0, min(r.Length, throttle.Farthest)), max(time.Microsecond, r.Ago)
	return s.pause(ctx, c, r)
}
