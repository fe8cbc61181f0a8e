package redisstore_test

import (
	"context"
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
		news := make(chan struct{}, 1)
		w := p.store.Watch(&p.booking, g, news)
		due, stop := bubble.After(g.Wait)
		select {
		case <-due:
		case <-news:
		}
		stop()
		good, err := w.Confirm(ctx, -1)
		w.Stop()
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
	eachBubble(t, settable, func(t *testing.T, server *redistest.Server, limit store.Limit) {
		client := server.Client(t)
		for seed := range soak.Most[uint64](20, 2) {
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
		require.WithinDuration(t, set, slices.MaxFunc(starts, time.Time.Compare), near)
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
	listeners(t, client, 1)
	_, ok, err := a.SetUsed(t.Context(), hourly, 2)
	require.NoError(t, err)
	require.True(t, ok)
	heard(t, news[1:]...)
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
	heard(t, news...)
	for i := range 3 {
		require.Less(t, ask(t, b, bookings[i]).Wait, time.Second)
	}
}

// heard requires that there is news for all of them.
func heard(t *testing.T, news ...chan struct{}) {
	t.Helper()
	for _, one := range news {
		select {
		case <-one:
		case <-time.After(awaitMost):
			require.FailNow(t, "it does not hear")
		}
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
