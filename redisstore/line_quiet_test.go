package redisstore_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP15_NothingIsLeftOfALine: who left, or started, leaves no timer, no goroutine, no
// subscription and nothing in the store behind.
func TestP15_NothingIsLeftOfALine(t *testing.T) {
	t.Parallel()
	for _, leave := range []bool{true, false} {
		inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
			c := charge("ten", throttle.LeakyBucket(10, time.Second))
			all := crowdOf(t, nodes, 40, 0, c)
			require.Positive(t, nodes[0].Subscriptions())
			require.Equal(t, 1, nodes[0].Lines())
			time.Sleep(time.Second)
			if leave {
				for _, w := range all {
					w.leaves()
				}
			} else {
				allStart(t, 10*time.Second, all...)
			}
			gone(t, nodes[0].Store, nodes[1].Store)
			time.Sleep(time.Second)
			for _, n := range nodes {
				require.Zero(t, n.Subscriptions())
				require.Zero(t, n.Running())
				require.Zero(t, n.Queued())
			}
			st, err := nodes[0].Status(t.Context(), c)
			require.NoError(t, err)
			require.Zero(t, st.Waiting)
			ttl, err := nodes[0].Lifetime(t.Context(), nodes[0].Key(c.Budget))
			require.NoError(t, err)
			require.Less(t, ttl, 2*time.Minute+2*time.Second, "a line that is empty keeps no key")
		})
	}
}

// TestP4_LineMakesFewCalls: those who wait far from their turn make a call now and then,
// however many they are.
func TestP4_LineMakesFewCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), nil)
		c := charge("hour", throttle.PerHour(10))
		all := crowdOf(t, []*cuttable{{Store: s}}, 500, 0, c)
		time.Sleep(time.Minute)
		tap.names()
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, len(tap.names()), 10*60/15+5)
		for _, w := range all {
			w.leaves()
		}
		gone(t, s)
		time.Sleep(time.Minute)
		tap.names()
		time.Sleep(time.Hour)
		require.Empty(t, tap.names())
	})
}

// TestP15_NoGoroutineIsLeftOfALine looks at the program itself, with a real ear.
func TestP15_NoGoroutineIsLeftOfALine(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, nil)
	c := charge("hour", throttle.PerHour(1))
	book(t, s, c)
	before := runtime.NumGoroutine()
	var all []*walker
	for range 20 {
		all = append(all, walks(t, s, throttle.Normal, c))
	}
	require.Equal(t, 20, s.Standing())
	require.Equal(t, 1, s.Subscriptions())
	for _, w := range all {
		w.leaves()
	}
	gone(t, s)
	// The condition has a goroutine of its own.
	require.Eventually(t, func() bool { return s.Subscriptions() == 0 && s.Running() == 0 && runtime.NumGoroutine() <= before+1 }, awaitMost, 10*time.Millisecond)
}
