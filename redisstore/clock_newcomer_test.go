package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// onTwoNodes runs f in a bubble with two nodes of one server, which has a clock of its
// own. The second node makes its first call after the clock was set, so it cannot tell
// that it was.
func onTwoNodes(t *testing.T, f func(t *testing.T, old, newcomer *redisstore.Store, c *skewed)) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		c := &skewed{}
		f(t, redisstore.NewAt(server.Client(t), nil, c.now), redisstore.NewAt(server.Client(t), nil, c.now), c)
	})
}

// TestP9_ANewcomerAsksFirstAfterAStepBack books a far start, sleeps until shortly before it,
// and sets the clock back. To the newcomer the far start seems to be as far away as it was
// when it was booked. It gets no start in the gap before it: that would be half a second
// before the far one.
func TestP9_ANewcomerAsksFirstAfterAStepBack(t *testing.T) {
	t.Parallel()
	onTwoNodes(t, func(t *testing.T, old, newcomer *redisstore.Store, c *skewed) {
		one, gate := charge("one", throttle.PerSecond(1)), charge("gate", throttle.PerSecond(1))
		require.Zero(t, book(t, old, one))
		require.NoError(t, old.Pause(t.Context(), gate, 5*time.Second))
		require.Equal(t, 5*time.Second, book(t, old, one, gate))
		time.Sleep(4500 * time.Millisecond)
		c.step(-time.Hour)
		wait := book(t, newcomer, one)
		require.GreaterOrEqual(t, wait, 500*time.Millisecond+span)
		require.LessOrEqual(t, wait, 5*time.Second+span)
	})
}

// TestP9_ANewcomerAsksFirstAfterAStepForward has the newcomer use another budget before the
// old node calls again. The old node's budget has its window by true time all the same,
// and that of the newcomer goes on from where it is.
func TestP9_ANewcomerAsksFirstAfterAStepForward(t *testing.T) {
	t.Parallel()
	onTwoNodes(t, func(t *testing.T, old, newcomer *redisstore.Store, c *skewed) {
		two, other := charge("two", throttle.PerHour(2)), charge("other", throttle.PerSecond(1))
		require.Zero(t, book(t, old, two))
		time.Sleep(50 * time.Minute)
		require.Zero(t, book(t, old, two))
		time.Sleep(5 * time.Minute)
		c.step(10 * time.Minute)
		require.Zero(t, book(t, newcomer, other))
		require.Equal(t, 5*time.Minute+time.Microsecond, book(t, old, two))
		require.Equal(t, span, book(t, newcomer, other))
		require.Equal(t, 2*span, book(t, old, other))
	})
}
