package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
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
	var v wire.Frame
	err := s.conn.Retry(ctx, nil, func() (err error) {
		v, err = s.conn.Call(ctx, func(b wire.Boundaries, _ []wire.Gate) wire.Call {
			ago := time.Since(asked) // Redis may have been away
			said := wire.Frame(nil).Add(int64(q.Left), wire.Micros(max(0, q.Reset-ago)), wire.Micros(max(0, q.Age)), generation)
			return wire.Call{Script: wire.ReconcileScript, Keys: []string{key}, Frame: b.AppendRule(said, 1, c), More: []any{s.sharedChannel(c.Budget.Group)}}
		})
		return err
	})
	if err != nil {
		return err
	}
	if v.Size() != 6 {
		return wire.ErrReply
	}
	known := history.QuotaReply{Left: v.At(1), Generation: history.Generation{ID: v.At(3), Count: v.At(2)}}
	s.history.ObserveQuota(key, c, q, known, time.Now())
	s.watches.Invalidated(notify.Invalidation{Key: key, From: v.At(4), Until: v.At(5)})
	return nil
}
