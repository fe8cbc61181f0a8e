package fleet

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A spy is a Store that tells each caller's first grant, a start or a place in line,
// and which start was booked last.
type spy struct {
	throttle.Store
	booked chan store.Grant
	last   *atomic.Pointer[store.Grant]
}

// spyOn returns a spy that can tell of n grants before somebody listens.
func spyOn(s throttle.Store, n int) spy {
	return spy{s, make(chan store.Grant, n), new(atomic.Pointer[store.Grant])}
}

func (s spy) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if err == nil && g.OK {
		s.last.Store(&g)
	}
	if err == nil && !b.Returns && (g.OK || g.Ready != nil) {
		s.booked <- g
	}
	return g, err
}

// queue receives n grants. It returns the last start among those that had not
// to wait, and the longest wait of the others.
func (s spy) queue(n int) (started int64, longest time.Duration) {
	for range n {
		g := <-s.booked
		if g.OK && g.Wait == 0 {
			started = max(started, g.Handle.Start)
		}
		longest = max(longest, g.Wait)
	}
	return started, longest
}

// Key "a" has a queue of ten seconds, and shares a budget with key "b". Half of
// that budget is free, and key "b" has it at once, though the queue is older.
func TestP5_WideBudget(t *testing.T) {
	store := spyOn(redisstore.New(redistest.Single(t).Client(t), redisstore.Options{}), 100)
	transport, err := throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   store,
		Policies: []throttle.Policy{
			{Name: "key", Match: "/", Key: throttle.Header(KeyHeader), Limit: throttle.PerSecond(5), Jitter: -1},
			{Name: "wide", Match: "/", Limit: throttle.PerSecond(10), Jitter: -1},
		},
		Base: roundTripper(answer),
	})
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	call := func(key string) {
		callers.Go(func() {
			// Those that wait in the end are told to leave: any error is right.
			_ = orders{}.send(ctx, &http.Client{Transport: transport}, Sample{Key: key})
		})
	}
	begin := time.Now()
	for range 51 {
		call("a")
	}
	_, queue := store.queue(51)
	require.Greater(t, queue, 9900*ms-time.Since(begin), "the first one cannot have started before them all")
	for range 5 {
		call("b")
		require.Zero(t, (<-store.booked).Wait)
	}
	leave()
	callers.Wait()
}

// A queue of 200 seconds leaves. Nothing of it stays booked: the next
// caller waits at most for the requests that really started.
func TestP7_CancelledWaiters(t *testing.T) {
	const waiters = 1000
	store := spyOn(redisstore.New(redistest.Single(t).Client(t), redisstore.Options{}), waiters+1)
	l, err := throttle.NewLimiter(store, throttle.Policy{Name: "queue", Limit: throttle.PerSecond(5), Jitter: -1})
	require.NoError(t, err)

	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	begin := time.Now()
	for range waiters {
		callers.Go(func() {
			// The first few succeed, the others are told to leave.
			_, _ = l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		})
	}
	started, queue := store.queue(waiters)
	require.Greater(t, queue, 190*time.Second-time.Since(begin))
	leave()
	callers.Wait()

	// A store that is busy is told of some of them in the background.
	status, err := l.Status(t.Context(), "")
	for err == nil && status.Waiting > 0 {
		status, err = l.Status(t.Context(), "")
	}
	require.NoError(t, err)
	_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	next := store.last.Load()
	t.Logf("a queue of %v left; the next starts %d µs after the last that started, in %v", queue, next.Handle.Start-started, next.Wait)
	// Measured from start to start by the store's clock. A caller that need
	// not wait at all may come any time later.
	if next.Wait > 0 {
		require.LessOrEqual(t, next.Handle.Start-started, time.Second.Microseconds()+1)
	}
}
