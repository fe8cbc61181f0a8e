package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// Windows are an upstream that counts what arrives in windows of the clock, and says
// and, in whole seconds, for how long.
type windows struct {
	n   int
	per time.Duration

	mu                      sync.Mutex
	used, answered, refused int
	window                  time.Time
}

// request is one of the fleet's.
func (u *windows) request() store.Quota {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answered++
	if u.take(1); u.used > u.n {
		u.refused++
	}
	reset := time.Until(u.window.Add(u.per))
	return store.Quota{Left: max(0, u.n-u.used), Reset: (reset + time.Second - 1).Truncate(time.Second)}
}

// spend is what others do.
func (u *windows) spend(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.take(n)
}

func (u *windows) take(n int) {
	if now := time.Now().Truncate(u.per); now != u.window {
		u.used, u.window = 0, now
	}
	u.used += n
}

// A fleet is some stores that share a budget, and what they do at the upstream.
type fleet struct {
	*testing.T
	*windows
	mute   bool // stores are not told what the upstream says
	charge store.Charge
	stores []*redisstore.Store
	tap    *tap
}

func newFleet(t *testing.T, c *redis.Client, stores, n int, per time.Duration) *fleet {
	f := &fleet{T: t, windows: &windows{n: n, per: per}, charge: charge("shared", store.SlidingWindow(n, per))}
	f.charge.Jitter = 20 * time.Millisecond
	_, f.tap = loaded(t, c, nil)
	for range stores {
		f.stores = append(f.stores, redisstore.NewAt(c, redisstore.Options{}, bubbleClock).Frugal())
	}
	return f
}

// send does one request of a store: books it, waits, lets it arrive, and tells the
// store what was answered.
func (f *fleet) send(ctx context.Context, s *redisstore.Store, travel time.Duration) {
	for k := booking(f.charge); ; {
		g, err := s.Book(ctx, k)
		if err != nil {
			return // the test is over
		}
		w := s.Watch(k, g, make(chan struct{}, 1))
		time.Sleep(g.Wait)
		ok, _ := w.Confirm(ctx, -1)
		if w.Stop(); ok {
			break
		}
		k.Instead = g.Handle
	}
	time.Sleep(travel)
	q := f.request()
	time.Sleep(travel)
	if !f.mute {
		require.NoError(f, s.Reconcile(ctx, f.charge, q))
	}
}

// told returns how often a store told Redis what an answer said.
func (f *fleet) told() int {
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	n := 0
	for _, cmd := range f.tap.cmds {
		if isReconcile(cmd) {
			n++
		}
	}
	return n
}

// TestP4_TruthfulAnswers lets an upstream that nobody else uses say with every
// answer what is left.
func TestP4_TruthfulAnswers(t *testing.T) {
	t.Parallel()
	fewer := soak.Most(1, 10)
	for _, c := range []struct {
		name     string
		n        int
		per, gap time.Duration
		requests int
		most     int
	}{
		{"a hundred at once", 100, time.Minute, 0, 100, 0},
		{"a hundred in a minute", 100, time.Minute, 550 * time.Millisecond, 100, 0},
		{"few", 100, time.Minute, 10 * time.Second, 100, 0},
		{"half of it", 600, time.Minute, 200 * time.Millisecond, 900 / fewer, 1},
		{"all of it", 600, time.Minute, 101 * time.Millisecond, soak.Most(1800, 900), 1},
		{"hours", 5000 / fewer, time.Hour, 750 * time.Millisecond * time.Duration(fewer), 10000 / fewer, 0},
		{"seconds", 40, time.Second, 25 * time.Millisecond, 400, 0},
	} {
		runBubble(t, c.name, func(t *testing.T, server *redistest.Server) {
			f := newFleet(t, server.Client(t), 1, c.n, c.per)
			for range c.requests {
				f.send(t.Context(), f.stores[0], 5*time.Millisecond)
				time.Sleep(max(0, c.gap-10*time.Millisecond))
			}
			require.LessOrEqual(t, f.told(), c.most)
			require.Zero(t, f.refused)
		})
	}
}

// TestP4_TruthfulAnswersToAFleet has several stores with many requests on their
// way, which wait in a queue all the time. Each hears of starts of the others before
// it knows of them.
func TestP4_TruthfulAnswersToAFleet(t *testing.T) {
	eachBubble(t, soak.Most([]int{1, 3, 10}, []int{3}), func(t *testing.T, server *redistest.Server, stores int) {
		f := newFleet(t, server.Client(t), stores, 100, 10*time.Second)
		rng := rand.New(rand.NewPCG(uint64(stores), 4))
		var all sync.WaitGroup
		for i := range 20 {
			s, travel := f.stores[i%stores], time.Duration(1+rng.IntN(10))*time.Millisecond
			all.Go(func() {
				for range 25 {
					f.send(t.Context(), s, travel)
				}
			})
		}
		all.Wait()
		require.Equal(t, 500, f.answered)
		require.LessOrEqual(t, f.told(), 5*stores, "one for each window and store")
		require.Zero(t, f.refused)
	})
}

// TestP11_OthersAreNoticed has another team spend a part of each window, which no
// store sees. The fleet wants more than all of it, and leaves the others theirs.
func TestP11_OthersAreNoticed(t *testing.T) {
	t.Parallel()
	for _, others := range soak.Most([]int{1, 10, 60, 90}, []int{90}) {
		for _, at := range []time.Duration{0, 17 * time.Second} {
			runBubble(t, fmt.Sprint(others, " after ", at), func(t *testing.T, server *redistest.Server) {
				told, untold := notice(t, server.Client(t), false, others, at), notice(t, server.Client(t), true, others, at)
				require.GreaterOrEqual(t, untold, 4*others)
				require.LessOrEqual(t, told, 2*5, "two for each window: who finds out, and who was on the way")
			})
		}
	}
}

// TestP4_TruthfulBucket lets an upstream keep a bucket, and say with every answer how
// many tokens are left: first nobody else takes any, then somebody does.
func TestP4_TruthfulBucket(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server.Client(t), 1, 0, time.Hour)
		f.charge = charge("bucket", store.TokenBucket(2, time.Second, 40))
		s, tokens, at := f.stores[0], 40.0, time.Now()
		request := func(cost float64) store.Quota {
			tokens = min(40, tokens+2*time.Since(at).Seconds()) - cost
			at = time.Now()
			require.GreaterOrEqual(t, tokens, -1e-6)
			return store.Quota{Left: int(tokens + 1e-6)}
		}
		for i := range 300 {
			time.Sleep(book(t, s, f.charge) + 10*time.Millisecond)
			q := request(1)
			time.Sleep(10 * time.Millisecond)
			require.NoError(t, s.Reconcile(t.Context(), f.charge, q))
			time.Sleep(time.Duration(i%7) * 100 * time.Millisecond)
		}
		truthful := f.told()
		require.LessOrEqual(t, truthful, 6, "one for each time in which the bucket fills")
		time.Sleep(time.Minute)
		for range 30 {
			request(10)
			time.Sleep(book(t, s, f.charge) + 10*time.Millisecond)
			require.NoError(t, s.Reconcile(t.Context(), f.charge, request(1)))
			time.Sleep(5500 * time.Millisecond)
		}
		require.Greater(t, f.told(), truthful)
	})
}

// TestP4_BucketsFill tells what others take, measured by what has flowed in since.
func TestP4_BucketsFill(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server.Client(t), 1, 0, time.Hour)
		c, s := charge("bucket", store.TokenBucket(2, time.Second, 40)), f.stores[0]
		book(t, s, c)
		for i, step := range []struct{ left, told int }{
			{39, 0}, {37, 0}, {19, 1}, // what flows in within a second is not worth a call
			{29, 1}, {27, 1}, {26, 2},
			{36, 2}, {34, 2}, {33, 3},
		} {
			if i > 0 && i%3 == 0 {
				time.Sleep(5 * time.Second)
			}
			state(t, s, c, step.left, 0)
			require.Equal(t, step.told, f.told(), "step %d", i)
		}
	})
}

// TestP4_ABurstIsToldOnce has many answers come at the same time from a budget that
// others have spent.
func TestP4_ABurstIsToldOnce(t *testing.T) {
	onTap(t, isReconcile, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		s.Frugal()
		c := charge("budget", store.PerMinute(100))
		for range 64 {
			book(t, s, c)
		}
		tap.names()
		for left := range 30 {
			go state(t, s, c, left, time.Minute)
		}
		synctest.Wait()
		tap.open()
		require.Equal(t, []string{"evalsha"}, tap.names())
	})
}

func isReconcile(cmd redis.Cmder) bool { return isScript(cmd) && redisstore.IsReconcile(cmd) }

// notice returns how many requests of a fleet were refused in five minutes.
func notice(t *testing.T, c *redis.Client, mute bool, others int, at time.Duration) int {
	f := newFleet(t, c, 3, 100, time.Minute)
	f.mute = mute
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + at)))
	done := make(chan bool)
	go func() {
		for i := range 450 {
			f.send(t.Context(), f.stores[i%3], 5*time.Millisecond)
			time.Sleep(200 * time.Millisecond)
		}
		close(done)
	}()
	for {
		f.spend(others)
		select {
		case <-done:
			return f.refused
		case <-time.After(time.Minute):
		}
	}
}

// state tells a store what an upstream says.
func state(t *testing.T, s store.Store, c store.Charge, left int, reset time.Duration) {
	t.Helper()
	require.NoError(t, s.Reconcile(t.Context(), c, store.Quota{Left: left, Reset: reset}))
}

// TestP11_ReconcileReachesOthers has one program hear that little is left. Of the
// sleepers of another those book anew that no longer fit, at once.
func TestP11_ReconcileReachesOthers(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	a, b := redisstore.New(client, redisstore.Options{}), redisstore.New(client, redisstore.Options{})
	hourly := charge("a name with spaces", store.PerHour(10))
	var watches []store.Watch
	var news []chan struct{}
	for i := range 2 {
		k := booking(hourly)
		k.NotBefore = time.Duration(1+i) * time.Minute
		g := ask(t, b, k)
		news = append(news, make(chan struct{}, 1))
		watches = append(watches, b.Watch(k, g, news[i]))
		defer watches[i].Stop()
	}
	listeners(t, client, 1)
	state(t, a, hourly, 1, time.Hour)
	<-news[1]
	require.Empty(t, news[0])
	for i, want := range []bool{true, false} {
		ok, err := watches[i].Confirm(t.Context(), -1)
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
}

// TestP10_Reconcile hears of something else all the time.
func TestP10_Reconcile(t *testing.T) {
	eachBubble(t, []store.Limit{
		store.PerMinute(100), store.SlidingWindow(min(1<<40, math.MaxInt), time.Hour), store.FixedWindow(1_000_000, time.Minute),
		store.TokenBucket(1, time.Minute, 100_000),
	}, func(t *testing.T, server *redistest.Server, limit store.Limit) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		c := charge("budget", limit)
		for i := range 1000 {
			state(t, s, c, limit.Capacity()-i*limit.Capacity()/1000, time.Duration(i%59)*time.Second+time.Duration(i)*time.Microsecond)
			time.Sleep(37 * time.Millisecond)
			if i%50 == 0 {
				requireSmall(t, client)
			}
		}
		requireSmall(t, client)
	})
}

// TestP11_ReconcileAsMemstore is TestP1_AsMemstore for budgets of which an upstream
// says all the time what is left. Both stores let the same sleepers book anew.
func TestP11_ReconcileAsMemstore(t *testing.T) {
	all := 0
	eachBubble(t, seeds(soak.Most(differentialSeeds, 2)), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		forgets(t, client) // over a connection that is there before years pass: one made later costs minutes
		d := newPair(t, 100+seed, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		moved := 0
		for d.op = range differentialOps {
			switch {
			case d.rng.IntN(50) == 0:
				c := &d.budgets[d.rng.IntN(len(d.budgets))]
				c.Limit = store.TokenBucket(1+d.rng.IntN(1000), time.Minute, 1+d.rng.IntN(200))
				d.adorn(c)
			case d.rng.IntN(4) == 0:
				moved += d.state()
			default:
				d.step()
			}
		}
		all += moved
	})
	require.Positive(t, all)
}

// state tells both stores what an upstream says, compares which sleepers are to book
// anew, and returns how many.
func (d *pair) state() (moved int) {
	c := d.budgets[d.rng.IntN(len(d.budgets))]
	sleepers := d.sleepers(c)
	n := c.Limit.Capacity()
	q := store.Quota{Left: d.rng.IntN(n+2) - 1, Reset: d.duration()}
	if d.rng.IntN(2) == 0 {
		q.Left = d.rng.IntN(1 + n/10)
	}
	if d.rng.IntN(2) == 0 {
		q.Age = d.duration()
	}
	require.NoError(d, d.mem.Reconcile(d.Context(), c, q))
	require.NoError(d, d.red.Reconcile(d.Context(), c, q))
	for i, s := range sleepers {
		want, err := s.mem.Confirm(d.Context(), -1)
		require.NoError(d, err)
		got, err := s.red.Confirm(d.Context(), -1)
		require.NoError(d, err)
		require.Equal(d, want, got, "operation %d: sleeper %d of %+v", d.op, i, c)
		if !got {
			moved++
		}
		s.mem.Stop()
		s.red.Stop()
	}
	return moved
}

// A sleeper is a start to come that both stores watch over.
type sleeper struct{ mem, red store.Watch }

// sleepers books some starts to come in a budget.
func (d *pair) sleepers(c store.Charge) (all []sleeper) {
	for range d.rng.IntN(5) {
		k := store.Booking{Charges: []store.Charge{c}, MaxWait: -1, NotBefore: d.duration()}
		mine, theirs := k, k
		mine.Charges, theirs.Charges = slices.Clone(k.Charges), slices.Clone(k.Charges)
		g := ask(d.T, d.mem, &mine)
		r := ask(d.T, d.red, &theirs)
		require.Equal(d, g.Wait, r.Wait, "operation %d: %+v", d.op, k)
		all = append(all, sleeper{d.mem.Watch(&mine, g, make(chan struct{}, 1)), d.red.Watch(&theirs, r, make(chan struct{}, 1))})
	}
	return all
}
