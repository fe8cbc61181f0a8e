package redisstore

import (
	"context"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// setUsed tells Redis. The script tells the fleet of starts that became void; this node knows
// at once.
func (p *primary) setUsed(ctx context.Context, c *throttle.Charge, used int) (before int, ok bool, err error) {
	key := p.names.Of(c)
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.SetUsedReply] {
		return wire.SetUsedRequest{Key: key, Charge: c, Shared: p.names.Shared(c.Budget.Group), Used: used}
	})
	if err != nil {
		return 0, false, err
	}
	p.watches.Invalidated(notify.Invalidation{Key: key, From: reply.From, Until: reply.Until})
	return int(reply.Before), reply.Done, nil
}
