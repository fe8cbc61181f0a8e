package redisstore_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
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
var remembered = []store.Limit{
	store.SlidingWindow(5, time.Minute), store.SlidingWindow(100, time.Minute), store.PerHour(1),
	store.FixedWindow(5, time.Minute), store.CalendarWindow(5, store.Day, time.UTC),
	store.LeakyBucket(5, time.Minute), store.TokenBucket(1, 10*time.Second, 5),
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
					s, same := redisstore.NewAt(client, redisstore.Options{}, bubbleClock), memstore.New()
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
func window(l store.Limit) time.Duration {
	switch {
	case l.Kind() == store.KindTokenBucket:
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

// TestP12_BusyFleetLosesAll empties Redis again and again under nodes that are all
// busy. Whoever asks first does not know what the others booked since it asked last;
// nobody starts before they have told. A second and a half later all of the limit is
// used again.
func TestP12_BusyFleetLosesAll(t *testing.T) {
	soak.Only(t)
	server := redistest.Shared(t)
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 12))
			c := newSharers(t, server, 2+r.IntN(5), redisstore.Options{}, forty)
			c.pull(1+r.IntN(8), c.nodes...)
			for at := 3 * time.Second; at < time.Minute; at += 5 * time.Second {
				c.until(at + time.Duration(r.Int64N(int64(time.Second))))
				forgets(t, server.Client(t))
			}
			c.until(time.Minute)
			c.end()
			c.never()
			for at := 8 * time.Second; at < time.Minute; at += 5 * time.Second {
				c.everySecond(at-2*time.Second, at, 39, 40) // they leave evenly, and a second is not a window
			}
		})
	}
}

// TestP12_LostWithoutEnd loses a budget ten times a second, as a server may that has no
// memory left for it. Its callers are kept for a while, and not forever.
func TestP12_LostWithoutEnd(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
				_ = client.FlushDB(t.Context()).Err()
			}
		}()
		many := charge("many", store.PerMinute(100))
		for range 20 {
			require.LessOrEqual(t, bookLost(t, s, many), 2*telling)
			time.Sleep(150 * time.Millisecond)
		}
	})
}

// TestP12_ASlowCallIsNoLoss holds a call up until the row of its budget is over and its
// key gone. What the program knew when it wrote the call is over, too: nothing was lost,
// and nobody is kept.
func TestP12_ASlowCallIsNoLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, redisstore.Options{}, forty)
		s, one := c.nodes[0].store, charge("one", store.PerSecond(1))
		book(t, s, one)
		away(true, c.nodes...)
		time.AfterFunc(2500*time.Millisecond, func() {
			forgets(t, server.Client(t)) // in production it has expired
			back(c.nodes...)
		})
		require.Equal(t, 2500*time.Millisecond, bookLost(t, s, one))
		c.end()
	})
}

// TestP12_TellingIsNoExcuse: who has a MaxWait does not wait longer for others to tell,
// though the answer that asked for it was slow.
func TestP12_TellingIsNoExcuse(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, redisstore.Options{}, forty)
		s, many := c.nodes[0].store, charge("many", store.PerMinute(100))
		book(t, s, many)
		forgets(t, server.Client(t))
		away(true, c.nodes...)
		time.AfterFunc(900*time.Millisecond, func() { back(c.nodes...) })
		k, asked := booking(many), time.Now()
		k.MaxWait = 1500 * time.Millisecond
		require.False(t, ask(t, s, k).OK)
		require.Equal(t, k.MaxWait, time.Since(asked))
		c.end()
	})
}

// TestP12_SleepersTellWhatWasLost empties Redis while a program sleeps that alone
// knows of its starts. Another one's call makes it tell, though it makes none.
func TestP12_SleepersTellWhatWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	forgets(t, client)
	first, second := redisstore.New(server.Client(t), redisstore.Options{}), redisstore.New(server.Client(t), redisstore.Options{})
	limit := charge("long", store.PerHour(5))
	book(t, first, limit)
	for range 4 {
		book(t, second, limit)
	}
	sleeper := booking(limit)
	g := ask(t, second, sleeper)
	require.Greater(t, g.Wait, 59*time.Minute)
	w := second.Watch(sleeper, g, make(chan struct{}, 1))
	defer w.Stop()
	booked := time.Now()
	require.Eventually(t, func() bool { return second.Complete(booked.Add(3 * time.Second)) }, 10*time.Second, 5*time.Millisecond)

	forgets(t, client)
	book(t, first, limit) // it knew of one start
	require.Eventually(t, func() bool {
		st := status(t, first, limit)
		return st.Used+st.Waiting >= 6
	}, 10*time.Second, 5*time.Millisecond, "nobody told")
}

// TestP1_NodeCountsFromWhereItNamed asks for starts of one node while the way to
// Redis is blocked. The node named each at another time, but all would have begun
// when the answers came, so the age of each tells how late it is.
func TestP1_NodeCountsFromWhereItNamed(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		all := charge("all", store.PerHour(1000))
		mine := own(charge("mine", store.SlidingWindow(1, 100*time.Millisecond)))
		bookAside(t.Context(), s, booking(all))
		var got []**outcome
		for range 3 {
			time.Sleep(150 * time.Millisecond)
			got = append(got, bookAside(t.Context(), s, booking(mine, all)))
		}
		tap.open()
		for i, o := range got {
			require.NoError(t, (*o).err)
			require.True(t, (*o).grant.OK)
			require.Zero(t, (*o).grant.Wait)
			require.Equal(t, time.Duration(2-i)*150*time.Millisecond, (*o).grant.Age, "%d", i)
		}
	})
}

// TestP1_RecordOutlivesLease loses the answer that a request may fly. When Redis
// can be reached again the lease is over and another flies, but the record of the
// call still said yes.
func TestP1_RecordOutlivesLease(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		a, _ := loaded(t, c, nil)
		b := redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock)
		away := &says{}
		c.AddHook(away)
		c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			if err == nil && away.calls.Load() == 0 {
				away.set(errAway)
				return failing(cmd, errAway)
			}
			return err
		}))
		one := charge("one", store.Concurrency(1))
		got := bookAside(t.Context(), a, booking(one))
		refused(t, b, one)
		time.Sleep(25 * time.Second)
		k, g := board(t, b, one)
		away.err.Store(nil)
		rest(time.Second)
		require.NoError(t, (*got).err)
		require.False(t, (*got).grant.OK)
		require.NotNil(t, (*got).grant.Ready)
		b.Release(k, g)
		require.True(t, woken((*got).grant, soon))
		time.Sleep(2 * time.Second) // calls that are left behind come to their end
	})
}
