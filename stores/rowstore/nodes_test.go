package rowstore_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A counted is a Database without news that counts transactions.
type counted struct {
	*memory
	n     atomic.Int64
	takes time.Duration // of each transaction
}

func (c *counted) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	c.n.Add(1)
	return c.memory.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		if c.takes > 0 {
			time.Sleep(c.takes)
		}
		return do(tx)
	})
}

// sleeper books a start in a minute, and returns the news of its watch.
func sleeper(t *testing.T, s store.Store) <-chan struct{} {
	t.Helper()
	news, w := watched(t, s)
	t.Cleanup(w.Stop)
	return news
}

// watched is a start in the next minute, of which a caller is to hear news.
func watched(t *testing.T, s store.Store) (<-chan struct{}, store.Watch) {
	t.Helper()
	c := store.Charge{Budget: store.Budget{Policy: "minutely", Key: [16]byte{3}}, Limit: store.PerMinute(1), Cost: 1}
	now(t, s, c)
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait}
	g, err := s.Book(t.Context(), b)
	require.NoError(t, err)
	require.Greater(t, g.Wait, 50*time.Second)
	news := make(chan struct{}, 1)
	return news, s.Watch(b, g, news)
}

// TestP11_Sleepers: a penalty that one node stores reaches callers of another one that sleep: at once if the database
// tells it, and otherwise within a quarter of a second.
func TestP11_Sleepers(t *testing.T) {
	for name, within := range map[string]time.Duration{"told": 0, "looks": 250 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var db rowstore.Database = newMemory()
				if within == 0 {
					db = notifier{newMemory()}
				}
				news := sleeper(t, must(rowstore.New(db, rowstore.Options{})))
				time.Sleep(100 * time.Millisecond)
				select {
				case <-news:
					t.Fatal("there are news of nothing")
				default:
				}
				began := time.Now()
				c := store.Charge{Budget: store.Budget{Policy: "minutely", Key: [16]byte{3}}, Limit: store.PerMinute(1), Cost: 1}
				require.NoError(t, must(rowstore.New(db, rowstore.Options{})).Pause(t.Context(), c, time.Hour))
				<-news
				require.LessOrEqual(t, time.Since(began), within)
			})
		})
	}
}

// TestP4_Looks: without a Notifier a node looks four times a second while a caller waits in it, and not otherwise.
func TestP4_Looks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &counted{memory: newMemory()}
		s := must(rowstore.New(db, rowstore.Options{}))
		in := func(d time.Duration) int64 {
			synctest.Wait()
			before := db.n.Load()
			time.Sleep(d)
			synctest.Wait()
			return db.n.Load() - before
		}
		require.True(t, now(t, s, hourly(9)))
		require.Zero(t, in(time.Minute), "nobody waits")

		held := &store.Booking{Charges: []store.Charge{slot()}}
		_, err := s.Book(t.Context(), held)
		require.NoError(t, err)
		require.LessOrEqual(t, in(10*time.Second), int64(10), "a slot is held: its lease is renewed once a second")

		waits := &store.Booking{Charges: []store.Charge{slot()}, MaxWait: store.AnyWait}
		g, err := s.Book(t.Context(), waits)
		require.NoError(t, err)
		require.NotNil(t, g.Ready)
		n := in(10 * time.Second)
		require.GreaterOrEqual(t, n, int64(40))
		require.LessOrEqual(t, n, int64(51), "a caller waits: four looks a second, and a renewal")
		s.Cancel(waits, g)
		s.Release(held, store.Grant{OK: true})
		in(2 * time.Second)
		require.Zero(t, in(time.Minute), "nobody waits any more")
	})
}

// TestP7_DeadNodes: what a node held that died is free when its lease is over, and its waiters have left their line.
func TestP7_DeadNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		dead := &accident{err: errLost}
		one, other := must(rowstore.New(&broken{notifier{m}, dead.before, nil}, rowstore.Options{})), must(rowstore.New(notifier{m}, rowstore.Options{}))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l := limiter(t, one)
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		require.NoError(t, err)
		var gone sync.WaitGroup
		gone.Go(func() { _, _ = l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1) }) // it waits, and is before the other node's caller
		synctest.Wait()
		dead.away.Store(true)

		began := time.Now()
		permit, err := limiter(t, other).Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), 12*time.Second)
		permit.Release()
		stop()
		gone.Wait()
		dead.isOver()
		synctest.Wait()
	})
}

func limiter(t *testing.T, s store.Store) *throttle.Limiter {
	l, err := throttle.NewLimiter(s, throttle.Policy{Name: "one", Limit: store.Concurrency(1)})
	require.NoError(t, err)
	return l
}

// TestP3_LineOfNodes: callers of four nodes wait in one line. The line moves from node to node, with a Notifier and without
// one, and little of the limit is lost.
func TestP3_LineOfNodes(t *testing.T) {
	const n, each = 20, 15
	for name, atLeast := range map[string]float64{"told": 0.95, "looks": 0.8} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var db rowstore.Database = newMemory()
				if name == "told" {
					db = notifier{newMemory()}
				}
				began := time.Now()
				var all sync.WaitGroup
				for range 4 {
					l, err := throttle.NewLimiter(must(rowstore.New(db, rowstore.Options{})), throttle.Policy{Name: "all", Limit: store.PerSecond(n)})
					require.NoError(t, err)
					for range 10 {
						all.Go(func() {
							for range each {
								if _, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1); err != nil {
									t.Error(err)
								}
							}
						})
					}
				}
				all.Wait()
				quota := 4 * 10 * each / time.Since(began).Seconds() / n
				t.Logf("%.0f %% of the limit", 100*quota)
				require.GreaterOrEqual(t, quota, atLeast)
			})
		})
	}
}

// TestP6_OneBudgetForOneName: a budget is the same whatever the other policies of a program are, and stores with
// other names share nothing.
func TestP6_OneBudgetForOneName(t *testing.T) {
	m := newMemory()
	charge := func(group string) store.Charge {
		c := hourly(1)
		c.Budget.Group = group
		return c
	}
	s := must(rowstore.New(m, rowstore.Options{Name: "a name, and one that is as long as no key may be"}))
	require.True(t, now(t, s, charge("a.example")))
	require.False(t, now(t, s, charge("a.example")))
	require.False(t, now(t, s, charge("b.example")))
	for key := range m.rows {
		require.Regexp(t, `^[a-z0-9._/-]{1,128}$`, strings.ToLower(key))
	}

	require.True(t, now(t, must(rowstore.New(m, rowstore.Options{})), charge("a.example")))
	require.False(t, now(t, must(rowstore.New(m, rowstore.Options{Name: "throttle"})), charge("")))
	require.True(t, now(t, must(rowstore.New(m, rowstore.Options{Name: "other"})), charge("")))
}

// TestP11_NewsBeforeTheWatch: a penalty is stored when a start is booked, and its watch has not begun.
func TestP11_NewsBeforeTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := notifier{newMemory()}
		one, other := must(rowstore.New(m, rowstore.Options{})), must(rowstore.New(m, rowstore.Options{}))
		c := store.Charge{Budget: store.Budget{Policy: "minutely", Key: [16]byte{3}}, Limit: store.PerMinute(1), Cost: 1}
		require.True(t, now(t, one, c))
		b := &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait}
		for _, pauses := range []store.Store{one, other} {
			g, err := one.Book(t.Context(), b)
			require.NoError(t, err)
			require.NoError(t, pauses.Pause(t.Context(), c, time.Hour))
			synctest.Wait()
			news := make(chan struct{}, 1)
			w := one.Watch(b, g, news)
			synctest.Wait()
			require.Len(t, news, 1)
			ok, err := w.Confirm(t.Context(), 0)
			require.NoError(t, err)
			require.False(t, ok)
			w.Stop()
			one.Cancel(b, g)
			require.NoError(t, other.Resume(t.Context(), c))
		}
	})
}
