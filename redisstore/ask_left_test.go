package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP12_WhoLeavesTakesNobodyAlong: while a question is on its way somebody asks the
// next one and leaves. Who comes then is not told that somebody's context ended.
func TestP12_WhoLeavesTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		s, tap := loaded(t, server.Client(t), func(cmd redis.Cmder) bool { return slow.Load() && isScript(cmd) })
		one := charge("one", throttle.PerSecond(1))
		book(t, s, one)
		s.Disconnect() // so it asks
		k := booking(one)
		g := ask(t, s, k)
		confirm := func(ctx context.Context) <-chan error {
			answer := make(chan error, 1)
			go func() {
				w := s.Watch(k, g, make(chan struct{}, 1))
				defer w.Stop()
				_, err := w.Confirm(ctx, -1)
				answer <- err
			}()
			synctest.Wait()
			return answer
		}
		slow.Store(true)
		first := confirm(t.Context())
		ctx, leave := context.WithCancel(t.Context())
		left := confirm(ctx)
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		stays := confirm(t.Context())
		close(tap.pass)
		require.NoError(t, <-first)
		require.NoError(t, <-stays)
	})
}
