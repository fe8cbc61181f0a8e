package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP5_TenThousandWaiters has ten thousand callers of one process wait for one
// budget. All are served, none too early, with few calls.
func TestP5_TenThousandWaiters(t *testing.T) {
	const waiters, limit = 10_000, 4000
	client := redistest.Single(t).Client(t)
	trips := &Trips{}
	client.AddHook(trips)
	store := recorder{redisstore.New(client, redisstore.Options{})}
	l, err := throttle.NewLimiter(store, throttle.Policy{Name: "crowd", Limit: throttle.PerSecond(limit), Jitter: -1})
	require.NoError(t, err)
	calls, errs := make([]call, waiters), make([]error, waiters)
	var callers sync.WaitGroup
	for i := range waiters {
		callers.Go(func() {
			_, errs[i] = l.Acquire(throttle.WithMaxWait(context.WithValue(t.Context(), callKey{}, &calls[i]), throttle.Forever), "", 1)
		})
	}
	callers.Wait()
	require.NoError(t, errors.Join(errs...))
	starts := make([]time.Duration, waiters)
	for i := range starts {
		starts[i] = time.Duration(calls[i].start.Load())
	}
	require.LessOrEqual(t, stat.Most(starts, time.Second), limit)
	require.Less(t, trips.Count(), waiters/4)
}

// TestP7_AThousandCancellationsASecond lets callers come and leave at that rate for
// two seconds, in a queue that never moves far enough for them. The next caller is
// no worse off.
func TestP7_AThousandCancellationsASecond(t *testing.T) {
	store := recorder{redisstore.New(redistest.Single(t).Client(t), redisstore.Options{})}
	l, err := throttle.NewLimiter(store, throttle.Policy{Name: "leavers", Limit: throttle.PerSecond(5), Jitter: -1})
	require.NoError(t, err)
	var callers sync.WaitGroup
	every := time.NewTicker(ms)
	defer every.Stop()
	for range 2000 {
		<-every.C
		callers.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer time.AfterFunc(100*ms, leave).Stop()
			_, _ = l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1) // nearly all leave
		})
	}
	callers.Wait()
	status, err := l.Status(t.Context(), "")
	for err == nil && status.Waiting > 0 { // a store that is busy is told in the background
		status, err = l.Status(t.Context(), "")
	}
	require.NoError(t, err)
	require.LessOrEqual(t, status.Used, 5)
	require.LessOrEqual(t, status.Wait, time.Second+time.Microsecond)
	next := &call{}
	_, err = l.Acquire(throttle.WithMaxWait(context.WithValue(t.Context(), callKey{}, next), throttle.Forever), "", 1)
	require.NoError(t, err)
	require.LessOrEqual(t, next.start.Load()-next.booked.Load(), int64(time.Second+50*ms), "two clocks of one machine")
}
