package redisstore

import (
	"context"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Status implements [throttle.Store].
func (p *primary) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	return conn.Ask(ctx, p.conn, nil, func() wire.Request[throttle.Status] {
		return wire.StatusRequest{Key: p.names.Of(&c), Charge: &c}
	})
}
