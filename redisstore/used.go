package redisstore

import (
	"context"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// SetUsed sets how much of its window a budget of the fleet has used, and returns how much
// that was before. It does nothing, and ok is false, where Redis has no count of the
// budget: nothing has started under it for a window, or its limit has no windows. More than the limit is set
// to the limit, and less than nothing to nothing. Starts that are booked and do not fit any more are booked anew.
func (s *Store) SetUsed(ctx context.Context, c throttle.Charge, used int) (before int, ok bool, err error) {
	if c.Node {
		return 0, false, nil
	}
	return s.primary.setUsed(ctx, &c, max(0, min(used, c.Limit.Capacity())))
}

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
