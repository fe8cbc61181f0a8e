package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP11_AShareBeginsClosed: a penalty was stored before Redis went away, and
// nobody waits for its end. Who asks for a start of the node's share gets none
// before.
func TestP11_AShareBeginsClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		c := newSharers(t, server, 1, share, forty)
		one := charge("one", throttle.PerSecond(40))
		node := c.nodes[0]
		require.Zero(t, book(t, node.store, one))
		time.Sleep(5 * time.Second)
		end := time.Now().Add(time.Minute)
		require.NoError(t, node.store.Pause(t.Context(), one, time.Minute))
		away(false, node)
		k := booking(one)
		k.MaxWait = 0
		var last throttle.Grant
		var err error
		for range 30 {
			time.Sleep(time.Second)
			last, err = node.store.Book(t.Context(), k)
			require.False(t, last.OK)
		}
		require.NoError(t, err, "the node has its share by now")
		require.Equal(t, time.Until(end), last.Wait)
		require.True(t, last.Paused)
		back(node)
		c.end()
	})
}
