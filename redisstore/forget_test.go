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

// TestP12_ForgottenByHalf loses one of two budgets of a request.
func TestP12_ForgottenByHalf(t *testing.T) {
	forgotten(t, func(t *testing.T, client *redis.Client, _ func()) {
		s := redisstore.NewAt(client, nil, bubbleClock)
		a, b := charge("a", throttle.PerMinute(2)), charge("b", throttle.PerHour(2))
		startNow(t, s, 2, a, b)
		require.NoError(t, client.Del(t.Context(), s.Key(b.Budget)).Err())
		require.Equal(t, time.Minute+time.Microsecond, book(t, s, a))
		require.Equal(t, time.Hour+time.Microsecond, bookLost(t, s, a, b))
	})
}

// TestP12_ForgottenAgainAndAgain loses everything many times within one window,
// with a start between the losses.
func TestP12_ForgottenAgainAndAgain(t *testing.T) {
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		s, thirty := redisstore.NewAt(client, nil, bubbleClock), charge("thirty", throttle.PerMinute(30))
		startNow(t, s, 20, thirty)
		for range 10 {
			forget()
			require.Equal(t, telling, bookLost(t, s, thirty))
		}
		forget()
		require.GreaterOrEqual(t, bookLost(t, s, thirty), 50*time.Second)
		requireSmall(t, client)
	})
}

// TestP12_EachNodeRepairsWhatItKnows asks the nodes in turn, each of which has
// seen more than the one before. All that those who asked have seen counts.
func TestP12_EachNodeRepairsWhatItKnows(t *testing.T) {
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		nine := charge("nine", throttle.PerMinute(9))
		var nodes []*redisstore.Store
		for range 3 {
			s := redisstore.NewAt(client, nil, bubbleClock)
			nodes = append(nodes, s)
			startNow(t, s, 3, nine)
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
		refused(t, nodes[0], nine)
	})
}

// TestP12_NothingToRepair has a node that was idle for longer than a window: what
// it remembers is over.
func TestP12_NothingToRepair(t *testing.T) {
	each(t, remembered, func(t *testing.T, limit throttle.Limit) {
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

// TestP12_OthersLearnWhatOneHasRepaired: one node finds out that its starts are
// lost and books them again. When all is lost the other node knows of them, too.
func TestP12_OthersLearnWhatOneHasRepaired(t *testing.T) {
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
		k := bookingFor(telling, ten)
		started := 7
		for ; started <= 10; started++ {
			g := ask(t, other, k)
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
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		k := booking(charge("bucket", throttle.TokenBucket(1, time.Second, 5)))
		var places []throttle.Grant
		place := func(wait time.Duration) {
			g := ask(t, s, k)
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

// TestP12_AForgottenPenalty closes a budget, lets the server forget it, and books:
// by the program that stored the penalty, by one that was held by it, and by one
// that knows nothing, after one that does.
func TestP12_AForgottenPenalty(t *testing.T) {
	t.Parallel()
	for _, limit := range append(remembered[:len(remembered):len(remembered)], throttle.Unlimited()) {
		for name, later := range map[string]time.Duration{"at once": 0, "later": 20 * time.Second} {
			t.Run(limit.String()+" "+name, func(t *testing.T) {
				forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
					stored, held, strange := redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock)
					c := charge("budget", limit)
					require.NoError(t, stored.Pause(t.Context(), c, time.Minute))
					for _, knows := range []*redisstore.Store{stored, held} {
						require.False(t, ask(t, knows, &throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: time.Second}).OK)
						time.Sleep(later)
						forget()
						left := time.Minute - later
						if knows == held {
							left -= later
						}
						require.GreaterOrEqual(t, bookLost(t, knows, c), left)
						require.GreaterOrEqual(t, book(t, strange, c), left-telling, "who knows nothing, a little later")
					}
				})
			})
		}
	}
}

// TestP12_AForgottenPenaltyThatWasLifted stays lifted, and a row that is there is
// not closed by who has not heard of that.
func TestP12_AForgottenPenaltyThatWasLifted(t *testing.T) {
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		operator, held := redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock)
		c := charge("budget", throttle.PerMinute(5))
		require.NoError(t, operator.Pause(t.Context(), c, time.Minute))
		require.False(t, ask(t, held, &throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: time.Second}).OK)
		require.NoError(t, operator.Resume(t.Context(), c))
		require.Zero(t, book(t, held, c), "the row is there")
		require.Zero(t, book(t, operator, c))
		forget()
		require.LessOrEqual(t, bookLost(t, operator, c), telling, "who lifted it knows of none")
	})
}
