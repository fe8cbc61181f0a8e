package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A crowd are sleepers of three stores, in real time. Their starts are 20 ms apart.
type crowd struct {
	*testing.T
	stores   []*redisstore.Store
	limiters []*throttle.Limiter
	all      sync.WaitGroup
	came     int // how many sleepers
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
var sleepers = throttle.Policy{Name: "sleepers", Limit: store.LeakyBucket(50, time.Second), Jitter: -1}

// counted counts the starts that are booked first.
type counted struct {
	store.Store
	booked *atomic.Int32
}

func (s counted) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if b.Instead == (store.Handle{}) {
		s.booked.Add(1)
	}
	return g, err
}

// newCrowd makes three stores, each with the next of the clients.
func newCrowd(t *testing.T, client func() redis.UniversalClient) *crowd {
	c := &crowd{T: t}
	for range 3 {
		s := redisstore.New(client(), redisstore.Options{})
		l := limiter(t, counted{s, &c.booked}, sleepers)
		c.stores, c.limiters = append(c.stores, s), append(c.limiters, l)
	}
	return c
}

// listens has all stores hear of penalties before anybody falls asleep. Who books
// earlier asks in any case.
func (c *crowd) listens() *crowd {
	for _, s := range c.stores {
		s.Subscribe()
		c.Cleanup(func() { s.Unsubscribe() })
		hears(s)
	}
	return c
}

// sleep lets sleepers come, and returns when the starts of all are booked and many of them still sleep. A machine
// that is too slow for the first of them lets more come.
func (c *crowd) sleep() {
	c.Helper()
	for more := 3 * perStore; ; more *= 2 {
		for i := range more {
			c.all.Go(func() { c.sleeps(i % 3) })
		}
		c.came += more
		for c.booked.Load() < int32(c.came) {
			time.Sleep(time.Millisecond)
		}

		st, err := c.limiters[0].Status(c.Context(), "")
		require.NoError(c, err)
		if st.Waiting >= perStore {
			return
		}
		require.Less(c, more, 1000, "nobody sleeps for long enough")
	}
}

// sleeps is one sleeper of a store.
func (c *crowd) sleeps(in int) {
	_, err := c.limiters[in].Acquire(throttle.WithMaxWait(c.Context(), throttle.Forever), "", 1)
	at := time.Now()
	if err != nil {
		c.Error(err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts = append(c.starts, at)
}

// closes stores a penalty by the first store, waits until all are through, and requires that nobody
// started in it. Where the machine stood still, that is no fault.
func (c *crowd) closes(d time.Duration) {
	c.Helper()
	begin := time.Now()
	require.NoError(c, c.limiters[0].Pause(c.Context(), "", d))
	stored := time.Now()
	still := watchStalls()
	c.all.Wait()
	late := atOnce + still()
	require.Len(c, c.starts, c.came)
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
	for !s.Complete(time.Now()) {
		time.Sleep(time.Millisecond)
	}
}

// A call is what somebody got who waited in the background.
type call struct {
	err error
	at  time.Time
}

// acquire waits in the background.
func acquire(ctx context.Context, l *throttle.Limiter) <-chan call {
	got := make(chan call, 1)
	go func() {
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		got <- call{err, time.Now()}
	}()
	return got
}

// asleep returns three sleepers of a store, with starts 250 ms apart: one that leaves when
// it is told to, one that has 800 ms, and one that has patience.
func asleep(t *testing.T, s *redisstore.Store) (leaver, hasty, patient <-chan call, leave context.CancelFunc) {
	l := limiter(t, s, throttle.Policy{Name: "sleepers", Limit: store.LeakyBucket(4, time.Second), Jitter: -1})
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	leaving, leave := context.WithCancel(t.Context())
	short, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
	t.Cleanup(cancel)
	leaver = acquire(leaving, l)
	waiting(t, l, 1)
	hasty = acquire(short, l)
	waiting(t, l, 2)
	patient = acquire(t.Context(), l)
	waiting(t, l, 3)
	return leaver, hasty, patient, leave
}

// waiting returns when so many starts are booked for later.
func waiting(t *testing.T, l *throttle.Limiter, n int) {
	for {
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		if st.Waiting >= n {
			return
		}
	}
}

// TestP11_NobodyStartsWhileRedisIsAway, because nobody knows. Who has a deadline
// obeys it, and who has none goes on when Redis is back.
func TestP11_NobodyStartsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for name, away := range map[string]func(t *testing.T, c *redis.Client) (s *redisstore.Store, away, back func()){
		"hangs": func(t *testing.T, c *redis.Client) (*redisstore.Store, func(), func()) {
			var hangs atomic.Bool
			s, tap := loaded(t, c, func(redis.Cmder) bool { return hangs.Load() })
			return s, func() { hangs.Store(true) }, func() { hangs.Store(false); close(tap.pass) }
		},
		"killed": func(t *testing.T, c *redis.Client) (*redisstore.Store, func(), func()) {
			s, server := saying(t, c, errAway)
			server.err.Store(nil)
			return s, func() { server.set(errAway) }, func() { server.err.Store(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, away, back := away(t, server.Client(t))
				back = sync.OnceFunc(back)
				t.Cleanup(back)
				s.Disconnect()
				leaver, hasty, patient, leave := asleep(t, s)
				away()
				require.ErrorIs(t, (<-hasty).err, context.DeadlineExceeded)
				require.Empty(t, leaver, "it has asked for long")
				leave()
				require.ErrorIs(t, (<-leaver).err, context.Canceled)
				time.Sleep(time.Minute)
				require.Empty(t, patient)
				after := time.Now()
				back()
				got := <-patient
				require.NoError(t, got.err)
				require.False(t, got.at.Before(after))
			})
		})
	}
}

// TestP11_ASilentConnection: nothing comes any more on what the store listens to,
// and the connection is not cut. It notices by itself.
func TestP11_ASilentConnection(t *testing.T) {
	t.Parallel()
	for apart := 3 * time.Second; !asksAfterSilence(t, apart); apart *= 2 {
		require.Less(t, apart, time.Minute, "no penalty is stored in time")
	}
}

// asksAfterSilence has a store whose connection is silent sleep until a start, under a penalty. It returns false if
// the machine was too slow to store the penalty clearly before the start: then the sleeper may not have met it.
func asksAfterSilence(t *testing.T, apart time.Duration) bool {
	server := redistest.Single(t)
	proxy := redistest.NewProxy(t, server)
	s := redisstore.New(proxy.Client(t), redisstore.Options{})
	slow := throttle.Policy{Name: "sleepers", Limit: store.LeakyBucket(1, apart), Jitter: -1}
	l := limiter(t, s, slow)
	earliest := time.Now().Add(apart) // the start of the sleeper
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	latest := time.Now().Add(apart)

	sleeper := acquire(t.Context(), l)
	for sleeps := false; !sleeps && len(sleeper) == 0; {
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		sleeps = st.Waiting > 0
	}
	hears(s)
	proxy.Mute()
	for s.Complete(time.Now()) {
		time.Sleep(time.Millisecond)
	}

	other := limiter(t, redisstore.New(server.Client(t), redisstore.Options{}), slow)
	end := latest.Add(200 * time.Millisecond)
	require.NoError(t, other.Pause(t.Context(), "", max(0, time.Until(end))+time.Millisecond))
	inTime := time.Now().Before(earliest.Add(-500 * time.Millisecond))
	got := <-sleeper
	require.NoError(t, got.err)
	if !inTime {
		return false
	}
	require.False(t, got.at.Before(end), "it slept until its start, and asked")
	return true
}

// TestP11_NewsComeAtOnce: a sleeper of another program learns that its deadline
// cannot be kept, long before its start.
func TestP11_NewsComeAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := redisstore.New(server.Client(t), redisstore.Options{})
	hourly := throttle.Policy{Name: "sleepers", Limit: store.LeakyBucket(1, time.Hour), Jitter: -1}
	l := limiter(t, s, hourly)
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	ctx := forAtMost(t, 2*time.Hour)
	sleeper := acquire(ctx, l)
	waiting(t, l, 1)
	hears(s)
	other := limiter(t, redisstore.New(server.Client(t), redisstore.Options{}), hourly)
	require.NoError(t, other.Pause(t.Context(), "", 20*time.Hour))
	got := <-sleeper
	var limited *throttle.LimitError
	require.ErrorAs(t, got.err, &limited)
	require.True(t, limited.Paused)
	waiting(t, l, 0)

	long := acquire(t.Context(), l)
	waiting(t, l, 1)
	hears(s)
	require.NoError(t, other.Resume(t.Context(), ""))
	waiting(t, l, 1) // it takes the place that the first one left, in an hour
	st, err := l.Status(t.Context(), "")
	require.NoError(t, err)
	require.Zero(t, st.Paused)
	require.Empty(t, long)
}

// TestP11_AMixedStartHasItsPatience: half of it is asked for in Redis, which is away.
func TestP11_AMixedStartHasItsPatience(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := redisstore.New(server.Client(t), redisstore.Options{})
	node := charge("node", store.PerSecond(1))
	node.Node = true
	k := booking(charge("fleet", store.PerSecond(1)), node)
	g := ask(t, s, k)
	w := s.Watch(k, g, nil)
	defer w.Stop()
	server.Pause()
	ctx := forAtMost(t, time.Minute)
	_, err := w.Confirm(ctx, time.Millisecond)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "MaxWait ended it")
	server.Continue()
}

// TestP15_NobodyListensWhenNobodySleeps: the subscription ends with the last one.
func TestP15_NobodyListensWhenNobodySleeps(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	client := server.Client(t)
	s := redisstore.New(client, redisstore.Options{})
	l := limiter(t, s, throttle.Policy{Name: "sleepers", Limit: store.LeakyBucket(1, time.Hour), Jitter: -1})
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	require.Zero(t, s.Subscriptions(), "who need not wait need not listen")
	sleeps := func(n int) (leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		sleeper := acquire(ctx, l)
		waiting(t, l, n)
		return func() { cancel(); require.ErrorIs(t, (<-sleeper).err, context.Canceled) }
	}
	first, last := sleeps(1), sleeps(2)
	listeners(t, client, 1)
	first()
	require.Equal(t, 1, s.Subscriptions(), "for both of them")
	last()
	listeners(t, client, 0)
	require.Zero(t, s.Subscriptions())
}
