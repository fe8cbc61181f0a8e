package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// sharing plays something with four nodes that share.
func sharing(t *testing.T, p throttle.Policy, play func(*sharers)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 4, share, p)
		play(c)
		c.end()
		c.never()
	})
}

// TestP12_ShareOfTheDead lets a node end without a word, in the middle of its
// work: its share is free after 20 seconds.
func TestP12_ShareOfTheDead(t *testing.T) {
	sharing(t, forty, func(c *sharers) {
		c.pull(5, c.nodes...)
		c.until(10 * time.Second)
		away(false, c.nodes[0])
		c.nodes[0].stop()
		c.until(40 * time.Second)
		c.everySecond(14*time.Second, 29*time.Second, 30, 30)
		c.everySecond(32*time.Second, 40*time.Second, 40, 40)
	})
}

// TestP12_ShareOfTheIdle lets a node stop working: it says goodbye, and nobody
// leaves anything free for it.
func TestP12_ShareOfTheIdle(t *testing.T) {
	sharing(t, forty, func(c *sharers) {
		c.pull(5, c.nodes...)
		c.until(10 * time.Second)
		c.nodes[0].stop()
		c.until(40 * time.Second)
		require.Equal(t, 0, c.nodes[0].store.Groups())
		c.everySecond(11*time.Second, 40*time.Second, 40, 40)
		away(false, c.nodes[0])
	})
}

// TestP12_ShareIsForWhoWasThere lets a node begin during an outage. It waits.
func TestP12_ShareIsForWhoWasThere(t *testing.T) {
	sharing(t, forty, func(c *sharers) {
		c.pull(5, c.nodes[:3]...)
		c.until(10 * time.Second)
		away(false, c.nodes...)
		c.pull(5, c.nodes[3])
		c.until(40 * time.Second)
		back(c.nodes...)
		c.until(50 * time.Second)
		c.everySecond(17*time.Second, 40*time.Second, 39, 39)
		c.everySecond(43*time.Second, 50*time.Second, 40, 40)
	})
}

// TestP12_ShareOfOtherLimits shares what can be divided, and lets the rest wait
// for Redis.
func TestP12_ShareOfOtherLimits(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		limit throttle.Limit
		least int // starts in each second of the outage
	}{
		{throttle.FixedWindow(40, time.Second), 39},
		{throttle.TokenBucket(40, time.Second, 20), 39},
		{throttle.PerSecond(3), 0},
		{throttle.LeakyBucket(40, time.Second), 0},
		{throttle.CalendarWindow(10_000, throttle.Day, nil), 0},
	} {
		runBubble(t, v.limit.String(), func(t *testing.T, server *redistest.Server) {
			c := newSharers(t, server, 4, share, throttle.Policy{Name: "other", Limit: v.limit, Jitter: -1})
			c.pull(2, c.nodes...)
			c.until(10 * time.Second)
			away(false, c.nodes...)
			c.until(30 * time.Second)
			back(c.nodes...)
			c.until(40 * time.Second)
			c.end()
			for s := 17 * time.Second; s < 30*time.Second; s += time.Second {
				n := c.between(s, s+time.Second)
				require.GreaterOrEqual(t, n, v.least)
				require.LessOrEqual(t, n, 40*min(1, v.least))
			}
			require.Positive(t, c.between(31*time.Second, 41*time.Second)+len(c.starts)/10_000)
		})
	}
}

// TestP11_SharesAreClosedByPenalties pauses the budget before an outage, and once
// more during it.
func TestP11_SharesAreClosedByPenalties(t *testing.T) {
	sharing(t, forty, func(c *sharers) {
		c.pull(5, c.nodes...)
		c.until(10 * time.Second)
		l := limiter(t, c.nodes[0].store, c.policy)
		require.NoError(t, l.Pause(c.ctx, "", 20*time.Second))
		c.until(12 * time.Second)
		away(false, c.nodes...)
		c.until(50 * time.Second)
		// Who stood in line in Redis waits for a start of its node's share: those
		// begin slowly, each by itself.
		c.everySecond(10*time.Second, 30*time.Second, 0, 0)
		c.everySecond(30*time.Second, 32*time.Second, 4, 20)
		c.everySecond(33*time.Second, 50*time.Second, 40, 40)

		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, l.Pause(ctx, "", 10*time.Second), context.DeadlineExceeded)
		c.until(60 * time.Second)
		c.everySecond(52*time.Second, 60*time.Second, 30, 30)

		var told error
		st, err := l.Status(outage.WithObserver(c.ctx, func(err error) { told = err }), "")
		require.NoError(t, err)
		require.Equal(t, throttle.PerSecond(10), st.Limit, "the node's share")
		require.Error(t, told, "it is not Redis that has said so")
		back(c.nodes...)
	})
}

// TestP15_SharingEnds: a store that nobody uses makes no call, and keeps nothing.
func TestP15_SharingEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, forty)
		node := c.nodes[0]
		book(t, node.store, charge("one", throttle.PerSecond(1)))
		require.Equal(t, 1, node.store.Groups())
		time.Sleep(12 * time.Second)
		require.Equal(t, 0, node.store.Groups())
		node.way.names()
		time.Sleep(time.Hour)
		require.Empty(t, node.way.names())
	})
}

// TestP12_Open lets everything pass while Redis is away, but for what a penalty
// closes.
func TestP12_Open(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		open := &redisstore.Options{Outage: redisstore.FailOpen}
		c := newSharers(t, server, 1, open, throttle.Policy{Name: "slow", Limit: throttle.PerHour(1)})
		l := limiter(t, c.nodes[0].store, c.policy)
		acquire := func(n int, within time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(c.ctx, within)
			defer cancel()
			for range n {
				_, err := l.Acquire(ctx, "", 1)
				require.NoError(t, err)
			}
		}
		acquire(1, time.Second)
		away(false, c.nodes...)
		acquire(1000, 3*time.Second)
		start := time.Now()
		acquire(1000, time.Second)
		require.Zero(t, time.Since(start))

		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		require.Error(t, l.Pause(ctx, "", time.Minute))
		_, err := l.TryAcquire(c.ctx, "", 1)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.True(t, limited.Paused)
		time.Sleep(time.Minute)
		acquire(100, time.Second)

		back(c.nodes...)
		time.Sleep(3 * time.Second)
		_, err = l.TryAcquire(c.ctx, "", 1)
		require.ErrorIs(t, err, throttle.ErrLimited, "Redis was told")
		time.Sleep(time.Hour)
		acquire(1, time.Second)
		atRest(t, c.nodes[0].store)
	})
}

// TestP12_ShareOfThoseInLine: a node whose callers stand in line counts as one that uses
// the budget, however long they make no call. So it has its share when Redis goes away.
func TestP12_ShareOfThoseInLine(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, throttle.Policy{Name: "four", Limit: throttle.PerMinute(4), Jitter: -1})
		node := c.nodes[0]
		l := limiter(t, node.store, c.policy)
		for range 4 {
			_, err := l.Acquire(c.ctx, "", 1)
			require.NoError(t, err)
		}
		waiter := acquire(c.ctx, l)
		c.until(40 * time.Second)
		require.Equal(t, 1, node.store.Standing())
		require.Equal(t, 1, node.store.Groups())
		away(false, node)
		require.NoError(t, (<-waiter).err)
		require.InDelta(t, 106, time.Since(c.began).Seconds(), 1, "a window after Redis was given up")
		back(node)
		c.end()
	})
}

// TestP12_ShareAfterStartsFarAhead: a share begins a window after the last start that was
// booked in Redis, however far ahead that is.
func TestP12_ShareAfterStartsFarAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, forty)
		node, one := c.nodes[0], charge("one", throttle.PerSecond(1))
		for range 21 {
			book(t, node.store, one)
		}
		c.until(4 * time.Second)
		away(false, node)
		wait := book(t, node.store, one)
		require.GreaterOrEqual(t, time.Since(c.began)+wait, 26*time.Second, "20 s, 5 s and a window")
		require.Less(t, time.Since(c.began)+wait, 28*time.Second)
		wait = book(t, node.store, one)
		require.Less(t, time.Since(c.began)+wait, 29*time.Second, "it stays open")
		back(node)
		c.end()
	})
}

// TestP12_AnObserverOfAShareKnows that Redis is away, though the share lets callers start.
func TestP12_AnObserverOfAShareKnows(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, forty)
		var asks atomic.Value
		all, err := throttle.NewLimiters(throttle.Config{
			Store: c.nodes[0].store, Policies: []throttle.Policy{forty},
			Observe: func(ctx context.Context, e throttle.Event) {
				if e.Kind == throttle.StoreFailed {
					asks.CompareAndSwap(nil, outage.QuestionOf(ctx))
				}
			},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(c.ctx)
		var caller sync.WaitGroup
		caller.Go(func() {
			for ctx.Err() == nil {
				_, _ = all.Acquire(ctx, throttle.Demand{Policy: forty.Name})
				time.Sleep(100 * time.Millisecond)
			}
		})
		answers := func() error {
			ctx, stop := context.WithTimeout(c.ctx, time.Second)
			defer stop()
			_, err := all.Statuses(ctx)
			if q, ok := asks.Load().(outage.Question); ok {
				require.Equal(t, err == nil, q.Ask(ctx) == nil)
			}
			return err
		}
		c.until(10 * time.Second)
		require.NoError(t, answers())
		require.Nil(t, asks.Load())
		away(false, c.nodes...)
		for at := 20 * time.Second; at < time.Minute; at += time.Second {
			c.until(at)
			require.Error(t, answers())
			require.NotNil(t, asks.Load())
		}
		back(c.nodes...)
		c.until(70 * time.Second)
		require.NoError(t, answers())
		stop()
		caller.Wait()
		c.end()
	})
}
