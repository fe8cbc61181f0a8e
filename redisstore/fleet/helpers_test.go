package fleet_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// start returns a reporter that reports when it is told to.
func start(t *testing.T, client redis.UniversalClient, program string) *fleet.Reporter {
	a := must(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: program, Interval: time.Hour}))
	t.Cleanup(a.Close)
	begun(t, a)
	return a
}

// begun waits for a reporter's first report.
func begun(t *testing.T, a *fleet.Reporter) {
	require.Eventually(t, func() bool { return a.Err() == nil }, time.Minute, time.Millisecond)
}

// limiter returns a limiter of a reporter.
func limiter(t *testing.T, s store.Store, p throttle.Policy) *throttle.Limiter {
	l, err := throttle.NewLimiter(s, p)
	require.NoError(t, err)
	return l
}

// acquire takes a start for each key.
func acquire(t *testing.T, l *throttle.Limiter, keys ...string) {
	for _, key := range keys {
		_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), key, 1)
		require.NoError(t, err)
	}
}

// used returns a program that took a start for each key and reported that, its limiter, and
// its fleet.
func used(t *testing.T, client redis.UniversalClient, p throttle.Policy, keys ...string) (*fleet.Reporter, *throttle.Limiter, *fleet.Fleet) {
	a := start(t, client, "program")
	l := limiter(t, a, p)
	acquire(t, l, keys...)
	a.Report()
	return a, l, must(fleet.New(client, fleet.Options{}))
}

// snapshot reads a fleet.
func snapshot(t *testing.T, f *fleet.Fleet) *fleet.Snapshot {
	s, err := f.Snapshot(t.Context(), 0)
	require.NoError(t, err)
	return s
}

// budget returns the budget of that policy in a snapshot.
func budget(t *testing.T, s *fleet.Snapshot, policy string) fleet.Budget {
	for _, b := range s.Budgets {
		if b.Policy == policy {
			return b
		}
	}
	require.Fail(t, "no budget", policy)
	return fleet.Budget{}
}

func do(t *testing.T, c redis.UniversalClient, words ...any) any {
	reply, err := c.Do(context.Background(), words...).Result()
	require.NoError(t, err)
	return reply
}

// newClient returns a client that is closed when t ends.
func newClient(t *testing.T, o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
