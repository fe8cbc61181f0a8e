package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// KeptRows are what a server knew at some moment, as a replica that lags knows it.
type keptRows map[string]string

func keepRows(t *testing.T, c *redis.Client) keptRows {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	b := make(keptRows)
	for _, key := range keys {
		b[key], err = c.Get(t.Context(), key).Result()
		require.NoError(t, err)
	}
	return b
}

// restore makes it all that the server knows.
func (b keptRows) restore(t *testing.T, c *redis.Client) {
	t.Helper()
	require.NoError(t, c.FlushDB(t.Context()).Err())
	for key, value := range b {
		require.NoError(t, c.Set(t.Context(), key, value, 2*time.Hour).Err())
	}
}

// TestP12_OthersLearnWhatOneHasRepaired: one node finds out that its starts are
// lost and books them again. When all is lost the other node knows of them, too.
func TestP12_OthersLearnWhatOneHasRepaired(t *testing.T) {
	t.Parallel()
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		other, ten := redisstore.NewAt(c, nil, bubbleClock), charge("ten", throttle.PerHour(10))
		require.Zero(t, book(t, s, ten))
		old := keepRows(t, c)
		book(t, s, ten)
		book(t, s, ten)
		old.restore(t, c)
		book(t, other, ten) // and so the row seems to be up to date
		book(t, other, ten)
		book(t, s, ten)
		book(t, other, ten)

		keptRows{}.restore(t, c)
		k := booking(ten)
		k.MaxWait = telling
		started := 7
		for ; started <= 10; started++ {
			g, err := other.Book(t.Context(), k)
			require.NoError(t, err)
			if !g.OK {
				break
			}
		}
		require.LessOrEqual(t, started, 10, "of which seven were before")
	})
}

// TestP12_PlacesInABucketThatForgot: what was booked again of a bucket is not more
// than all of it, though there were more starts. So none of them makes room when it
// is given back.
func TestP12_PlacesInABucketThatForgot(t *testing.T) {
	t.Parallel()
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		k := booking(charge("bucket", throttle.TokenBucket(1, time.Second, 5)))
		var places []throttle.Grant
		place := func(wait time.Duration) {
			g, err := s.Book(t.Context(), k)
			require.NoError(t, err)
			require.GreaterOrEqual(t, g.Wait, wait)
			places = append(places, g)
		}
		place(0)
		old := keepRows(t, c)
		for range 4 {
			place(0)
		}
		place(time.Second)
		place(2 * time.Second)
		old.restore(t, c)
		place(3*time.Second - telling)
		for _, g := range places[5:] {
			s.Cancel(k, g)
		}
		require.GreaterOrEqual(t, book(t, s, k.Charges...), time.Second, "five have started just now")
	})
}
