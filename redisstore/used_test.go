package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// setUsed sets how much is used, requires that the status says so, and that to say it once more
// changes nothing. It returns what was used before.
func setUsed(t *testing.T, client *redis.Client, s *redisstore.Store, c store.Charge, used int) (before int) {
	t.Helper()
	before, ok, err := s.SetUsed(t.Context(), c, used)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, used, status(t, s, c).Used)
	row := client.Get(t.Context(), s.Key(c.Budget)).Val()
	again, ok, err := s.SetUsed(t.Context(), c, used)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, used, again)
	require.Equal(t, row, client.Get(t.Context(), s.Key(c.Budget)).Val())
	return before
}

// TestSetUsed_IsWhatStatusSays: whatever is booked, for now and for later, what is set is what the
// status says then, what is booked for later stays, and to say it once more changes nothing.
func TestSetUsed_IsWhatStatusSays(t *testing.T) {
	eachBubble(t, settable, func(t *testing.T, server *redistest.Server, limit store.Limit) {
		client, rng := server.Client(t), rand.New(rand.NewPCG(24, 2))
		s, _ := loaded(t, client, nil)
		c := charge("budget", limit)
		for range 100 {
			k := booking(c)
			k.Charges[0].Cost = 1 + rng.IntN(limit.N()/3)
			if rng.IntN(2) == 0 {
				k.NotBefore = time.Duration(rng.Int64N(int64(window(limit) / 2)))
				k.Spread = time.Duration(rng.Int64N(int64(window(limit) / 4)))
			}
			ask(t, s, k)
			time.Sleep(time.Duration(rng.Int64N(int64(window(limit)))))
			was := status(t, s, c)
			require.Equal(t, was.Used, setUsed(t, client, s, c, rng.IntN(limit.N()+1)))
			require.Equal(t, was.Waiting, status(t, s, c).Waiting)
		}
		requireSmall(t, client)
	})
}

// settable are limits with a count that can be set. The second has entries that starts share.
var settable = []store.Limit{
	store.SlidingWindow(7, 10*time.Second), store.SlidingWindow(300, 10*time.Second),
	store.FixedWindow(7, 1399*time.Millisecond), store.CalendarWindow(40, store.Day, time.UTC),
}

// A spending is what counts under a limit in truth: starts, and what an operator says.
type spending struct {
	limit store.Limit
	at    []time.Time
}

// counted returns where in the list begins what counts at a time.
func (s *spending) counted(now time.Time) int {
	return len(s.at) - len(slices.DeleteFunc(slices.Clone(s.at), func(at time.Time) bool {
		if s.limit.Kind() == store.KindFixedWindow {
			begin, _ := s.limit.Window(now)
			return at.Before(begin)
		}
		return !at.After(now.Add(-s.limit.Per()))
	}))
}

// set notes that so much is used: the oldest starts were none, or more were made now.
func (s *spending) set(now time.Time, before, after int) {
	s.at = s.at[s.counted(now):]
	s.at = s.at[min(len(s.at), max(0, before-after)):]
	for range after - max(before, len(s.at)) {
		s.at = append(s.at, now)
	}
}

// A spender is a caller that starts as throttle lets one start.
type spender struct {
	store   *redisstore.Store
	booking store.Booking
	late    time.Duration // of the spread
	way     atomic.Bool   // it is under way, by its spread
}

// start waits until the spender may start.
func (p *spender) start(ctx context.Context) error {
	for {
		g, err := p.store.Book(ctx, &p.booking)
		if err != nil {
			return err
		}
		p.booking.Turn, p.booking.Instead, p.booking.Returns = g.Turn, g.Handle, true
		if !g.OK {
			<-g.Ready
			continue
		}
		good, err := p.await(ctx, g)
		if err != nil {
			return err
		}
		if good {
			p.way.Store(true)
			time.Sleep(p.late)
			p.way.Store(false)
			return nil
		}
	}
}

// await waits for a start that is booked, and reports whether it is good. News says only that the start may be void: a start
// that is still good is waited for.
func (p *spender) await(ctx context.Context, g store.Grant) (good bool, err error) {
	news := make(chan struct{}, 1)
	w := p.store.Watch(&p.booking, g, news)
	defer w.Stop()
	due, stop := bubble.After(g.Wait)
	defer stop()
	for {
		isDue := false
		select {
		case <-due:
			isDue = true
		case <-news:
		}
		if good, err = w.Confirm(ctx, -1); err != nil || !good || isDue {
			return good, err
		}
	}
}

// most returns the most that counted at once.
func (s *spending) most() (most int) {
	for i, at := range s.at {
		window := spending{s.limit, s.at[:i+1]}
		most = max(most, i+1-window.counted(at))
	}
	return most
}

// TestP1_SetUsed: what an operator says is used is used, for starts that are made, booked and
// waited for at random: no window holds more than its limit, and every caller starts.
func TestP1_SetUsed(t *testing.T) {
	soak.WithoutRace(t)
	eachBubble(t, settable, func(t *testing.T, server *redistest.Server, limit store.Limit) {
		client := server.Client(t)
		for seed := range uint64(soak.Seeds(8, 2)) {
			s, _ := loaded(t, client, nil)
			spend(t, client, s, limit, rand.New(rand.NewPCG(seed, 24)), seed%2 == 1)
		}
	})
}

// spend lets callers come at random, and an operator. Where starts are spread nobody knows which
// were the oldest, so the count is only raised; those that are under way come on top.
func spend(t *testing.T, client *redis.Client, s *redisstore.Store, limit store.Limit, rng *rand.Rand, spread bool) {
	c := charge("budget", limit)
	truth, mu := spending{limit: limit}, sync.Mutex{}
	var started []chan error
	var all []*spender
	for range soak.Most(150, 75) {
		if row := client.Exists(t.Context(), s.Key(c.Budget)).Val(); row == 1 && rng.IntN(4) == 0 {
			synctest.Wait()
			least, most := 0, limit.N()
			if spread {
				least = min(most, status(t, s, c).Used)
				for _, p := range all {
					if p.way.Load() {
						most = max(least, most-p.booking.Charges[0].Cost)
					}
				}
			}
			after := least + rng.IntN(most-least+1)
			before, ok, err := s.SetUsed(t.Context(), c, after)
			require.NoError(t, err)
			require.True(t, ok)
			mu.Lock()
			truth.set(time.Now(), before, after)
			mu.Unlock()
		}
		p := &spender{store: s, booking: *booking(c)}
		all = append(all, p)
		cost := 1 + rng.IntN(max(1, limit.N()/40))
		p.booking.Charges[0].Cost, p.booking.Horizon = cost, time.Duration(rng.IntN(2))*near
		if spread {
			p.booking.Spread = time.Duration(rng.Int64N(int64(window(limit) / 20)))
			p.late = time.Duration(rng.Int64N(int64(p.booking.Spread) + 1))
		}
		done := make(chan error, 1)
		started = append(started, done)
		go func() {
			err := p.start(t.Context())
			mu.Lock()
			defer mu.Unlock()
			for range cost {
				truth.at = append(truth.at, time.Now())
			}
			done <- err
		}()
		time.Sleep(time.Duration(rng.Int64N(int64(window(limit) / 10))))
	}
	for _, done := range started {
		require.NoError(t, <-done)
	}
	require.LessOrEqual(t, truth.most(), limit.N())
}

// TestP3_SetUsedServesWaiters: a count of which nothing is true is lowered. Those that wait
// in line, in whatever program, start at once, as far as there is room, and those that came later do not.
func TestP3_SetUsedServesWaiters(t *testing.T) {
	inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
		c := charge("hour", store.SlidingWindow(5, time.Hour))
		startNow(t, nodes[0], 5, c)
		time.Sleep(time.Minute)
		waiters := crowdOf(t, nodes, 6, 10*time.Millisecond, c)
		set := time.Now()
		before, ok, err := nodes[1].SetUsed(t.Context(), c, 1)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 5, before)
		starts := allStart(t, time.Minute, waiters[:4]...)
		require.WithinDuration(t, set, slices.MaxFunc(starts, time.Time.Compare), 100*time.Millisecond, "nobody waits until it asks again")
		require.True(t, waiters[4].start.IsZero())
		for _, w := range waiters[4:] {
			w.leaves()
		}
	})
}

// TestP1_SetUsedMovesStarts: of starts that are booked for later those that no longer fit when
// a count is raised are booked anew, in every program, and keep their places. When it is lowered
// they start sooner.
func TestP1_SetUsedMovesStarts(t *testing.T) {
	t.Parallel()
	tryAgain(t, setUsedMovesStarts)
}

// setUsedMovesStarts returns false if the program may have lost the news.
func setUsedMovesStarts(t *testing.T) bool {
	client := redistest.Single(t).Client(t)
	a, b := redisstore.New(client, redisstore.Options{}), redisstore.New(client, redisstore.Options{})
	hourly := charge("a name with spaces", store.PerHour(3))
	var news []chan struct{}
	var watches []store.Watch
	var bookings []*store.Booking
	for i := range 3 {
		k := booking(hourly)
		k.NotBefore = time.Duration(1+i) * time.Minute
		g := ask(t, b, k)
		news = append(news, make(chan struct{}, 1))
		watches = append(watches, b.Watch(k, g, news[i]))
		defer func() { watches[i].Stop() }()
		k.Instead, k.Returns, k.NotBefore = g.Handle, true, 0
		bookings = append(bookings, k)
	}

	hears(b)
	since := time.Now()
	_, ok, err := a.SetUsed(t.Context(), hourly, 2)
	require.NoError(t, err)
	require.True(t, ok)
	if !heard(t, b, since, news[1:]...) {
		return false
	}
	require.Empty(t, news[0])
	late := ask(t, a, booking(hourly))
	for i, k := range bookings[1:] {
		g := ask(t, b, k)
		require.Greater(t, g.Wait, 50*time.Minute)
		require.LessOrEqual(t, g.Wait, late.Wait, i)
		k.Instead = g.Handle
		watches[1+i].Stop()
		watches[1+i] = b.Watch(k, g, news[1+i])
	}

	_, _, err = a.SetUsed(t.Context(), hourly, 0)
	require.NoError(t, err)
	if !heard(t, b, since, news...) {
		return false
	}
	for i := range 3 {
		require.Less(t, ask(t, b, bookings[i]).Wait, time.Second)
	}
	return true
}

// newsComes bounds the wait for what takes a message, on a machine that is busy.
const newsComes = 30 * time.Second

// heard requires that there is news for all of them. It returns false if the store may have lost messages since then:
// on a busy machine its connection may seem dead, and is made anew.
func heard(t *testing.T, s *redisstore.Store, since time.Time, news ...chan struct{}) bool {
	t.Helper()
	for _, one := range news {
		select {
		case <-one:
		case <-time.After(newsComes):
			require.False(t, s.Complete(since), "it does not hear")
			return false
		}
	}
	return true
}

// tryAgain plays a scene until it proves something: it returns false if it was too slow for that, on a busy machine.
func tryAgain(t *testing.T, scene func(*testing.T) bool) {
	t.Helper()
	for attempts := 1; !scene(t); attempts++ {
		require.Less(t, attempts, 8, "the machine is always too slow")
	}
}

// TestSetUsed_NothingCounted: where Redis has no count there is none to set, and nothing is made.
func TestSetUsed_NothingCounted(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		never := charge("never", store.PerHour(5))
		for _, limit := range []store.Limit{
			store.LeakyBucket(5, time.Minute), store.TokenBucket(5, time.Minute, 5), store.Concurrency(5), store.Unlimited(),
		} {
			c := charge(limit.String(), limit)
			k, g := booking(c), store.Grant{}
			g = ask(t, s, k)
			was := status(t, s, c)
			_, ok, err := s.SetUsed(t.Context(), c, 5)
			require.NoError(t, err)
			require.False(t, ok, limit)
			require.Equal(t, was.Used, status(t, s, c).Used)
			s.Release(k, g)
		}
		_, ok, err := s.SetUsed(t.Context(), never, 5)
		require.NoError(t, err)
		require.False(t, ok)
		require.Zero(t, client.Exists(t.Context(), s.Key(never.Budget)).Val())
		_, ok, err = s.SetUsed(t.Context(), own(never), 5)
		require.NoError(t, err)
		require.False(t, ok)
	})
}

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
	u.take(1)
	if u.used > u.n {
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
		w.Stop()
		if ok {
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

// TestP1_AnswerFromBeforeAnOutage: a program hears that 40 of 100 are left, and its connection to Redis is away for ten seconds. The upstream has not counted what
// other programs started meanwhile, so that comes on top of the 60 that others have spent.
func TestP1_AnswerFromBeforeAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		others := redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock).Frugal()
		api := charge("api", store.SlidingWindow(100, time.Minute))

		told := make(chan error, 1)
		go func() { told <- s.Reconcile(t.Context(), api, store.Quota{Left: 40, Reset: 40 * time.Second}) }()
		for range 30 {
			time.Sleep(300 * time.Millisecond)
			_, err := others.Book(t.Context(), booking(api))
			require.NoError(t, err)
		}

		time.Sleep(time.Second)
		away.err.Store(nil)
		require.NoError(t, <-told)
		st, err := others.Status(t.Context(), api)
		require.NoError(t, err)
		require.Equal(t, 90, st.Used)
	})
}

// TestP4_TruthfulAnswers lets an upstream that nobody else uses say with every
// answer what is left.
func TestP4_TruthfulAnswers(t *testing.T) {
	soak.WithoutRace(t)
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

// TestP11_ReconcileReachesOthers has one program hear that little is left. The sleepers of another
// program that no longer fit book anew at once.
func TestP11_ReconcileReachesOthers(t *testing.T) {
	t.Parallel()
	tryAgain(t, reconcileReachesOthers)
}

// reconcileReachesOthers returns false if the other program may have lost the news.
func reconcileReachesOthers(t *testing.T) bool {
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

	hears(b)
	since := time.Now()
	state(t, a, hourly, 1, time.Hour)
	if !heard(t, b, since, news[1]) {
		return false
	}
	require.Empty(t, news[0])
	for i, want := range []bool{true, false} {
		ok, err := watches[i].Confirm(t.Context(), -1)
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
	return true
}

// TestP10_Reconcile hears of something else all the time.
func TestP10_Reconcile(t *testing.T) {
	soak.WithoutRace(t)
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
	eachBubble(t, seeds(soak.Seeds(differentialSeeds, 2)), func(t *testing.T, server *redistest.Server, seed uint64) {
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
