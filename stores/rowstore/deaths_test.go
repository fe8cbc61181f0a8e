package rowstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

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
