// Package conn calls scripts in Redis. It makes a call again that has no answer,
// explains why a Redis does not answer, and hides the client:
// topology, script cache, and the secrets in its errors.
package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A Conn is the way to one Redis, or one cluster.
type Conn struct {
	// Now tells the scripts the time in microseconds. Without a Now they ask the server.
	Now func() int64

	textIsRead atomic.Bool // a proxy reads the text of scripts: it gets the form of Script.Keyed
	keyed      sync.Map    // scripts in that form, by the hash of the usual one

	client   redis.UniversalClient
	admitted sync.Map     // by address of a server: when it was found to be able to keep budgets
	skew     atomic.Int64 // the server's clock less ours, in microseconds: a guess
	clocked  atomic.Bool  // skew is known
	askedAt  atomic.Int64 // when the oldest call was sent that has no answer, or 0 if Redis answered since
	heardAt  atomic.Int64 // when Redis answered last, in nanoseconds, or 0 if a call failed since
}

// New returns a Conn that uses a client.
func New(client redis.UniversalClient) *Conn { return &Conn{client: client} }

// learnTime takes in the server's time, in microseconds, as an answer tells it.
func (c *Conn) learnTime(now int64) {
	c.skew.Store(now - time.Now().UnixMicro())
	c.clocked.Store(true)
}

// CutOff is by how much the server's time in an answer may be too early. Dragonfly tells scripts whole
// milliseconds; a time that has no fraction of one may come from such a server.
func (c *Conn) CutOff(now int64) time.Duration {
	if c.Now != nil || now%time.Millisecond.Microseconds() != 0 {
		return 0
	}
	return time.Millisecond
}

// now is the time for the scripts; "" lets them ask the server.
func (c *Conn) now() any {
	if c.Now == nil {
		return ""
	}
	return c.Now()
}

// Unheard is for how long Redis has not answered a call. After a call that
// failed it is forever.
func (c *Conn) Unheard() time.Duration {
	// A failed call has set heardAt to 0: it is not known since when Redis is away.
	if c.heardAt.Load() == 0 {
		return store.MaxAhead
	}
	if at := c.askedAt.Load(); at != 0 {
		return time.Duration(time.Now().UnixNano() - at)
	}
	return 0
}

// Publish sends a message.
func (c *Conn) Publish(ctx context.Context, channel, message string) error {
	return c.client.Publish(ctx, channel, message).Err()
}

// Subscribe returns nil where there is nobody to listen to: a ring panics when it
// has no shard that answers.
func (c *Conn) Subscribe(ctx context.Context, channels ...string) (sub *redis.PubSub) {
	// The panic of a ring without shards is the same as nobody to listen to.
	defer func() {
		if recover() != nil {
			sub = nil
		}
	}()
	return c.client.Subscribe(ctx, channels...)
}

// DB is the number of the logical database. Those of one server share its channels.
func (c *Conn) DB() int {
	switch c := c.client.(type) {
	case *redis.Client:
		return c.Options().DB
	case *redis.Ring:
		return c.Options().DB
	}
	return 0
}

// Single reports whether the client is for a server that is part of no cluster.
func (c *Conn) Single() bool {
	_, single := c.client.(*redis.Client)
	return single
}

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

		// A failure that may pass is tried again, unless the caller is told of it and wants no more.
		if err == nil || ctx.Err() != nil || !Transient(err) || failed != nil && !failed(err) {
			return err
		}
		b.Wait(ctx, wake)

		// The context's own cause says more than the last failure.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Retry makes a call until it is done or fails for good, or ctx ends: then the error
// says for how long there was no answer, and why. Failed, unless it is nil, is told
// why the call has to be made again.
func (c *Conn) Retry(ctx context.Context, failed func(error), f func() error) error {
	// The time from the first attempt on goes into the error of a caller that leaves.
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
// request is made anew each time: the lengths of time in it may have changed.
// Failed and ctx are as in [Conn.Retry]; for a ctx that has ended nothing is sent.
func Ask[R any](ctx context.Context, c *Conn, failed func(error), request func() wire.Request[R]) (reply R, err error) {
	if ctx.Err() != nil {
		// A context that has ended would send a call whose answer nobody waits for.
		return reply, c.Unavailable(Unavailability{Since: time.Now()}, context.Cause(ctx))
	}
	err = c.Retry(ctx, failed, func() (err error) {
		reply, err = AskOnce(ctx, c, request)
		return err
	})
	return reply, err
}

// AskOnce is Ask with a single attempt.
func AskOnce[R any](ctx context.Context, c *Conn, request func() wire.Request[R]) (reply R, err error) {
	var q wire.Request[R]

	// The reply belongs to the request that was sent last.
	f, err := c.Call(ctx, func(b wire.Boundaries, _ []wire.Gate) wire.Call {
		q = request()
		return q.Call(b)
	})
	if err != nil {
		return reply, err
	}
	return q.Read(f)
}
