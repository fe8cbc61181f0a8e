package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// lineSlack is how far a line of several programs may be from the perfect one: they are called
// by their own timers, a little after their turn has come.
//
// In some cases it is further: those who come back at one moment, after a pause or with a
// start that they give up, find that others whose turn had come were called already; see
// docs/internals/line.md.
var lineSlack = storetest.Slack{
	Order: 300 * time.Millisecond,
	Start: 100 * time.Millisecond,
	Not: []string{
		"P5_LineReturns", "P5_LineCalledAndLate", "P5_LineAndLoweredLimit", "P11_LineAndPause", "P11_LineAndResume",
	},
}

// TestContract runs the whole contract on a real server.
func TestContract(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	storetest.RunWithin(t, lineSlack, func(t *testing.T) store.Store {
		if !strings.Contains(t.Name(), "Crowd") {
			soak.WithoutRace(t) // only in a crowd callers come at the same time; other tests have several programs
		}
		client := server.Client(t)
		forgets(t, client)
		return atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
	})
}

// TestMain stops the shared server, and fails if a goroutine of the store is
// still there when all tests are over.
func TestMain(m *testing.M) {
	code := redistest.Main(m)
	if left := leaked(inTheEnd); left != "" {
		fmt.Fprintln(os.Stderr, "P15 broken: goroutines outlive the tests:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines that the store started and that do not
// end, however long one waits.
func leaked(patience time.Duration) (left string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		buf := make([]byte, 1<<20)
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "throttle/redisstore.") || strings.Contains(g, "throttle/redisstore/internal") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			break
		}
	}
	return left
}

// TestP1_LimitersOfAFleet: two nodes take from three budgets in one call each, all or
// nothing; a penalty of one holds the other's, also a permit that is renewed.
func TestP1_LimitersOfAFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) { // where no answer is late, so no call is made twice
		client := server.Client(t)
		s := redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
		book(t, s, charge("first", store.PerSecond(1))) // loads the script
		tap := newTap(client, nil)
		var mu sync.Mutex
		var closed []throttle.Event
		policies := []throttle.Policy{
			{Name: "queries", Limit: store.PerHour(10)},
			{Name: "tenant", Limit: store.PerHour(3), Keyed: true},
			{Name: "at once", Limit: store.Concurrency(2)},
		}
		here, err := throttle.NewLimiters(throttle.Config{Store: s, Policies: policies, MaxWait: -1, Observe: func(_ context.Context, e throttle.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == throttle.EventClosed {
				closed = append(closed, e)
			}
		}})
		require.NoError(t, err)
		there, err := throttle.NewLimiters(throttle.Config{Store: redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock), Policies: policies, MaxWait: -1})
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
		require.NoError(t, second.Tell(t.Context(), throttle.Refused(time.Minute), "tenant"))
		_, err = acquire(here, "a")
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.True(t, limited.Paused)
		require.Equal(t, "tenant", limited.Policy)
		third, err := acquire(here, "b")
		require.NoError(t, err, "another tenant's budget is open")
		require.NoError(t, third.TellBudget(t.Context(), "tenant", "b", throttle.Answer{}.WithCost(3)))
		third.Release()
		require.Equal(t, 3, used("tenant", "b"))
		mu.Lock()
		require.Len(t, closed, 1)
		require.InDelta(t, time.Minute, closed[0].Duration, float64(30*time.Second))
		mu.Unlock()

		// The start of the first permit is too old to be used without a question, and the answer is that a budget is closed.
		// The permit gives back all that it had.
		time.Sleep(defaultJitter)
		require.Error(t, first.Renew(t.Context()))
		require.Eventually(t, func() bool { return used("at once", "") == 0 && used("queries", "") == 2 }, 10*time.Second, time.Millisecond)
	})
}
