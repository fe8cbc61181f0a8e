package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// aged is for how long a node that died keeps its room, at the most.
const aged = 30 * time.Second

// TestInFlight_LeaseIsRenewed holds for long, and waits for long: neither is lost.
func TestInFlight_LeaseIsRenewed(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
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
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		two := charge("two", throttle.Concurrency(2))
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
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
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
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		two := charge("two", throttle.Concurrency(2))
		k1, g1 := board(t, b, two)
		k2, g2 := board(t, b, two)
		b.cut()
		time.Sleep(aged)
		k3, g3 := board(t, a, two)
		b.mend()
		time.Sleep(2 * time.Second)
		refused(t, a, two)
		refused(t, b, two)
		st, err := a.Status(t.Context(), two)
		require.NoError(t, err)
		require.Equal(t, 3, st.Used)
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
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		two := charge("two", throttle.Concurrency(2))
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
