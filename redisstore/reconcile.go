package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Reconcile implements [throttle.Store]. What is not worth a call is not told.
func (p *primary) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
	switch c.Limit.Kind() {
	case throttle.KindLeakyBucket, throttle.KindConcurrency, throttle.KindUnlimited:
		return nil
	case throttle.KindTokenBucket:
	default:
		if q.Reset <= 0 {
			return nil
		}
	}
	q.Left, q.Reset = max(0, q.Left), min(q.Reset, throttle.MaxPenalty)
	key := p.names.Row(&c.Budget)
	generation, report := p.history.ReportsQuota(key, &c, q, time.Now())
	if !report && !p.allNews {
		return nil
	}
	return p.reconcile(ctx, key, generation, &c, q)
}

// reconcile tells Redis. The script tells the fleet of starts that became void; this node
// knows at once.
func (p *primary) reconcile(ctx context.Context, key string, generation int64, c *throttle.Charge, q throttle.Quota) error {
	asked := time.Now()
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.ReconcileReply] {
		return wire.ReconcileRequest{
			Key: key, Charge: c, Shared: p.names.Shared(c.Budget.Group), Left: q.Left,
			Reset: q.Reset - time.Since(asked), Age: q.Age, Generation: generation, // Redis may have been away
		}
	})
	if err != nil {
		return err
	}
	known := history.QuotaReply{Left: reply.Left, Generation: reply.Generation}
	p.history.ObserveQuota(key, c, q, known, time.Now())
	p.watches.Invalidated(notify.Invalidation{Key: key, From: reply.From, Until: reply.Until})
	return nil
}
