package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP2_EachHasItsOwnSpread: callers that share a call do not share the room
// that one of them needs behind its start.
func TestP2_EachHasItsOwnSpread(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), isScript)
		two := charge("two", throttle.PerSecond(2))
		first := bookAside(t.Context(), s, booking(charge("other", throttle.PerSecond(1))))
		narrow := bookAside(t.Context(), s, booking(two)) // waits for the next call, as does
		k := booking(two)
		k.Spread = 100 * time.Millisecond
		wide := bookAside(t.Context(), s, k)
		close(tap.pass)
		synctest.Wait()
		for _, got := range []**outcome{first, narrow, wide} {
			require.NoError(t, (*got).err)
			require.Zero(t, (*got).grant.Wait)
		}
		require.Len(t, tap.names(), 2)
		require.Equal(t, k.Spread+span, book(t, s, two))
	})
}
