package redisstore_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// Sharers are some nodes that start as much as they may, all under one limit, each
// with a way of its own to the server.
type sharers struct {
	t      *testing.T
	policy throttle.Policy
	ctx    context.Context
	nodes  []*sharer
	arrivals
}

// Arrivals are when something came since they began.
type arrivals struct {
	began  time.Time
	mu     sync.Mutex
	starts []time.Time
}

func (a *arrivals) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starts = append(a.starts, time.Now())
}

// A sharer is one of them.
type sharer struct {
	store *redisstore.Store
	way   *way
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// A way is a node's connection. It can be gone, or say nothing: then what was sent
// arrives when it is back, however late.
type way struct {
	tap
	err   error
	stuck chan struct{}
	slow  time.Duration // how long calls and answers take at most
}

// lateMost is how long a client waits for an answer.
const lateMost = 3 * time.Second

func (w *way) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.mu.Lock()
		w.cmds = append(w.cmds, cmd)
		err, stuck, slow := w.err, w.stuck, w.slow
		w.mu.Unlock()
		if stuck != nil && !isScript(cmd) {
			err = os.ErrDeadlineExceeded // whoever asks is not kept waiting
		} else if stuck != nil {
			select {
			case <-stuck:
				return next(ctx, late(cmd))
			case <-time.After(lateMost):
			}
			again := redis.NewCmd(ctx, cmd.Args()...)
			go func() {
				<-stuck
				_ = next(ctx, late(again))
			}()
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			return failing(cmd, err)
		}
		if slow > 0 {
			time.Sleep(rand.N(slow))
			defer func() { time.Sleep(rand.N(slow)) }()
		}
		return next(ctx, late(cmd))
	}
}

// late gives a call the time at which it arrives.
func late(cmd redis.Cmder) redis.Cmder {
	if isScript(cmd) {
		keys := cmd.Args()[2].(int)
		cmd.Args()[3+keys] = strconv.FormatInt(bubbleClock(), 10)
	}
	return cmd
}

// set makes the way fail with err, or with no answer at all if silent is true, or
// makes it slow.
func (w *way) set(err error, silent bool, slow time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck != nil {
		close(w.stuck)
	}
	w.err, w.stuck, w.slow = err, nil, slow
	if silent {
		w.stuck = make(chan struct{})
	}
}

// newSharers returns so many nodes that have not begun.
func newSharers(t *testing.T, server *redistest.Server, size int, o redisstore.Options, p throttle.Policy) *sharers {
	c := &sharers{t: t, policy: p, ctx: t.Context(), arrivals: arrivals{began: time.Now()}}
	forgets(t, server.Client(t))
	for range size {
		client := roomy(t, server)
		m := &sharer{way: &way{}, store: redisstore.NewAt(client, o, bubbleClock)}
		client.AddHook(m.way)
		c.nodes = append(c.nodes, m)
	}
	return c
}

// roomy returns a client that never has to wait for a connection: it would with
// timers that it shares with other bubbles.
func roomy(t *testing.T, server *redistest.Server) *redis.Client {
	o := server.Options()
	o.PoolSize = 1000
	client := clientOf(t, o)
	return client
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
					if _, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); err != nil {
						return
					}
					c.add()
				}
			})
		}
	}
}

// until lets time pass, to so long after the beginning.
func (c *sharers) until(d time.Duration) { time.Sleep(time.Until(c.began.Add(d))) }

// away takes the server from some nodes: they are refused, or hear nothing.
func away(silent bool, nodes ...*sharer) {
	for _, m := range nodes {
		if silent {
			m.way.set(nil, true, 0)
		} else {
			m.way.set(errAway, false, 0)
		}
	}
}

// slowly lets calls take up to twice d.
func slowly(d time.Duration, nodes ...*sharer) {
	for _, m := range nodes {
		m.way.set(nil, false, d)
	}
}

// back gives it back.
func back(nodes ...*sharer) {
	for _, m := range nodes {
		m.way.set(nil, false, 0)
	}
}

// end ends the nodes and waits until they make no call any more.
func (c *sharers) end() {
	for _, m := range c.nodes {
		if m.stop != nil {
			m.stop()
		}
		m.done.Wait()
		atRest(c.t, m.store)
	}
	time.Sleep(time.Minute)
}

// between counts the starts from one time up to another.
func (a *arrivals) between(from, to time.Duration) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.starts {
		if d := s.Sub(a.began); d >= from && d < to {
			n++
		}
	}
	return n
}

// worst returns the most starts in a closed window.
func (a *arrivals) worst(per time.Duration) (most int, at time.Duration) {
	slices.SortFunc(a.starts, time.Time.Compare)
	first := 0
	for i, s := range a.starts {
		for s.Sub(a.starts[first]) > per {
			first++
		}
		if n := i - first + 1; n > most {
			most, at = n, s.Sub(a.began)
		}
	}
	return most, at
}

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
