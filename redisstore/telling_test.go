package redisstore_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

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
			c := newSharers(t, server, 2+r.IntN(5), nil, forty)
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
// memory left for it. Its callers are kept for a while, and not for ever.
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
		many := charge("many", throttle.PerMinute(100))
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
		c := newSharers(t, server, 1, nil, forty)
		s, one := c.nodes[0].store, charge("one", throttle.PerSecond(1))
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
		c := newSharers(t, server, 1, nil, forty)
		s, many := c.nodes[0].store, charge("many", throttle.PerMinute(100))
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
	first, second := redisstore.New(server.Client(t), nil), redisstore.New(server.Client(t), nil)
	limit := charge("long", throttle.PerHour(5))
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
	require.Eventually(t, func() bool { return second.Complete(limit.Budget.Group, booked.Add(3*time.Second)) }, 10*time.Second, 5*time.Millisecond)

	forgets(t, client)
	book(t, first, limit) // it knew of one start
	require.Eventually(t, func() bool {
		st := status(t, first, limit)
		return st.Used+st.Waiting >= 6
	}, 10*time.Second, 5*time.Millisecond, "nobody told")
}
