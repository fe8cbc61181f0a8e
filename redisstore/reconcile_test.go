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

// state tells a store what an upstream says.
func state(t *testing.T, s throttle.Store, c throttle.Charge, left int, reset time.Duration) {
	t.Helper()
	require.NoError(t, s.Reconcile(t.Context(), c, throttle.Quota{Left: left, Reset: reset}))
}

// TestP11_ReconcileReachesOthers has one program hear that little is left. Of the
// sleepers of another those book anew that no longer fit, at once.
func TestP11_ReconcileReachesOthers(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	a, b := redisstore.New(client, nil), redisstore.New(client, nil)
	hourly := charge("a name with spaces", throttle.PerHour(10))
	var watches []throttle.Watch
	var news []chan struct{}
	for i := range 2 {
		k := booking(hourly)
		k.NotBefore = time.Duration(1+i) * time.Minute
		g, err := b.Book(t.Context(), k)
		require.NoError(t, err)
		news = append(news, make(chan struct{}, 1))
		watches = append(watches, b.Watch(k, g, news[i]))
		defer watches[i].Stop()
	}
	listeners(t, client, 1)
	state(t, a, hourly, 1, time.Hour)
	<-news[1]
	require.Empty(t, news[0])
	for i, want := range []bool{true, false} {
		ok, err := watches[i].Confirm(t.Context(), -1)
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
}

// TestP9_ReconcileAfterALoss has a program hear what is left of a budget that Redis
// has forgotten. Its own starts, which the next booking restores, are not taken for
// those of others.
func TestP9_ReconcileAfterALoss(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		c := charge("budget", throttle.SlidingWindow(100, time.Minute))
		c.Cost = 60
		require.Zero(t, book(t, s, c))
		require.NoError(t, client.FlushDB(t.Context()).Err())
		state(t, s, c, 40, time.Minute)
		c.Cost = 40
		require.Equal(t, telling, bookLost(t, s, c))

		// What others spent is forgotten with the budget, and said again.
		c = charge("other", throttle.SlidingWindow(100, time.Minute))
		require.Zero(t, book(t, s, c))
		state(t, s, c, 9, time.Minute)
		require.NoError(t, client.FlushDB(t.Context()).Err())
		require.Equal(t, telling, bookLost(t, s, c))
		state(t, s, c, 8, time.Minute)
		c.Cost = 9
		require.Equal(t, time.Minute-telling+time.Microsecond, book(t, s, c), "booked when the loss was found")
	})
}

// TestP10_Reconcile hears of something else all the time.
func TestP10_Reconcile(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, limit := range []throttle.Limit{
		throttle.PerMinute(100), throttle.SlidingWindow(1<<40, time.Hour), throttle.FixedWindow(1_000_000, time.Minute),
		throttle.TokenBucket(1, time.Minute, 100_000),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				s, _ := loaded(t, client, nil)
				c := charge("budget", limit)
				for i := range 1000 {
					state(t, s, c, limit.Capacity()-i*limit.Capacity()/1000, time.Duration(i%59)*time.Second+time.Duration(i)*time.Microsecond)
					time.Sleep(37 * time.Millisecond)
					if i%50 == 0 {
						requireSmall(t, client)
					}
				}
				requireSmall(t, client)
			})
		})
	}
}

// TestNode_Reconcile lowers what this node has, and no other.
func TestNode_Reconcile(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		a, tap := loaded(t, client, nil)
		b := redisstore.NewAt(client, nil, bubbleClock)
		mine := own(charge("mine", throttle.PerSecond(1)))
		state(t, a, mine, 0, time.Second)
		require.Equal(t, time.Second, book(t, a, mine))
		require.Zero(t, book(t, b, mine))
		require.Empty(t, tap.names())
	})
}

// TestP4_NothingToTell makes no call for limits that know of no rest, and without a
// reset.
func TestP4_NothingToTell(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), nil)
		state(t, s, charge("paced", throttle.LeakyBucket(1, time.Second)), 0, time.Second)
		state(t, s, charge("flying", throttle.Concurrency(1)), 0, time.Second)
		state(t, s, charge("sliding", throttle.PerSecond(1)), 0, 0)
		require.Empty(t, tap.names())
	})
}
