package redisstore

import (
	"cmp"
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Pause implements [store.Store].
func (p *primary) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	_, _, err := p.pause(ctx, c, store.Refusal{Length: max(0, min(d, farthest.Wait))}, false)
	return err
}

// Resume implements [store.Store].
func (p *primary) Resume(ctx context.Context, c store.Charge) error {
	_, _, err := p.pause(ctx, c, store.Refusal{}, true)
	return err
}

// Refuse implements [store.Store]. A start that no row knows, because it was taken from
// a share while Redis was away, teaches nothing.
func (p *primary) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	if wire.ForSlots(&c) {
		r.Start.Handle = store.Handle{}
	}
	r.Length, r.Ago = max(0, min(r.Length, farthest.Wait)), max(time.Microsecond, r.Ago)
	return p.pause(ctx, c, r, false)
}

// pause closes a budget for r.Length: because of a refusal if r.Ago is not 0, else as an operator
// does. If lift is true it ends all pauses of the budget instead. It returns the budget's ceiling
// before and after the call. The script tells the other nodes; pause tells the watches and lines of
// this node.
func (p *primary) pause(ctx context.Context, c store.Charge, r store.Refusal, lift bool) (from, to float64, err error) {
	key := p.names.Of(&c)
	asked := time.Now()
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.PauseReply] {
		q := wire.PauseRequest{
			Key: key, Charge: &c, Shared: p.names.Shared(), Lift: lift,
			Ago: r.Ago, Took: cmp.Or(r.Took, r.Ago), Start: r.Start.Handle.Start,
		}
		passed := time.Since(asked) // the request is built anew for each try, and Redis may have been away
		q.Length = max(0, r.Length-passed)
		if q.Ago > 0 {
			q.Ago = min(q.Ago, farthest.Wait) + passed
		}
		return q
	})
	if err != nil {
		return 0, 0, err
	}
	if lift {
		p.shut.Forget(key)
	}
	if reply.Changed {
		p.paused(notify.Pause{Key: key, End: reply.End, Left: wire.Wait(reply.End - reply.Now)})
	}
	return reply.From, reply.To, nil
}

// Reconcile implements [store.Store]. It makes no call for a quota that says nothing new: see
// history.ReportsQuota.
func (p *primary) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	switch c.Limit.Kind() {
	case store.KindLeakyBucket, store.KindConcurrency, store.KindUnlimited:
		return nil
	case store.KindTokenBucket:
	default:
		if q.Reset <= 0 {
			return nil
		}
	}
	q.Left, q.Reset = max(0, q.Left), min(q.Reset, store.MaxPenalty)
	key := p.names.Row(&c.Budget)
	generation, report := p.history.ReportsQuota(key, &c, q, time.Now())
	if !report && !p.allNews {
		return nil
	}
	return p.reconcile(ctx, key, generation, &c, q)
}

// reconcile tells Redis what is left of a budget. The script tells the other nodes which starts became
// void; reconcile tells the watches of this node.
func (p *primary) reconcile(ctx context.Context, key string, generation int64, c *store.Charge, q store.Quota) error {
	asked := time.Now()
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.ReconcileReply] {
		return wire.ReconcileRequest{
			Key: key, Charge: c, Shared: p.names.Shared(), Left: q.Left,
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

// setUsed sets how much of a budget is used, see Store.SetUsed. The script tells the other nodes
// which starts became void; setUsed tells the watches of this node.
func (p *primary) setUsed(ctx context.Context, c *store.Charge, used int) (before int, ok bool, err error) {
	key := p.names.Of(c)
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.SetUsedReply] {
		return wire.SetUsedRequest{Key: key, Charge: c, Shared: p.names.Shared(), Used: used}
	})
	if err != nil {
		return 0, false, err
	}
	p.watches.Invalidated(notify.Invalidation{Key: key, From: reply.From, Until: reply.Until})
	return int(reply.Before), reply.Done, nil
}

// Status implements [store.Store].
func (p *primary) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return conn.Ask(ctx, p.conn, nil, func() wire.Request[store.Status] {
		return wire.StatusRequest{Key: p.names.Of(&c), Charge: &c}
	})
}
