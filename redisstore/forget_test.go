package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

// forgotten runs a test with a server that forgets everything when it is told.
func forgotten(t *testing.T, test func(t *testing.T, client *redis.Client, forget func())) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client, operator := server.Client(t), server.Client(t)
		loaded(t, client, nil)
		test(t, client, func() { forgets(t, operator) })
	})
}

// remembered are limits of every kind that counts starts.
var remembered = []throttle.Limit{
	throttle.SlidingWindow(5, time.Minute), throttle.SlidingWindow(100, time.Minute), throttle.PerHour(1),
	throttle.FixedWindow(5, time.Minute), throttle.CalendarWindow(5, throttle.Day, time.UTC),
	throttle.LeakyBucket(5, time.Minute), throttle.TokenBucket(1, 10*time.Second, 5),
}

// TestP12_Forgotten books starts, lets the server forget them all, and books
// another. It waits at least as long as if nothing had happened, and at most a
// window longer. One call finds the loss and repairs it, and when others had the time
// to tell what they know the next one books.
func TestP12_Forgotten(t *testing.T) {
	t.Parallel()
	for _, limit := range remembered {
		for name, starts := range map[string]int{"one": 1, "full": limit.Capacity(), "queue": limit.Capacity()*5/2 + 2} {
			t.Run(limit.String()+" "+name, func(t *testing.T) {
				forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
					s, same := redisstore.NewAt(client, nil, bubbleClock), memstore.New()
					c := charge("budget", limit)
					for range starts {
						require.Equal(t, book(t, same, c), book(t, s, c))
						time.Sleep(10 * time.Millisecond)
					}
					forget()
					tap := newTap(client, nil)
					want, got := book(t, same, c), bookLost(t, s, c)
					require.Equal(t, []string{"evalsha", "evalsha"}, tap.names())
					require.GreaterOrEqual(t, got, want)
					require.LessOrEqual(t, got, want+window(limit))
					requireSmall(t, client)
				})
			})
		}
	}
}

// window is how long a start counts under the limit, without jitter.
func window(l throttle.Limit) time.Duration {
	switch {
	case l.Kind() == throttle.KindTokenBucket:
		return time.Duration(l.Capacity()) * l.Per() / time.Duration(l.N())
	case l.Per() == 0:
		return 24 * time.Hour
	}
	return l.Per() + time.Microsecond
}

// KeptRows are what a server knew at some moment, as a replica that lags knows it.
type keptRows map[string]string

func keepRows(t *testing.T, c *redis.Client) keptRows {
	t.Helper()
	b := make(keptRows)
	for _, key := range keys(t, c) {
		value, err := c.Get(t.Context(), key).Result()
		require.NoError(t, err)
		b[key] = value
	}
	return b
}

// restore makes it all that the server knows.
func (b keptRows) restore(t *testing.T, c *redis.Client) {
	t.Helper()
	forgets(t, c)
	for key, value := range b {
		require.NoError(t, c.Set(t.Context(), key, value, 2*time.Hour).Err())
	}
}
