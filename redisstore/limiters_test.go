package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP1_LimitersOfAFleet: two nodes take from three budgets in one call each, all or
// nothing; a penalty of one holds the other's, also a permit that is renewed.
func TestP1_LimitersOfAFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) { // where no answer is late, so no call is made twice
		client := server.Client(t)
		store := redisstore.NewAt(client, nil, bubbleClock)
		book(t, store, charge("first", throttle.PerSecond(1))) // loads the script
		tap := newTap(client, nil)
		var mu sync.Mutex
		var closed []throttle.Event
		policies := []throttle.Policy{
			{Name: "queries", Limit: throttle.PerHour(10)},
			{Name: "tenant", Limit: throttle.PerHour(3)},
			{Name: "at once", Limit: throttle.Concurrency(2)},
		}
		here, err := throttle.NewLimiters(throttle.Config{Store: store, Policies: policies, MaxWait: -1, Observe: func(_ context.Context, e throttle.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == throttle.Closed {
				closed = append(closed, e)
			}
		}})
		require.NoError(t, err)
		there, err := throttle.NewLimiters(throttle.Config{Store: redisstore.NewAt(server.Client(t), nil, bubbleClock), Policies: policies, MaxWait: -1})
		require.NoError(t, err)
		acquire := func(l *throttle.Limiters, tenant string) (*throttle.Permit, error) {
			return l.Acquire(t.Context(), throttle.Demand{Policy: "queries"}, throttle.Demand{Policy: "tenant", Key: tenant}, throttle.Demand{Policy: "at once"})
		}
		used := func(policy, key string) int {
			one, err := here.Limiter(policy)
			require.NoError(t, err)
			st, err := one.Status(t.Context(), key)
			require.NoError(t, err)
			return st.Used
		}

		first, err := acquire(here, "a")
		require.NoError(t, err)
		require.Len(t, tap.names(), 1, "one round trip")
		second, err := acquire(there, "a")
		require.NoError(t, err)
		_, err = acquire(here, "b")
		require.EqualError(t, err, `throttle: policy "at once" (2 in flight): no room yet, but may not wait at all`)
		require.Equal(t, []int{2, 2, 0, 2}, []int{used("queries", ""), used("tenant", "a"), used("tenant", "b"), used("at once", "")})

		second.Release()
		require.Eventually(t, func() bool { return used("at once", "") == 1 }, 10*time.Second, time.Millisecond)
		require.NoError(t, second.Penalize(t.Context(), time.Minute, "tenant"))
		_, err = acquire(here, "a")
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.True(t, limited.Paused)
		require.Equal(t, "tenant", limited.Policy)
		third, err := acquire(here, "b")
		require.NoError(t, err, "another tenant's budget is open")
		require.NoError(t, third.SettleBudget(t.Context(), "tenant", "b", 3))
		third.Release()
		require.Equal(t, 3, used("tenant", "b"))
		mu.Lock()
		require.Len(t, closed, 1)
		require.InDelta(t, time.Minute, closed[0].Duration, float64(30*time.Second))
		mu.Unlock()

		// What was prepared meanwhile must not be sent any more, and gives back what it had.
		require.Eventually(t, func() bool { return first.Renew(t.Context()) != nil }, 10*time.Second, 10*time.Millisecond)
		require.Eventually(t, func() bool { return used("at once", "") == 0 && used("queries", "") == 2 }, 10*time.Second, time.Millisecond)
	})
}
