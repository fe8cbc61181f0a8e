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

// TestInFlight_OrderAcrossNodes lets waiters of two nodes come in turn. They are
// woken in that order, whoever ends.
func TestInFlight_OrderAcrossNodes(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
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

// aged is for how long a node that died keeps its room, at the most.
const aged = 30 * time.Second

// TestInFlight_LeaseIsRenewed holds for long, and waits for long: neither is lost.
func TestInFlight_LeaseIsRenewed(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
		k, g := board(t, a, one)
		first, place := lineUp(t, b, one)
		time.Sleep(time.Millisecond)
		_, later := lineUp(t, a, one)
		require.False(t, woken(place, 2*time.Minute))
		refused(t, a, one)
		a.Release(k, g)
		require.True(t, woken(place, soon))
		require.False(t, woken(later, 2*time.Minute), "the room is set aside for the first")
		again(t, b, first, place)
	})
}

// TestInFlight_DeadNodeGivesBack lets a node die that holds, and one that waits
// before another: half a minute later nothing is left of them.
func TestInFlight_DeadNodeGivesBack(t *testing.T) {
	inFlight(t, 2, func(t *testing.T, a, b *cuttable, two throttle.Charge) {
		board(t, b, two)
		board(t, b, two)
		lineUp(t, b, two)
		time.Sleep(3 * time.Second)
		_, first := lineUp(t, a, two)
		time.Sleep(time.Millisecond)
		_, second := lineUp(t, a, two)
		b.cut()
		died := time.Now()
		require.True(t, woken(first, aged))
		require.True(t, woken(second, soon))
		require.Greater(t, time.Since(died), 15*time.Second, "a lease outlives lost renewals")
	})
}

// TestInFlight_LostRenewals cuts a node off for less than its lease.
func TestInFlight_LostRenewals(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
		k, g := board(t, b, one)
		_, place := lineUp(t, a, one)
		for range 20 {
			b.cut()
			require.False(t, woken(place, 14*time.Second))
			b.mend()
			require.False(t, woken(place, 7*time.Second))
		}
		b.Release(k, g)
		require.True(t, woken(place, soon))
	})
}

// TestInFlight_SuspendedNode is silent for longer than its lease, while its
// requests run. When it is back, they count again, and nobody gets room before
// enough have ended.
func TestInFlight_SuspendedNode(t *testing.T) {
	inFlight(t, 2, func(t *testing.T, a, b *cuttable, two throttle.Charge) {
		k1, g1 := board(t, b, two)
		k2, g2 := board(t, b, two)
		b.cut()
		time.Sleep(aged)
		k3, g3 := board(t, a, two)
		b.mend()
		time.Sleep(2 * time.Second)
		refused(t, a, two)
		refused(t, b, two)
		require.Equal(t, 3, status(t, a, two).Used)
		b.Release(k1, g1)
		refused(t, b, two)
		b.Release(k2, g2)
		board(t, b, two)
		refused(t, a, two)
		a.Release(k3, g3)
		board(t, a, two)
	})
}

// TestInFlight_ReleasedWhileAway ends requests while Redis is away: the next
// renewal of what still runs tells.
func TestInFlight_ReleasedWhileAway(t *testing.T) {
	inFlight(t, 2, func(t *testing.T, a, b *cuttable, two throttle.Charge) {
		k, g := board(t, b, two)
		board(t, b, two)
		b.cut()
		start := time.Now()
		b.Release(k, g)
		require.LessOrEqual(t, time.Since(start), 50*time.Millisecond)
		time.Sleep(3 * time.Second)
		refused(t, a, two)
		b.mend()
		time.Sleep(2 * time.Second)
		board(t, a, two)
		refused(t, a, two)
	})
}
