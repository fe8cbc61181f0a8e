package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_ACallThatWasHeldIsNoStep holds a call up before it is done, and loses its
// answer. When it is answered again, that was just now, though it was first asked long
// ago: as if the clock had been set back since. It was not, by what the program heard
// before, so a place that is cancelled is given back at once.
func TestP9_ACallThatWasHeldIsNoStep(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client, way, calls := server.Client(t), &slowWay{}, 0
		s := atRest(t, redisstore.NewAt(client, nil, way.now))
		require.Zero(t, book(t, s, charge("first", throttle.PerSecond(1))), "the server knows the script then")
		client.AddHook(way)
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			switch calls++; calls {
			case 2: // it was slow, so it was asked back
				way.by.Store(int64(500 * time.Millisecond))
			case 3:
				return failing(cmd, errAway)
			}
			return err
		}))
		one := charge("one", throttle.PerMinute(1))
		require.Zero(t, book(t, s, one))
		way.by.Store(int64(500 * time.Millisecond))
		k := booking(one)
		g := ask(t, s, k)
		wait := time.Minute + time.Microsecond - 1010*time.Millisecond
		require.Equal(t, wait, g.Wait)
		require.Equal(t, 500*time.Millisecond, g.Age, "it may have been decided as much earlier")
		s.Cancel(k, g)
		require.Equal(t, wait, book(t, s, one))
	})
}
