package fleet_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// BenchmarkBook shows what a reporter adds to a booking, with the fastest store there is.
// It asserts that it allocates nothing.
func BenchmarkBook(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // nobody is there
	defer client.Close()
	store := throttle.Store(memstore.New())
	reporter := fleet.Start(client, store, nil)
	defer reporter.Close()
	for name, s := range map[string]throttle.Store{"store": store, "reporter": reporter} {
		b.Run(name, func(b *testing.B) {
			l, err := throttle.NewLimiter(s, throttle.Policy{Name: name, Limit: throttle.Unlimited()})
			require.NoError(b, err)
			take := func() {
				if _, err := l.TryAcquire(b.Context(), "", 1); err != nil {
					b.Fatal(err)
				}
			}
			take()
			with := testing.AllocsPerRun(100, take)
			for b.Loop() {
				take()
			}
			require.Zero(b, with)
		})
	}
}
