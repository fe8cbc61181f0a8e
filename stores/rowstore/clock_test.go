package rowstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A skewed is a Database as a program sees it whose clock is wrong.
type skewed struct {
	rowstore.Database
	by time.Duration
}

type skewedTx struct {
	rowstore.Tx
	by time.Duration
}

func (s *skewed) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return s.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error { return do(skewedTx{tx, s.by}) })
}

func (tx skewedTx) Now() time.Time { return tx.Tx.Now().Add(tx.by) }

// TestP1_ManyClocks: nodes whose clocks differ take turns. Each step from one clock to the other would let time pass that
// has not passed.
func TestP1_ManyClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, per = 3, 10 * time.Second
		m := newMemory()
		c := store.Charge{Budget: store.Budget{Policy: "slow", Key: [16]byte{4}}, Limit: store.SlidingWindow(n, per), Cost: 1}
		var stores []store.Store
		for _, by := range []time.Duration{-time.Second, 0, 5 * time.Second} {
			stores = append(stores, must(rowstore.New(&skewed{m, by}, rowstore.Options{ManyClocks: true})))
		}
		var starts []time.Time
		for i := range 6000 {
			if now(t, stores[i%len(stores)], c) {
				starts = append(starts, time.Now())
			}
			time.Sleep(10 * time.Millisecond)
		}
		for i := n + 3; i < len(starts); i++ { // the first steps find out which clock is the latest
			require.GreaterOrEqual(t, starts[i].Sub(starts[i-n]), per-20*time.Millisecond)
		}
		require.Greater(t, len(starts), 15)
	})
}

// TestP9_WrongClocks: a clock that is far behind is an error, which says so.
func TestP9_WrongClocks(t *testing.T) {
	m := newMemory()
	o := rowstore.Options{ManyClocks: true}
	require.True(t, now(t, must(rowstore.New(m, o)), hourly(2)))
	_, err := must(rowstore.New(&skewed{m, -time.Hour}, o)).Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}})
	var wrong *rowstore.ClockError
	require.ErrorAs(t, err, &wrong)
	require.InDelta(t, time.Hour, wrong.Behind, float64(time.Minute))
	require.ErrorContains(t, err, "NTP")
	require.True(t, now(t, must(rowstore.New(m, o)), hourly(2)))
}

// TestP9_StepBack: the one clock of a database is set back. No time passes for that.
func TestP9_StepBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &skewed{Database: newMemory()}
		s := must(rowstore.New(db, rowstore.Options{}))
		c := store.Charge{Budget: store.Budget{Policy: "slow", Key: [16]byte{4}}, Limit: store.PerMinute(1), Cost: 1}
		require.True(t, now(t, s, c))
		db.by = -time.Hour
		require.False(t, now(t, s, c))
		time.Sleep(2 * time.Minute)
		require.True(t, now(t, s, c))
	})
}

// TestP7_CrowdsThatLeave: crowds of callers of several nodes come and leave, more than a row lists, and those that stay start all the time:
// requests under way and a rate bound them, and no place of a caller that has left holds them up.
func TestP7_CrowdsThatLeave(t *testing.T) {
	soak.WithoutRace(t) // the fleets of pgstore and sqlstore have crowds, too
	for seed := range uint64(soak.Seeds(100, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := crowds{T: t, rand: rand.New(rand.NewPCG(seed, 1)), started: make(chan struct{}, 1)}
				c.play(2 + int(seed%3))
			})
		})
	}
}

// crowds are the callers of a scene.
type crowds struct {
	*testing.T
	started chan struct{}

	mu   sync.Mutex
	rand *rand.Rand
}

// below waits for less than d.
func (c *crowds) below(d time.Duration) {
	c.mu.Lock()
	d = time.Duration(c.rand.Int64N(int64(d)))
	c.mu.Unlock()
	time.Sleep(d)
}

// play has callers of several nodes start, alone and in crowds, for five seconds. It fails if nothing starts for 1.5 s.
func (c *crowds) play(nodes int) {
	m := notifier{newMemory()}
	ctx, leave := context.WithCancel(c.Context())
	var all sync.WaitGroup
	var over atomic.Bool
	for range nodes {
		l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: must(rowstore.New(m, rowstore.Options{})), Policies: []throttle.Policy{
			{Name: "rate", Limit: store.PerSecond(40)}, {Name: "slots", Limit: store.Concurrency(8)},
		}})
		require.NoError(c, err)
		for range 8 {
			all.Go(func() {
				for !over.Load() {
					c.start(ctx, l)
				}
			})
		}
		all.Go(func() {
			for !over.Load() {
				c.crowd(ctx, l)
			}
		})
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		select {
		case <-c.started:
		case <-time.After(1500 * time.Millisecond):
			c.Error("nothing starts any more")
			end = time.Now()
		}
	}
	over.Store(true)
	leave()
	all.Wait()
}

// start takes a start, and holds the slot for some time.
func (c *crowds) start(ctx context.Context, l *throttle.Limiters) {
	p, err := l.Acquire(ctx, throttle.Demand{Policy: "rate"}, throttle.Demand{Policy: "slots"})
	if err != nil {
		if ctx.Err() == nil {
			c.Error(err)
		}
		return
	}
	select {
	case c.started <- struct{}{}:
	default:
	}
	c.below(150 * time.Millisecond)
	p.Release()
}

// crowd is callers that come together, and leave together.
func (c *crowds) crowd(ctx context.Context, l *throttle.Limiters) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { c.start(ctx, l) })
	}
	c.below(400 * time.Millisecond)
	leave()
	all.Wait()
	c.below(300 * time.Millisecond)
}

var errNoSession = errors.New("there is no session")

// sessions are those that a server has.
type sessions struct {
	mu   sync.Mutex
	open map[*session]bool
}

// end ends the sessions of some nodes, or of all, as seen by the server, and by the nodes.
func (all *sessions) end(which func(*session) bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for s := range all.open {
		if which(s) {
			delete(all.open, s)
		}
	}
}

// count returns how many there are.
func (all *sessions) count() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.open)
}

// An attended is a database of one node whose sessions others see.
type attended struct {
	*stoppable
	sessions *sessions
	refused  bool // the server has no more connections
}

// refuse has the node get no session any more.
func (d *attended) refuse() {
	d.sessions.mu.Lock()
	defer d.sessions.mu.Unlock()
	d.refused = true
}

// A session implements [rowstore.Session].
type session struct {
	of   *attended
	node string
}

// Attend implements [rowstore.Attender].
func (d *attended) Attend(_ context.Context, node string) (rowstore.Session, error) {
	d.await()
	time.Sleep(150 * time.Millisecond) // a server is busy
	d.sessions.mu.Lock()
	defer d.sessions.mu.Unlock()
	if d.refused {
		return nil, errNoSession
	}
	s := &session{d, node}
	d.sessions.open[s] = true
	return s, nil
}

// Present implements [rowstore.Session]. It fails once the server has ended the session.
func (s *session) Present(_ context.Context, nodes []string) (present []bool, now time.Time, err error) {
	s.of.await()
	s.of.sessions.mu.Lock()
	defer s.of.sessions.mu.Unlock()
	if !s.of.sessions.open[s] {
		return nil, now, errNoSession
	}
	for _, n := range nodes {
		is := false
		for o := range s.of.sessions.open {
			is = is || o.node == n
		}
		present = append(present, is)
	}
	return present, time.Now(), nil
}

// Close implements [rowstore.Session].
func (s *session) Close() {
	s.of.sessions.mu.Lock()
	defer s.of.sessions.mu.Unlock()
	delete(s.of.sessions.open, s)
}

// A fleet is nodes of one database, each with sessions of its own.
type fleet struct {
	*testing.T
	memory   *memory
	sessions *sessions
	policy   throttle.Policy
}

func newFleet(t *testing.T, limit store.Limit) *fleet {
	return &fleet{t, newMemory(), &sessions{open: make(map[*session]bool)}, throttle.Policy{Name: "all", Limit: limit}}
}

// node returns a node of the fleet.
func (f *fleet) node() (*attended, *throttle.Limiter) {
	db := &attended{stoppable: &stoppable{notifier: notifier{f.memory}}, sessions: f.sessions}
	l, err := throttle.NewLimiter(must(rowstore.New(db, rowstore.Options{Lease: time.Hour})), f.policy)
	require.NoError(f, err)
	return db, l
}

// take takes a start, which may take as long as it wants.
func (f *fleet) take(l *throttle.Limiter) *throttle.Permit {
	p, err := l.Acquire(throttle.WithMaxWait(f.Context(), throttle.Forever), "", 1)
	require.NoError(f, err)
	return p
}

// TestP7_DeadPrograms: what a program holds is free within a second of its death, and not while it lives: not when it has lost its session, when the
// server was started anew, or when it had nothing to hold before.
func TestP7_DeadPrograms(t *testing.T) {
	of := func(d *attended) func(*session) bool { return func(s *session) bool { return s.of == d } }
	for name, c := range map[string]struct {
		happens func(f *fleet, holder *attended)
		dies    bool
		stops   bool
	}{
		"it is killed": {func(f *fleet, holder *attended) {
			holder.stop()
			f.sessions.end(of(holder))
		}, true, true},
		"it stands still":       {func(_ *fleet, holder *attended) { holder.stop() }, false, true},
		"its connection breaks": {func(f *fleet, holder *attended) { f.sessions.end(of(holder)) }, false, false},
		"the server is started anew, and it gets no connection": {func(f *fleet, holder *attended) {
			holder.refuse()
			holder.stop()
			f.sessions.end(func(*session) bool { return true })
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for phase := range 12 {
				synctest.Test(t, func(t *testing.T) {
					defer time.Sleep(10 * time.Second) // until all sessions are closed
					f := newFleet(t, store.Concurrency(1))
					db, holds := f.node()
					_, waits := f.node()
					held := f.take(holds)

					// The nodes look for each other at different times.
					time.Sleep(3*time.Second + time.Duration(phase)*23*time.Millisecond)
					got := make(chan time.Time, 1)
					go func() {
						p := f.take(waits)
						got <- time.Now()
						p.Release()
					}()
					time.Sleep(3*time.Second + 123*time.Millisecond)

					began := time.Now()
					c.happens(f, db)
					if c.dies {
						require.LessOrEqual(t, (<-got).Sub(began), time.Second)
						db.goOn()
						held.Release()
						return
					}

					time.Sleep(time.Minute)
					require.Empty(t, got, "it lives")
					if c.stops {
						db.goOn()
					}
					held.Release()
					<-got
				})
			}
		})
	}
}

// TestP4_SessionsEnd: a node that holds nothing and waits for nothing has no session after some seconds.
func TestP4_SessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, store.Concurrency(1))
		_, l := f.node()
		for range 3 {
			p := f.take(l)
			time.Sleep(3 * time.Second)
			require.Equal(t, 1, f.sessions.count())
			p.Release()
			time.Sleep(20 * time.Second)
			require.Zero(t, f.sessions.count())
		}
	})
}

// TestP4_BackWithoutASession: a node that has no session because it held nothing is not dead when it holds something again and gets no session.
func TestP4_BackWithoutASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, store.Concurrency(1))
		db, comes := f.node()
		_, stays := f.node()
		_, waits := f.node()
		wait := func(d time.Duration) error {
			_, err := waits.Acquire(throttle.WithMaxWait(t.Context(), d), "", 1)
			return err
		}

		// The one that waits sees both, and then one alone.
		p := f.take(comes)
		require.Error(t, wait(3*time.Second))
		p.Release()
		held := f.take(stays)
		require.Error(t, wait(20*time.Second))
		held.Release()

		db.refuse()
		p = f.take(comes)
		require.Error(t, wait(time.Minute))
		p.Release()
		require.NoError(t, wait(0))
		time.Sleep(10 * time.Second)
	})
}

// A far Database is reached after some time, and its answer takes as long.
type far struct {
	rowstore.Database
	way time.Duration
}

// Transact implements [rowstore.Database].
func (f *far) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	time.Sleep(f.way)
	defer time.Sleep(f.way)
	return f.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		time.Sleep(f.way) // the time and the rows are on their way to the program
		defer time.Sleep(f.way)
		return do(tx)
	})
}

// TestP2_FarDatabase: a caller waits until its start, however long the question for the time was on its way to the database.
func TestP2_FarDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		c := store.Charge{Budget: store.Budget{Policy: "slow", Key: [16]byte{4}}, Limit: store.PerSecond(1), Cost: 1}
		require.True(t, now(t, must(rowstore.New(m, rowstore.Options{})), c))
		before := time.Now()
		g, err := must(rowstore.New(&far{m, 40 * time.Millisecond}, rowstore.Options{})).Book(t.Context(), &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait})
		require.NoError(t, err)
		require.True(t, g.OK)
		require.GreaterOrEqual(t, g.Age, 80*time.Millisecond) // the clock was read within the 80 ms that the rows took to come
		time.Sleep(g.Wait)
		require.Greater(t, time.Since(before), time.Second)
		require.Less(t, time.Since(before), time.Second+50*time.Millisecond)
	})
}

// TestP3_LongLeases: more callers wait than a row lists, and nobody comes or leaves while the budget is closed. When it opens they all start at
// the pace of the limit, however long the lease of their node is.
func TestP3_LongLeases(t *testing.T) {
	const n, callers, closed = 100, 900, 30 * time.Second // more callers than a row lists
	synctest.Test(t, func(t *testing.T) {
		l, err := throttle.NewLimiter(must(rowstore.New(newMemory(), rowstore.Options{Lease: 10 * time.Minute})),
			throttle.Policy{Name: "one", Limit: store.LeakyBucket(n, time.Second)})
		require.NoError(t, err)
		require.NoError(t, l.Pause(t.Context(), "", closed))
		began := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if _, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(closed - time.Second)
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		all.Wait()
		require.Equal(t, callers, st.Waiting)
		require.LessOrEqual(t, time.Since(began), closed+15*time.Second)
	})
}
