package conn

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A Backoff is the pauses between attempts to reach a Redis that is away: they
// double between two bounds. Its zero value begins with the least.
type Backoff struct{ next time.Duration }

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Wait waits for the next pause. It returns early if ctx ends or wake is told.
func (b *Backoff) Wait(ctx context.Context, wake <-chan struct{}) {
	pause := max(firstPause, b.next)
	b.next = min(2*pause, lastPause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// Retry calls f, which may be repeated without harm, until it succeeds, fails for
// good, or ctx ends. Failed, unless it is nil, is told of each failure after which
// Retry would go on; it ends that by returning false. Wake ends a pause early.
func Retry(ctx context.Context, wake <-chan struct{}, failed func(error) bool, f func() error) error {
	var b Backoff
	for {
		err := f()
		if err == nil || ctx.Err() != nil || !Transient(err) || failed != nil && !failed(err) {
			return err
		}
		if b.Wait(ctx, wake); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Retry makes a call until it is done or fails for good, or ctx ends: then the error
// says for how long there was no answer, and why. Failed, unless it is nil, is told
// why the call has to be made again.
func (c *Conn) Retry(ctx context.Context, failed func(error), f func() error) error {
	u := Unavailability{Since: time.Now()}
	err := Retry(ctx, nil, func(err error) bool {
		u.Add(err)
		if failed != nil {
			failed(err)
		}
		return true
	}, f)
	if err != nil && ctx.Err() != nil {
		return c.Unavailable(u, context.Cause(ctx))
	}
	return err
}

// Ask makes the call of a request, as often as it takes, and reads its reply. The
// request is made anew each time: what it says of lengths of time may have changed.
// Failed and ctx are as in [Conn.Retry]; for a ctx that has ended nothing is sent.
func Ask[R any](ctx context.Context, c *Conn, failed func(error), request func() wire.Request[R]) (reply R, err error) {
	if ctx.Err() != nil {
		return reply, c.Unavailable(Unavailability{Since: time.Now()}, context.Cause(ctx))
	}
	err = c.Retry(ctx, failed, func() (err error) {
		reply, err = AskOnce(ctx, c, request)
		return err
	})
	return reply, err
}

// AskOnce is Ask without another attempt.
func AskOnce[R any](ctx context.Context, c *Conn, request func() wire.Request[R]) (reply R, err error) {
	var q wire.Request[R]
	f, err := c.Call(ctx, func(b wire.Boundaries, _ []wire.Gate) wire.Call {
		q = request()
		return q.Call(b)
	})
	if err != nil {
		return reply, err
	}
	return q.Read(f)
}
