package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_GapAfterAStepThatEnded books a start that is far away, and sleeps. The clock
// steps back by less than that, so it shows a later time than when the row was seen
// last. But the program knows that more has passed: the far start is near by now, and
// nobody starts before it.
func TestP9_GapAfterAStepThatEnded(t *testing.T) {
	t.Parallel()
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		one, gate := charge("one", throttle.PerSecond(1)), charge("gate", throttle.PerSecond(1))
		require.Zero(t, book(t, s, one))
		require.NoError(t, s.Pause(t.Context(), gate, 5*time.Second))
		require.Equal(t, 5*time.Second, book(t, s, one, gate))
		time.Sleep(4500 * time.Millisecond)
		c.step(-3500 * time.Millisecond)
		next := book(t, s, one)
		require.GreaterOrEqual(t, next, 500*time.Millisecond+span)
		require.LessOrEqual(t, next, 5*time.Second+span)
	})
}

// TestP9_ACallThatWasHeldIsNoStep holds a call up before it is done, and loses its
// answer. When it is answered again, that was just now, though it was first asked long
// ago: as if the clock had been set back since. It was not, by what the program heard
// before, so a place that is cancelled is given back at once.
func TestP9_ACallThatWasHeldIsNoStep(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client, way, calls := server.Client(t), &slowWay{}, 0
		require.NoError(t, client.FlushDB(t.Context()).Err())
		s := atRest(t, redisstore.NewAt(client, nil, way.now))
		require.Zero(t, book(t, s, charge("first", throttle.PerSecond(1))), "the server knows the script then")
		client.AddHook(way)
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			switch calls++; calls {
			case 2: // it was slow, so it was asked back
				way.by.Store(int64(500 * time.Millisecond))
			case 3:
				cmd.SetErr(errAway)
				return errAway
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
