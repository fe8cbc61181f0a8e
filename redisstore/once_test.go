package redisstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP8_LeavesOnTheWay replaces a start and leaves before the answer comes. Both
// the old place and the new one are given back, each once.
func TestP8_LeavesOnTheWay(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), isScript)
		five := charge("five", throttle.PerSecond(5))
		var grants []**outcome
		for range 5 {
			grants = append(grants, bookAside(t.Context(), s, booking(five)))
		}
		for range 2 {
			tap.pass <- struct{}{}
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		k := booking(five)
		k.Instead = (*grants[0]).grant.Handle
		got := bookAside(ctx, s, k)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, (*got).err, context.Canceled)
		close(tap.pass)
		synctest.Wait()
		require.Equal(t, time.Duration(0), book(t, s, five))
		require.Equal(t, span, book(t, s, five))
	})
}
