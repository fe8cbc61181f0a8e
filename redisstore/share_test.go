package redisstore_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// Sharers are some nodes that start as much as they may, all under one limit, each
// with a way of its own to the server.
type sharers struct {
	t      *testing.T
	policy throttle.Policy
	began  time.Time
	ctx    context.Context
	nodes  []*sharer

	mu     sync.Mutex
	starts []time.Time
}

// A sharer is one of them.
type sharer struct {
	store *redisstore.Store
	way   *says
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// newSharers returns so many nodes that have not begun.
func newSharers(t *testing.T, server *redistest.Server, size int, o *redisstore.Options, p throttle.Policy) *sharers {
	c := &sharers{t: t, policy: p, began: time.Now(), ctx: t.Context()}
	require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
	for range size {
		client := server.Client(t)
		m := &sharer{way: &says{}, store: redisstore.NewAt(client, o, bubbleClock)}
		client.AddHook(m.way)
		c.nodes = append(c.nodes, m)
	}
	return c
}

// pull lets the nodes pull with so many callers each.
func (c *sharers) pull(callers int, nodes ...*sharer) {
	for _, m := range nodes {
		ctx, stop := context.WithCancel(c.ctx)
		m.stop = stop
		l, err := throttle.NewLimiter(m.store, c.policy)
		require.NoError(c.t, err)
		for range callers {
			m.done.Go(func() {
				for {
					if _, err := l.Acquire(ctx, "", 1); err != nil {
						return
					}
					c.mu.Lock()
					c.starts = append(c.starts, time.Now())
					c.mu.Unlock()
				}
			})
		}
	}
}

// until lets time pass, to so long after the beginning.
func (c *sharers) until(d time.Duration) { time.Sleep(time.Until(c.began.Add(d))) }

// away takes the server from some nodes, or gives it back.
func (c *sharers) away(err error, nodes ...*sharer) {
	for _, m := range nodes {
		if err == nil {
			m.way.err.Store(nil)
		} else {
			m.way.set(err)
		}
	}
}

// end ends the nodes and waits until they make no call any more.
func (c *sharers) end() {
	for _, m := range c.nodes {
		m.stop()
		m.done.Wait()
		atRest(c.t, m.store)
	}
	time.Sleep(time.Minute)
}

// between counts the starts from one time up to another.
func (c *sharers) between(from, to time.Duration) (n int) {
	for _, s := range c.starts {
		if d := s.Sub(c.began); d >= from && d < to {
			n++
		}
	}
	return n
}

// worst returns the most starts in a closed window.
func (c *sharers) worst(per time.Duration) (most int, at time.Duration) {
	slices.SortFunc(c.starts, time.Time.Compare)
	first := 0
	for i, s := range c.starts {
		for s.Sub(c.starts[first]) > per {
			first++
		}
		if n := i - first + 1; n > most {
			most, at = n, s.Sub(c.began)
		}
	}
	return most, at
}

var share = &redisstore.Options{Outage: redisstore.Share}

// forty is what four nodes can divide without a rest.
var forty = throttle.Policy{Name: "forty", Limit: throttle.PerSecond(40), Jitter: -1}

// everySecond requires so many starts in each second from one up to another.
func (c *sharers) everySecond(from, to time.Duration, least, most int) {
	c.t.Helper()
	for s := from; s < to; s += time.Second {
		n := c.between(s, s+time.Second)
		require.GreaterOrEqual(c.t, n, least, "at %v", s)
		require.LessOrEqual(c.t, n, most, "at %v", s)
	}
}

// never requires that no window ever held more than the limit.
func (c *sharers) never() {
	c.t.Helper()
	most, at := c.worst(c.policy.Limit.Per())
	require.LessOrEqual(c.t, most, c.policy.Limit.N(), "at %v", at)
}

// TestP12_ShareWhileRedisIsAway takes Redis from a whole fleet for half a minute,
// and gives it back as it was, or empty. Share uses the limit to the full.
func TestP12_ShareWhileRedisIsAway(t *testing.T) {
	server := redistest.Shared(t)
	for _, empty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newSharers(t, server, 4, share, forty)
			c.pull(5, c.nodes...)
			c.until(10 * time.Second)
			c.away(errAway, c.nodes...)
			c.until(40 * time.Second)
			if empty {
				require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
			}
			c.away(nil, c.nodes...)
			c.until(60 * time.Second)
			c.end()
			c.never()
			c.everySecond(0, 10*time.Second, 40, 40)
			c.everySecond(10*time.Second, 15*time.Second, 0, 0)
			c.everySecond(17*time.Second, 60*time.Second, 40, 40)
		})
	}
}

// TestP12_ShareAlone cuts off one node of four, for as long as is promised. The
// others leave its share free.
func TestP12_ShareAlone(t *testing.T) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		c := newSharers(t, server, 4, share, forty)
		c.pull(5, c.nodes...)
		c.until(10 * time.Second)
		c.away(errAway, c.nodes[0])
		c.until(28 * time.Second)
		c.away(nil, c.nodes[0])
		c.until(40 * time.Second)
		c.end()
		c.never()
		c.everySecond(14*time.Second, 16*time.Second, 30, 30)
		c.everySecond(17*time.Second, 28*time.Second, 40, 40)
		c.everySecond(31*time.Second, 40*time.Second, 40, 40)
	})
}

// TestP12_ShareRandom takes Redis from some nodes or all, at random, gives it back
// to one after the other, as it was or empty, and lets nodes end and begin.
func TestP12_ShareRandom(t *testing.T) {
	server := redistest.Shared(t)
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			c := newSharers(t, server, 2+r.IntN(5), share, forty)
			c.pull(1+r.IntN(12), c.nodes...)
			for range 6 {
				time.Sleep(8*time.Second + time.Duration(r.Int64N(int64(4*time.Second))))
				hit := slices.Clone(c.nodes)
				r.Shuffle(len(hit), func(i, j int) { hit[i], hit[j] = hit[j], hit[i] })
				all := r.IntN(2) == 0
				if !all {
					hit = hit[:1+r.IntN(len(hit)-1)]
				}
				c.away(errAway, hit...)
				time.Sleep(time.Duration(r.Int64N(int64(15 * time.Second))))
				if all && r.IntN(2) == 0 {
					require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
				}
				for _, m := range hit {
					c.away(nil, m)
					time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
				}
			}
			c.end()
			most, at := c.worst(time.Second)
			require.LessOrEqual(t, most, 40, "seed %d, at %v", seed, at)
		})
	}
}
