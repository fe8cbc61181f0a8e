package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A slow way holds one script call up before it reaches the server, whose clock has
// gone on by then.
type slowWay struct {
	tap
	skewed
	by atomic.Int64
}

func (w *slowWay) now() int64 { return w.skewed.now() + w.by.Load()/int64(time.Microsecond) }

func (w *slowWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isScript(cmd) {
			time.Sleep(time.Duration(w.by.Swap(0)))
		}
		return next(ctx, cmd)
	}
}

// TestP9_ASlowCallIsNoStep holds a call up for half a second. To the server that looks
// as if its clock had been set forward. The program knows better: nothing moves, and
// places that are cancelled are given back at once.
func TestP9_ASlowCallIsNoStep(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client, way := server.Client(t), &slowWay{}
		client.AddHook(way)
		s := redisstore.NewAt(client, nil, way.now)
		one := charge("one", throttle.PerSecond(1))
		require.Equal(t, time.Duration(0), book(t, s, one))
		way.by.Store(int64(500 * time.Millisecond))
		about(t, span-500*time.Millisecond, book(t, s, one))
		way.by.Store(int64(200 * time.Millisecond))
		k := booking(one)
		g := ask(t, s, k)
		about(t, 2*span-700*time.Millisecond, g.Wait)
		s.Cancel(k, g)
		about(t, 2*span-700*time.Millisecond, book(t, s, one))
	})
}

// TestP9_AStepAfterASlowCall sets the clock forward while a call is held up. That is
// found out all the same.
func TestP9_AStepAfterASlowCall(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client, way := server.Client(t), &slowWay{}
		client.AddHook(way)
		s := redisstore.NewAt(client, nil, way.now)
		one := charge("one", throttle.SlidingWindow(1, time.Hour))
		require.Equal(t, time.Duration(0), book(t, s, one))
		way.step(30 * time.Minute)
		way.by.Store(int64(500 * time.Millisecond))
		about(t, time.Hour+time.Microsecond-500*time.Millisecond, book(t, s, one))
	})
}

// about compares a wait: how far away the server is, a program knows with a little doubt.
func about(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.InDelta(t, want, got, float64(time.Millisecond))
}

// TestP9_ClocksDrift lets the server's clock be a little faster than ours, as all
// clocks are. That is no step: nobody asks back, and a cancelled place is given back.
func TestP9_ClocksDrift(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client, c := server.Client(t), &skewed{}
		_, tap := loaded(t, client, nil)
		s := redisstore.NewAt(client, nil, c.now)
		one := charge("one", throttle.SlidingWindow(1, time.Hour))
		require.Equal(t, time.Duration(0), book(t, s, one))
		tap.names()
		for range 4 {
			time.Sleep(10 * time.Minute)
			c.step(300 * time.Millisecond) // half a thousandth
			k := booking(one)
			g := ask(t, s, k)
			s.Cancel(k, g)
			again := ask(t, s, k)
			require.Equal(t, g.Wait, again.Wait)
			s.Cancel(k, again)
			require.Len(t, tap.names(), 4)
		}
	})
}
