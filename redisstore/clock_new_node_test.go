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
// own. The new node is to make its first call after the clock was set, so it cannot tell
// that it was.
func onTwoNodes(t *testing.T, f func(t *testing.T, oldNode, newNode *redisstore.Store, c *skewed)) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		c := &skewed{}
		f(t, redisstore.NewAt(server.Client(t), nil, c.now), redisstore.NewAt(server.Client(t), nil, c.now), c)
	})
}

// TestP9_ANewNodeAsksFirstAfterAStepBack books a far start, sleeps until half a second before
// it, and sets the clock back. By the new clock the far start is as far away as when it was
// booked. The new node gets no start in the gap before it.
func TestP9_ANewNodeAsksFirstAfterAStepBack(t *testing.T) {
	t.Parallel()
	onTwoNodes(t, func(t *testing.T, oldNode, newNode *redisstore.Store, c *skewed) {
		one, gate := charge("one", throttle.PerSecond(1)), charge("gate", throttle.PerSecond(1))
		require.Zero(t, book(t, oldNode, one))
		require.NoError(t, oldNode.Pause(t.Context(), gate, 5*time.Second))
		require.Equal(t, 5*time.Second, book(t, oldNode, one, gate))
		time.Sleep(4500 * time.Millisecond)
		c.step(-time.Hour)
		wait := book(t, newNode, one)
		require.GreaterOrEqual(t, wait, 500*time.Millisecond+span)
		require.LessOrEqual(t, wait, 5*time.Second+span)
	})
}

// TestP9_ANewNodeAsksFirstAfterAStepForward has the new node use another budget before the
// old node calls again. The budget of the old node keeps its true window, whichever node asks,
// and callers of the other budget do not wait for the step to be over.
func TestP9_ANewNodeAsksFirstAfterAStepForward(t *testing.T) {
	t.Parallel()
	onTwoNodes(t, func(t *testing.T, oldNode, newNode *redisstore.Store, c *skewed) {
		two, other := charge("two", throttle.PerHour(2)), charge("other", throttle.PerSecond(1))
		require.Zero(t, book(t, oldNode, two))
		time.Sleep(50 * time.Minute)
		require.Zero(t, book(t, oldNode, two))
		time.Sleep(5 * time.Minute)
		c.step(10 * time.Minute)
		require.Zero(t, book(t, newNode, other))
		require.Equal(t, 5*time.Minute+time.Microsecond, book(t, oldNode, two))
		require.Equal(t, span, book(t, newNode, other))
		require.Equal(t, 55*time.Minute+time.Microsecond, book(t, newNode, two))
	})
}
