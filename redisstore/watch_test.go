package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A crowd are sleepers of three stores, in real time. Their starts are 20 ms apart.
type crowd struct {
	*testing.T
	stores   []*redisstore.Store
	limiters []*throttle.Limiter
	all      sync.WaitGroup
	booked   atomic.Int32

	mu     sync.Mutex
	starts []time.Time
}

const (
	perStore = 12
	ban      = 500 * time.Millisecond
	atOnce   = 50 * time.Millisecond // within which a penalty takes effect
)

// sleepers has what is done by others, too.
var sleepers = throttle.Policy{Name: "sleepers", Limit: throttle.LeakyBucket(50, time.Second), Jitter: -1}

// counted counts the starts that are booked first.
type counted struct {
	throttle.Store
	booked *atomic.Int32
}

func (s counted) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if b.Instead == (throttle.Handle{}) {
		s.booked.Add(1)
	}
	return g, err
}

// newCrowd makes three stores, each with the next of the clients.
func newCrowd(t *testing.T, client func() redis.UniversalClient) *crowd {
	c := &crowd{T: t}
	for range 3 {
		s := redisstore.New(client(), nil)
		l := limiter(t, counted{s, &c.booked}, sleepers)
		c.stores, c.limiters = append(c.stores, s), append(c.limiters, l)
	}
	return c
}

// listens has all stores hear of penalties before anybody falls asleep. Who books
// earlier asks in any case.
func (c *crowd) listens() *crowd {
	for _, s := range c.stores {
		s.Subscribe("sleepers")
		c.Cleanup(func() { s.Unsubscribe("sleepers") })
		hears(s)
	}
	return c
}

// sleep lets all fall asleep, and returns when their starts are booked.
func (c *crowd) sleep() {
	c.Helper()
	for i := range 3 * perStore {
		c.all.Go(func() {
			if _, err := c.limiters[i%3].Acquire(c.Context(), "", 1); err != nil {
				c.Error(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.starts = append(c.starts, time.Now())
		})
	}
	for c.booked.Load() < 3*perStore {
		time.Sleep(time.Millisecond)
	}
}

// closes stores a penalty by the first store, and requires when all are through
// that nobody started in it. Where the machine stood still, that is no fault.
func (c *crowd) closes(d time.Duration) {
	c.Helper()
	begin := time.Now()
	require.NoError(c, c.limiters[0].Pause(c.Context(), "", d))
	stored := time.Now()
	still := watchStalls()
	c.all.Wait()
	late := atOnce + still()
	require.Len(c, c.starts, 3*perStore)
	held := 0
	for _, at := range c.starts {
		require.False(c, at.After(stored.Add(late)) && at.Before(begin.Add(d)),
			"a start %v after the penalty was stored, with %v still to go", at.Sub(stored), begin.Add(d).Sub(at))
		if !at.Before(begin.Add(d)) {
			held++
		}
	}
	require.Positive(c, held, "nobody slept any more")
}

// watchStalls measures, until the returned function is called, by how much a sleep
// of a millisecond comes back too late.
func watchStalls() func() time.Duration {
	done, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			begin := time.Now()
			select {
			case <-done:
				longest <- most
				return
			case <-time.After(time.Millisecond):
				most = max(most, time.Since(begin)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration { close(done); return <-longest }
}

// TestP11_SleepersOfAFleet stores a penalty while three programs sleep, and meddles
// with how they hear of it. It measures, so no other test runs beside it.
func TestP11_SleepersOfAFleet(t *testing.T) {
	single := func(t *testing.T) (*redistest.Server, *crowd) {
		server := redistest.Single(t)
		return server, newCrowd(t, func() redis.UniversalClient { return server.Client(t) })
	}
	for name, run := range map[string]func(t *testing.T){
		"news": func(t *testing.T) {
			_, c := single(t)
			c.listens().sleep()
			c.closes(ban)
		},
		"cut just before": func(t *testing.T) {
			server, c := single(t)
			c.listens().sleep()
			require.NoError(t, server.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
			c.closes(ban)
		},
		"cut all the time": func(t *testing.T) {
			server, c := single(t)
			c.listens().sleep()
			defer cutAlways(t, server)()
			c.closes(ban)
		},
		"nobody hears": func(t *testing.T) {
			_, c := single(t)
			for _, s := range c.stores {
				s.Disconnect()
			}
			c.sleep()
			c.closes(ban)
		},
		"no right to listen": func(t *testing.T) {
			server := redistest.Single(t)
			c := newCrowd(t, func() redis.UniversalClient { return as(t, server, "~*", "+@all", "resetchannels") })
			c.sleep()
			c.closes(ban)
		},
		"no right to tell": func(t *testing.T) {
			server := redistest.Single(t)
			c := newCrowd(t, func() redis.UniversalClient { return as(t, server, "~*", "&*", "+@all", "-publish") })
			c.sleep()
			c.closes(ban)
		},
		"cut for good": func(t *testing.T) {
			server := redistest.Single(t)
			c := newCrowd(t, func() redis.UniversalClient { return as(t, server, "~*", "&*", "+@all") })
			c.listens().sleep()
			as(t, server, "resetchannels") // which cuts who listens
			c.closes(ban)
		},
		"forgotten at once": func(t *testing.T) {
			server, c := single(t)
			c.listens().sleep()
			go func() { _ = server.Client(t).FlushAll(t.Context()).Err() }()
			c.closes(ban)
		},
		"a shorter one later": func(t *testing.T) {
			_, c := single(t)
			c.listens().sleep()
			c.all.Go(func() {
				for range 20 {
					if err := c.limiters[1].Pause(t.Context(), "", 10*time.Millisecond); err != nil {
						t.Error(err)
					}
				}
			})
			c.closes(ban)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// cutAlways cuts all subscriptions, until the returned function is called.
func cutAlways(t *testing.T, server *redistest.Server) func() {
	client := server.Client(t)
	ctx, stop := context.WithCancel(t.Context())
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for ctx.Err() == nil {
			_ = client.ClientKillByFilter(ctx, "TYPE", "pubsub").Err() // there may be none
		}
	})
	return func() {
		stop()
		cutting.Wait()
	}
}

// as returns a client of a user with these rights.
func as(t *testing.T, server *redistest.Server, rights ...any) redis.UniversalClient {
	rules := append([]any{"ACL", "SETUSER", "some", "on", ">secret"}, rights...)
	require.NoError(t, server.Client(t).Do(t.Context(), rules...).Err())
	o := server.Options()
	o.Username, o.Password = "some", "secret"
	client := clientOf(t, o)
	return client
}

// hears waits until a store with sleepers is believed to hear of penalties.
func hears(s *redisstore.Store) {
	for !s.Complete("sleepers", time.Now()) {
		time.Sleep(time.Millisecond)
	}
}
