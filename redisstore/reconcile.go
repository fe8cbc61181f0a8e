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
func (s fleetStore) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
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
	key := s.key(&c.Budget)
	generation, report := s.history.ReportsQuota(key, &c, q, time.Now())
	if s.frugal && !report {
		return nil
	}
	return s.reconcile(ctx, key, generation, &c, q)
}

// reconcile tells Redis. Who listens is told by the script, our own callers at
// once.
func (s *Store) reconcile(ctx context.Context, key string, generation int64, c *throttle.Charge, q throttle.Quota) error {
	asked := time.Now()
	reply, err := conn.Ask(ctx, s.conn, nil, func() wire.Request[wire.ReconcileReply] {
		return wire.ReconcileRequest{
			Key: key, Charge: c, Shared: s.sharedChannel(c.Budget.Group), Left: q.Left,
			Reset: q.Reset - time.Since(asked), Age: q.Age, Generation: generation, // Redis may have been away
		}
	})
	if err != nil {
		return err
	}
	known := history.QuotaReply{Left: reply.Left, Generation: reply.Generation}
	s.history.ObserveQuota(key, c, q, known, time.Now())
	s.watches.Invalidated(notify.Invalidation{Key: key, From: reply.From, Until: reply.Until})
	return nil
}
