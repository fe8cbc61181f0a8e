package fleet

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// A call has the times of one request. Its context carries it.
type call struct {
	booked atomic.Int64 // see Sample.Booked
	start  atomic.Int64 // see Sample.Start
	served atomic.Int64 // see Sample.Served
}

type callKey struct{}

// noted returns the request's call, or a call that nobody reads.
func noted(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// A recorder is a Store that notes in the request's call when its start is. It
// relies on what redisstore and memstore do with [store.Handle.Start]: it is
// the start in microseconds of the store's clock. A later grant for the same
// call replaces the earlier one, so a grant that was given back leaves nothing.
type recorder struct{ throttle.Store }

// Book books, and records the start in the context's call.
func (r recorder) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := r.Store.Book(ctx, b)

	// An answer without a start, such as a place in line, says nothing of when the call starts.
	if err == nil && g.OK {
		c := noted(ctx)
		c.booked.Store(int64(Now()))
		c.start.Store(int64(time.Duration(g.Handle.Start) * time.Microsecond))
	}
	return g, err
}

// Trips is a hook for a Redis client that counts round trips: a command is one,
// and so is a pipeline. What a new connection says first does not count.
type Trips struct{ n atomic.Int64 }

// Count returns how many round trips there were.
func (t *Trips) Count() int { return int(t.n.Load()) }

// DialHook changes nothing.
func (t *Trips) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts a command.
func (t *Trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.count(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts a pipeline.
func (t *Trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.count(cmds...)
		return next(ctx, cmds)
	}
}

// count counts one round trip, unless all commands belong to a new connection.
func (t *Trips) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		switch cmd.Name() {
		// The client says these by itself on a new connection.
		case "hello", "auth", "select", "client":
		default:
			t.n.Add(1)
			return
		}
	}
}

// roundTripper is a function that is an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begun is the program's only look at the wall clock, so that a step of it
// during a run moves nothing.
var begun = time.Now()

// Now returns the time since the Unix epoch.
func Now() time.Duration { return time.Duration(begun.UnixNano()) + time.Since(begun) }
