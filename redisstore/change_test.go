package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP1_FromWindowToPace makes a window that was full, or that is full of what
// may have been forgotten, a pace: a start may cost as long as one at full cost
// would, but not a unit for each start that there was.
func TestP1_FromWindowToPace(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	stores := map[string]func(t *testing.T) throttle.Store{
		"memstore": func(*testing.T) throttle.Store { return memstore.New() },
		"redisstore": func(t *testing.T) throttle.Store {
			client := server.Client(t)
			require.NoError(t, client.FlushDB(t.Context()).Err())
			return redisstore.NewAt(client, nil, bubbleClock)
		},
	}
	for name, newStore := range stores {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				full := func(name string) throttle.Charge {
					c := charge(name, throttle.PerSecond(40))
					for range 40 {
						require.Equal(t, time.Duration(0), book(t, s, c))
					}
					return c
				}
				c := full("at once")
				c.Limit = throttle.LeakyBucket(2, time.Hour)
				require.Equal(t, time.Hour, book(t, s, c))

				c = full("after a while")
				time.Sleep(2 * time.Second)
				require.Equal(t, time.Duration(0), book(t, s, c)) // forgets the forty
				c.Limit = throttle.LeakyBucket(1, time.Hour)
				require.Equal(t, time.Hour, book(t, s, c))
			})
		})
	}
}
