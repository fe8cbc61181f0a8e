package redisstore_test

import (
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// free is a charge of an unlimited budget.
func free(name string) throttle.Charge { return charge(name, throttle.Unlimited()) }

// commands says how often a server has run some commands.
func commands(t *testing.T, c *redis.Client, names ...string) (counts []int) {
	info, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, name := range names {
		n := 0
		if m := regexp.MustCompile(`cmdstat_` + name + `:calls=(\d+)`).FindStringSubmatch(info); m != nil {
			n, err = strconv.Atoi(m[1])
			require.NoError(t, err)
		}
		counts = append(counts, n)
	}
	return counts
}

// TestP4_UnlimitedIsReadOnce books unlimited budgets alone, and beside one that has a
// number, and counts what Redis does for that: one look at each, and nothing is written
// but the record of the call and the row of the one.
func TestP4_UnlimitedIsReadOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		require.NoError(t, client.FlushDB(t.Context()).Err())
		all := []throttle.Charge{free("a"), free("b"), free("c"), free("d"), free("e")}
		one := charge("one", throttle.PerSecond(1000))
		does := func(want []int, do func()) {
			t.Helper()
			names := []string{"getrange", "get", "set", "setrange", "append", "del", "pexpire"}
			before := commands(t, client, names...)
			do()
			for i, n := range commands(t, client, names...) {
				require.Equal(t, want[i], n-before[i], names[i])
			}
		}
		for range 3 {
			does([]int{5, 1, 1, 0, 0, 0, 0}, func() { require.Zero(t, book(t, s, all...)) })
		}
		keys, err := client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 1, "the record")

		does([]int{1, 1, 2, 0, 0, 0, 0}, func() { book(t, s, one) })
		time.Sleep(2 * time.Second)
		does([]int{6, 1, 2, 0, 0, 0, 0}, func() { book(t, s, append(all, one)...) })
		require.NoError(t, s.Resume(t.Context(), all[0]))
		require.NoError(t, s.Reconcile(t.Context(), all[0], throttle.Quota{Reset: time.Hour}))
		keys, err = client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 2, "and the one")
	})
}

// TestP4_UnlimitedCallsTwiceOnce books while an unlimited budget is closed. A program that
// does not know that makes one call more, the first time.
func TestP4_UnlimitedCallsTwiceOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, tap := loaded(t, client, nil)
		other := atRest(t, redisstore.NewAt(server.Client(t), nil, bubbleClock))
		row, one := free("row"), charge("one", throttle.PerSecond(1))
		require.NoError(t, other.Pause(t.Context(), row, time.Minute))
		calls := func(want int) {
			t.Helper()
			require.Len(t, tap.names(), want)
		}
		require.Equal(t, time.Minute, book(t, s, one, row))
		calls(2)
		require.Equal(t, time.Minute+time.Second+time.Microsecond, book(t, s, one, row))
		calls(1)
		time.Sleep(time.Minute + 250*time.Millisecond)
		require.Zero(t, book(t, s, row))
		calls(1)
		require.NoError(t, s.Pause(t.Context(), row, time.Second))
		calls(1)
		require.Equal(t, time.Second, book(t, s, row))
		calls(1) // it closed the budget itself
		require.NoError(t, other.Resume(t.Context(), row))
		require.Zero(t, book(t, s, row))
		calls(1)
	})
}
