package fleet

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A spy is a Store that tells of its grants and counts those given back.
type spy struct {
	throttle.Store
	booked    chan throttle.Grant
	cancelled atomic.Int64
}

// spyOn returns a spy that can tell of n grants before somebody listens.
func spyOn(s throttle.Store, n int) *spy {
	return &spy{Store: s, booked: make(chan throttle.Grant, n)}
}

func (s *spy) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if err == nil && g.OK {
		s.booked <- g
	}
	return g, err
}

func (s *spy) Cancel(b *throttle.Booking, g throttle.Grant) {
	s.cancelled.Add(1)
	s.Store.Cancel(b, g)
}

// longest receives n grants and returns the longest wait among them.
func (s *spy) longest(n int) time.Duration {
	var longest time.Duration
	for range n {
		longest = max(longest, (<-s.booked).Wait)
	}
	return longest
}

// Key "a" has a queue of ten seconds, booked in the budget that it shares with
// key "b". Half of that budget is free, and key "b" has it at once. Without
// jitter no grant is ever too old, so each caller books once, however busy the
// machine is.
func TestP5_WideBudget(t *testing.T) {
	store := spyOn(redisstore.New(redistest.Single(t).Client(t), nil), 100)
	transport, err := throttle.New(throttle.Config{
		Store: store,
		Policies: []throttle.Policy{
			{Name: "key", Key: throttle.Header(KeyHeader), Limit: throttle.PerSecond(5), Jitter: -1},
			{Name: "wide", Limit: throttle.PerSecond(10), Jitter: -1},
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
	for range 51 {
		call("a")
	}
	require.Greater(t, store.longest(51), 9900*ms)
	for range 5 {
		call("b")
		require.Zero(t, (<-store.booked).Wait)
	}
	leave()
	callers.Wait()
}

// A gaveBack is a hook for a Redis client that tells of each start that the
// server has taken back. Its script is the only one that returns one number.
type gaveBack struct {
	Trips
	done chan struct{}
}

func (h *gaveBack) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if script, ok := cmd.(*redis.Cmd); ok && err == nil {
			if v, err := script.Int64Slice(); err == nil && len(v) == 1 {
				h.done <- struct{}{}
			}
		}
		return err
	}
}

// A queue of 200 seconds leaves. Nothing of it stays booked, and who comes next
// waits for those at most that really started.
func TestP7_CancelledWaiters(t *testing.T) {
	const waiters = 1000
	client := redistest.Single(t).Client(t)
	back := &gaveBack{done: make(chan struct{}, waiters)}
	client.AddHook(back)
	store := spyOn(redisstore.New(client, nil), waiters+1)
	l, err := throttle.NewLimiter(store, throttle.Policy{Name: "queue", Limit: throttle.PerSecond(5), Jitter: -1})
	require.NoError(t, err)

	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range waiters {
		callers.Go(func() {
			// The first few succeed, the others are told to leave.
			_, _ = l.Acquire(ctx, "", 1)
		})
	}
	queue := store.longest(waiters)
	t.Logf("a queue of %v", queue)
	require.Greater(t, queue, 190*time.Second)
	leave()
	callers.Wait()
	for range store.cancelled.Load() {
		<-back.done
	}

	status, err := l.Status(t.Context(), "")
	require.NoError(t, err)
	t.Logf("after %d left: %+v", store.cancelled.Load(), status)
	require.Zero(t, status.Waiting)
	_, err = l.Acquire(t.Context(), "", 1)
	require.NoError(t, err)
	require.LessOrEqual(t, store.longest(1), time.Second)
}
