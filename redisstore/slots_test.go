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

// A cuttable is a node whose way to Redis can be cut.
type cuttable struct {
	*redisstore.Store
	says
}

func (n *cuttable) cut()  { n.set(errAway) }
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

// inFlight runs a test with two nodes in virtual time on an empty database.
func inFlight(t *testing.T, test func(t *testing.T, a, b *cuttable)) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		nodes := nodesOf(t, server, 2)
		test(t, nodes[0], nodes[1])
		time.Sleep(2 * time.Second) // calls that are repeated come to their end
	})
}

// ask books and returns the booking, too.
func ask(t *testing.T, s throttle.Store, k *throttle.Booking) throttle.Grant {
	t.Helper()
	g, err := s.Book(t.Context(), k)
	require.NoError(t, err)
	return g
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

// refused books what must not have room, and does not wait.
func refused(t *testing.T, s throttle.Store, charges ...throttle.Charge) {
	t.Helper()
	g := ask(t, s, &throttle.Booking{Charges: charges})
	require.False(t, g.OK)
	require.Nil(t, g.Ready)
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

// TestInFlight_OrderAcrossNodes lets waiters of two nodes come in turn. They are
// woken in that order, whoever ends.
func TestInFlight_OrderAcrossNodes(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
		k, g := board(t, a, one)
		nodes := []*cuttable{b, a, b, b, a}
		var ks []*throttle.Booking
		var gs []throttle.Grant
		for _, s := range nodes {
			k, g := lineUp(t, s, one)
			ks, gs = append(ks, k), append(gs, g)
			time.Sleep(time.Millisecond)
		}
		var s throttle.Store = a
		for i, next := range nodes {
			require.False(t, woken(gs[i], time.Second), "%d before its turn", i)
			s.Release(k, g)
			require.True(t, woken(gs[i], soon), "%d", i)
			s, k, g = next, ks[i], again(t, next, ks[i], gs[i])
		}
		s.Release(k, g)
		time.Sleep(time.Minute)
		require.Zero(t, a.Leases()+b.Leases()+a.Subscriptions()+b.Subscriptions())
	})
}
