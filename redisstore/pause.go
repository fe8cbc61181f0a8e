package redisstore

import (
	"cmp"
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Pause implements [throttle.Store].
func (p *primary) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	_, _, err := p.pause(ctx, c, throttle.Refusal{Length: max(0, min(d, farthest.Wait))}, false)
	return err
}

// Resume implements [throttle.Store].
func (p *primary) Resume(ctx context.Context, c throttle.Charge) error {
	_, _, err := p.pause(ctx, c, throttle.Refusal{}, true)
	return err
}

// Refuse implements [throttle.Store]. A start that no row knows, because it was taken from
// a share while Redis was away, teaches nothing.
func (p *primary) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	if wire.Holds(&c) {
		r.Start.Handle = throttle.Handle{}
	}
	r.Length, r.Ago = max(0, min(r.Length, farthest.Wait)), max(time.Microsecond, r.Ago)
	return p.pause(ctx, c, r, false)
}

// pause closes a budget, because of a refusal if that has an Ago, or lifts its pauses. It
// returns the ceiling before and after that. The script tells the fleet; this node knows at
// once.
func (p *primary) pause(ctx context.Context, c throttle.Charge, r throttle.Refusal, lift bool) (from, to float64, err error) {
	d := r.Length
	key := p.names.Of(&c)
	asked := time.Now()
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.PauseReply] {
		q := wire.PauseRequest{
			Key: key, Charge: &c, Shared: p.names.Shared(c.Budget.Group), Lift: lift,
			Ago: r.Ago, Took: cmp.Or(r.Took, r.Ago), Start: r.Start.Handle.Start,
		}
		passed := time.Since(asked) // Redis may have been away
		q.Length = max(0, d-passed)
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
