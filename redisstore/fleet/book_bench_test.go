package fleet_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/hotpath"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// BenchmarkBook is what a reporter adds to a booking, with the fastest store there is.
func BenchmarkBook(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // nobody is there
	defer client.Close()
	st := memstore.New()
	reporter := must(fleet.Start(client, st, fleet.ReporterOptions{}))
	defer reporter.Close()
	take := func(s store.Store) func() {
		l, err := throttle.NewLimiter(s, throttle.Policy{Name: "a", Limit: store.Unlimited()})
		require.NoError(b, err)
		return func() {
			if _, err := l.Acquire(throttle.WithMaxWait(b.Context(), throttle.NoWait), "", 1); err != nil {
				b.Fatal(err)
			}
		}
	}
	hotpath.Compare(b, take(reporter), take(st))
}
