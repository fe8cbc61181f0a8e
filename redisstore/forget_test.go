package redisstore_test

import (
	"testing"
	"testing/synctest"
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
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client, operator := server.Client(t), server.Client(t)
		loaded(t, client, nil)
		test(t, client, func() { require.NoError(t, operator.FlushDB(t.Context()).Err()) })
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

// TestP12_ForgottenByHalf loses one of two budgets of a request.
func TestP12_ForgottenByHalf(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, _ func()) {
		s := redisstore.NewAt(client, nil, bubbleClock)
		a, b := charge("a", throttle.PerMinute(2)), charge("b", throttle.PerHour(2))
		for range 2 {
			require.Zero(t, book(t, s, a, b))
		}
		require.NoError(t, client.Del(t.Context(), s.Key(b.Budget)).Err())
		require.Equal(t, time.Minute+time.Microsecond, book(t, s, a))
		require.Equal(t, time.Hour+time.Microsecond, bookLost(t, s, a, b))
	})
}

// TestP12_RefusedAfterALoss is refused, not granted, by a store that forgot.
func TestP12_RefusedAfterALoss(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		s := redisstore.NewAt(client, nil, bubbleClock)
		k := booking(charge("five", throttle.PerMinute(5)))
		for range 5 {
			book(t, s, k.Charges...)
		}
		k.MaxWait = 0
		for range 3 {
			forget()
			g, err := s.Book(t.Context(), k)
			require.NoError(t, err)
			require.False(t, g.OK)
			require.GreaterOrEqual(t, g.Wait, time.Minute)
		}
		time.Sleep(2 * time.Minute)
		require.Zero(t, book(t, s, k.Charges...))
	})
}

// TestP12_ForgottenAgainAndAgain loses everything many times within one window,
// with a start between the losses.
func TestP12_ForgottenAgainAndAgain(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		s, thirty := redisstore.NewAt(client, nil, bubbleClock), charge("thirty", throttle.PerMinute(30))
		for range 20 {
			require.Zero(t, book(t, s, thirty))
		}
		for range 10 {
			forget()
			require.Equal(t, telling, bookLost(t, s, thirty))
		}
		forget()
		require.GreaterOrEqual(t, bookLost(t, s, thirty), 50*time.Second)
		requireSmall(t, client)
	})
}

// TestP12_OneNodeRepairsForAll has a node that knows everything and others that
// know little. Once it has called, all know.
func TestP12_OneNodeRepairsForAll(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		five := charge("five", throttle.PerMinute(5))
		knows, old, fresh := redisstore.NewAt(client, nil, bubbleClock),
			redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock)
		require.Zero(t, book(t, old, five))
		for range 4 {
			require.Zero(t, book(t, knows, five))
		}
		forget()
		for _, s := range []*redisstore.Store{knows, fresh, old, fresh, knows} {
			require.GreaterOrEqual(t, book(t, s, five), time.Minute-telling)
		}
	})
}

// TestP12_EachNodeRepairsWhatItKnows asks the nodes in turn, each of which has
// seen more than the one before. All that those who asked have seen counts.
func TestP12_EachNodeRepairsWhatItKnows(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		nine := charge("nine", throttle.PerMinute(9))
		var nodes []*redisstore.Store
		for range 3 {
			s := redisstore.NewAt(client, nil, bubbleClock)
			nodes = append(nodes, s)
			for range 3 {
				require.Zero(t, book(t, s, nine))
			}
		}
		forget()
		for i := range 6 { // the first knows of three
			require.LessOrEqual(t, bookLost(t, nodes[0], nine), telling, i)
		}
		for _, s := range nodes {
			require.GreaterOrEqual(t, book(t, s, nine), time.Minute-telling)
		}
		// The three of the second and the three of the last were lost until now, so
		// fifteen started; none of them may be forgotten again.
		time.Sleep(time.Minute - time.Microsecond)
		k := booking(nine)
		k.MaxWait = 0
		g, err := nodes[0].Book(t.Context(), k)
		require.NoError(t, err)
		require.False(t, g.OK)
	})
}

// TestP12_NothingToRepair has a node that was idle for longer than a window: what
// it remembers is over.
func TestP12_NothingToRepair(t *testing.T) {
	t.Parallel()
	for _, limit := range remembered {
		t.Run(limit.String(), func(t *testing.T) {
			forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
				s := redisstore.NewAt(client, nil, bubbleClock)
				c := charge("budget", limit)
				for range min(limit.Capacity(), 50) {
					book(t, s, c)
				}
				time.Sleep(2 * window(limit)) // bubbles begin at midnight
				forget()
				for range limit.Capacity() {
					require.Zero(t, book(t, s, c))
					if limit.Kind() == throttle.KindLeakyBucket {
						time.Sleep(limit.Per() / time.Duration(limit.N()))
					}
				}
			})
		})
	}
}

// TestP12_CancelAfterALoss gives places back that the server has forgotten. What
// others hold stays theirs.
func TestP12_CancelAfterALoss(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		s, other := redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock)
		five := charge("five", throttle.PerMinute(5))
		var mine []*held
		for range 2 {
			for range 3 {
				k := booking(five)
				g, err := s.Book(t.Context(), k)
				require.NoError(t, err)
				mine = append(mine, &held{k, g})
			}
			for range 2 {
				book(t, other, five)
			}
		}
		forget()
		for _, h := range mine {
			s.Cancel(h.booking, h.grant)
		}
		// Four are left: two now and two that start in a minute.
		var starts []time.Duration
		for range 4 {
			starts = append(starts, book(t, other, five))
		}
		now := 0
		for _, wait := range starts {
			if wait == 0 {
				now++
			}
		}
		require.LessOrEqual(t, now, 3)
	})
}
