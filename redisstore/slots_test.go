package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A cuttable is a node whose way to Redis can be cut.
type cuttable struct {
	*redisstore.Store
	says
	trace *lineTrace // nil: its calls are not checked
}

func (n *cuttable) cut() { n.set(errAway) }

func (n *cuttable) mend() { n.err.Store(nil) }

// nodesOf returns some nodes in virtual time.
func nodesOf(t *testing.T, server *redistest.Server, count int) []*cuttable {
	nodes := make([]*cuttable, count)
	for i := range nodes {
		client := server.Client(t)
		nodes[i] = &cuttable{Store: redisstore.NewAt(client, nil, bubbleClock)}
		client.AddHook(nodes[i])
	}
	return nodes
}

// inFlight runs a test in virtual time with two nodes and a budget of n in flight.
func inFlight(t *testing.T, n int, test func(t *testing.T, a, b *cuttable, c throttle.Charge)) {
	t.Helper()
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		nodes := nodesOf(t, server, 2)
		test(t, nodes[0], nodes[1], charge("flying", throttle.Concurrency(n)))
		time.Sleep(2 * time.Second) // calls that are repeated come to their end
	})
}

// board books what must have room at once.
func board(t *testing.T, s throttle.Store, charges ...throttle.Charge) (*throttle.Booking, throttle.Grant) {
	t.Helper()
	k := booking(charges...)
	g := ask(t, s, k)
	require.True(t, g.OK, "%+v", g)
	require.Zero(t, g.Wait)
	return k, g
}

// lineUp books what must not have room.
func lineUp(t *testing.T, s throttle.Store, charges ...throttle.Charge) (*throttle.Booking, throttle.Grant) {
	t.Helper()
	k := booking(charges...)
	g := ask(t, s, k)
	require.False(t, g.OK)
	require.NotNil(t, g.Ready)
	require.NotZero(t, g.Handle.Place)
	return k, g
}

// woken reports whether the place's turn comes within d.
func woken(g throttle.Grant, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-g.Ready:
		return true
	case <-timer.C:
	}
	select {
	case <-g.Ready:
		return true
	default:
		return false
	}
}

// soon is how long a message takes in virtual time, at the most.
const soon = 100 * time.Millisecond

// again books with the place in line, which must have room.
func again(t *testing.T, s throttle.Store, k *throttle.Booking, g throttle.Grant) throttle.Grant {
	t.Helper()
	k.Instead = g.Handle
	g = ask(t, s, k)
	k.Instead = throttle.Handle{}
	require.True(t, g.OK)
	require.Zero(t, g.Wait)
	return g
}
