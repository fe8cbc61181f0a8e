package rowstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A stoppable is a database for one node, which stands still, or is dead, from some moment on: what it does then has no answer, and it hears nothing.
type stoppable struct {
	notifier
	mu      sync.Mutex
	stopped chan struct{} // closed when the node goes on. It is nil while the node goes.
}

// stop has the node stand still.
func (s *stoppable) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = make(chan struct{})
}

// goOn has the node go on.
func (s *stoppable) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.stopped)
	s.stopped = nil
}

// await waits until the node goes.
func (s *stoppable) await() {
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

func (s *stoppable) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	s.await()
	return s.notifier.Transact(ctx, group, keys, do)
}

// Listen has news lost while the node stands still.
func (s *stoppable) Listen(group, node string, wake func()) (stop func(), err error) {
	return s.notifier.Listen(group, node, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stopped == nil {
			wake()
		}
	})
}

// A line is callers of several nodes that start again and again, of one limit.
type line struct {
	*testing.T
	limit store.Limit

	mu     sync.Mutex
	starts []time.Time
	over   bool
	all    sync.WaitGroup
}

// join adds callers of a node, which are those of the result.
func (l *line) join(db rowstore.Database, callers int, counted bool) {
	one, err := throttle.NewLimiter(must(rowstore.New(db, rowstore.Options{})), throttle.Policy{Name: "all", Limit: l.limit})
	require.NoError(l, err)
	for range callers {
		l.all.Go(func() {
			for l.started(one, counted) {
			}
		})
	}
}

// started takes a start. It returns false when the line is over.
func (l *line) started(one *throttle.Limiter, counted bool) bool {
	if _, err := one.Acquire(throttle.WithMaxWait(l.Context(), throttle.Forever), "", 1); err != nil {
		if l.Context().Err() == nil {
			l.Error(err)
		}
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if counted {
		l.starts = append(l.starts, time.Now())
	}
	return !l.over
}

// end ends the line, and returns the starts that were counted since a moment.
func (l *line) end(since time.Time) []time.Time {
	l.mu.Lock()
	l.over = true
	starts := slices.DeleteFunc(slices.Clone(l.starts), func(at time.Time) bool { return at.Before(since) })
	l.mu.Unlock()
	return starts
}

// TestP7_SilentNodes: a node stands still, or is dead, while its callers are next in line. The others are held up by what is booked for it, and by
// nothing else, long before its lease is over; and its callers have their turn when it goes on.
func TestP7_SilentNodes(t *testing.T) {
	const n, nodes, callers = 40, 4, 4
	for name, database := range map[string]func(*memory) rowstore.Database{
		"told":  func(m *memory) rowstore.Database { return notifier{m} },
		"looks": func(m *memory) rowstore.Database { return m },
	} {
		for at := range 5 {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMemory()
					l := &line{T: t, limit: store.PerSecond(n)}
					silent := &stoppable{notifier: notifier{m}}
					l.join(silent, 20, false) // more than start within the horizon
					for range nodes - 1 {
						l.join(database(m), callers, true)
					}
					time.Sleep(3*time.Second + time.Duration(at)*77*time.Millisecond)

					silent.stop()
					began := time.Now()
					time.Sleep(4 * time.Second)
					starts := slices.DeleteFunc(l.end(began), func(at time.Time) bool { return at.Sub(began) > 4*time.Second })
					silent.goOn()
					l.all.Wait()

					last := began
					for _, at := range starts {
						require.LessOrEqual(t, at.Sub(last), time.Second, "nobody starts")
						last = at
					}
					require.GreaterOrEqual(t, len(starts), 4*n*70/100, "no more than a second is lost, and what the node had booked")
				})
			})
		}
	}
}

// TestP3_LostWakes: a node that does not hear that it is its turn is passed, loses no place, and goes on by itself within a second.
func TestP3_LostWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := &line{T: t, limit: store.PerSecond(40)}
		l.join(deaf{notifier{m}}, 4, true)
		l.join(notifier{m}, 4, true)
		time.Sleep(10 * time.Second)
		starts := l.end(time.Now().Add(-8 * time.Second))
		l.all.Wait()
		require.GreaterOrEqual(t, len(starts), 8*40*95/100)
	})
}

// A deaf is a database whose nodes are not woken.
type deaf struct{ notifier }

func (deaf) Listen(string, string, func()) (stop func(), err error) { return func() {}, nil }

// TestP4_StepsOfALine: callers that wait in some nodes make few transactions a start, with all that nodes say that they live: most steps do three
// things for three callers: one joins the line, one asks whether its start still holds, and one is booked.
func TestP4_StepsOfALine(t *testing.T) {
	soak.WithoutRace(t)
	const n = 40
	for _, c := range []struct {
		nodes, callers int
		most           float64
	}{{4, 16, 2}, {60, 4, 4.5}} {
		synctest.Test(t, func(t *testing.T) {
			db := &counted{memory: newMemory(), takes: time.Millisecond}
			l := &line{T: t, limit: store.PerSecond(n)}
			for range c.nodes {
				l.join(struct {
					*counted
					told
				}{db, told{db.memory}}, c.callers, true)
			}
			time.Sleep(10 * time.Second)
			before := db.n.Load()
			time.Sleep(10 * time.Second)
			steps := db.n.Load() - before
			starts := l.end(time.Now().Add(-10 * time.Second))
			t.Logf("%d × %d: %d transactions and looks, %d starts", c.nodes, c.callers, steps, len(starts))
			l.all.Wait()
			require.GreaterOrEqual(t, len(starts), 10*n*95/100)
			require.LessOrEqual(t, float64(steps), c.most*float64(len(starts)))
		})
	}
}

// told has the Listen of a notifier, and nothing else.
type told struct{ m *memory }

func (o told) Listen(group, node string, wake func()) (func(), error) {
	return notifier{o.m}.Listen(group, node, wake)
}

// hourly is a budget of which what is spent stays spent during a test.
func hourly(n int) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "hourly", Key: [16]byte{1}}, Limit: store.PerHour(n), Cost: 1}
}

// slot is a budget of one request in flight.
func slot() store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "slots", Key: [16]byte{2}}, Limit: store.Concurrency(1), Cost: 1}
}

// now books a start now, and reports whether there is one.
func now(t *testing.T, s store.Store, c store.Charge) bool {
	t.Helper()
	g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{c}})
	require.NoError(t, err)
	return g.OK
}

func used(t *testing.T, s store.Store, c store.Charge) int {
	t.Helper()
	st, err := s.Status(t.Context(), c)
	require.NoError(t, err)
	return st.Used
}

var errLost = errors.New("the connection was lost")

// A broken is a Database whose transactions go wrong.
type broken struct {
	rowstore.Database
	before func() error // is called before a transaction, which it prevents by an error
	after  func() error // is called when a transaction was saved
}

// Transact implements [rowstore.Database].
func (b *broken) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	if b.before != nil {
		if err := b.before(); err != nil {
			return err
		}
	}
	if err := b.Database.Transact(ctx, group, keys, do); err != nil {
		return err
	}
	if b.after != nil {
		return b.after()
	}
	return nil
}

// An accident is what happens to a database: first a reply is lost, and then it is away.
type accident struct {
	err         error
	loses, away atomic.Bool
}

func (a *accident) before() error {
	if a.away.Load() {
		return a.err
	}
	return nil
}

func (a *accident) after() error {
	if a.loses.Load() {
		a.away.Store(true)
		return a.err
	}
	return nil
}

// end lets the database answer again.
func (a *accident) end() {
	a.loses.Store(false)
	a.away.Store(false)
}

// once returns a function that fails the first time that it is called.
func once() func() error {
	done := false
	return func() error {
		if done {
			return nil
		}
		done = true
		return errLost
	}
}

// TestP8_LostReplies: a transaction was saved, and nobody heard it. It counts, once.
func TestP8_LostReplies(t *testing.T) {
	m := newMemory()
	for i := range 3 {
		s := must(rowstore.New(&broken{Database: m, after: once()}, rowstore.Options{}))
		require.True(t, now(t, s, hourly(3)))
		require.Equal(t, i+1, used(t, s, hourly(3)))
	}
	require.False(t, now(t, must(rowstore.New(m, rowstore.Options{})), hourly(3)))
}

// TestP8_NotSaved: a transaction failed before anything was sent, and nothing is booked. The caller is told.
func TestP8_NotSaved(t *testing.T) {
	m := newMemory()
	s := must(rowstore.New(&broken{Database: m, before: once()}, rowstore.Options{}))
	_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
	require.ErrorIs(t, err, errLost)
	require.ErrorContains(t, err, "rowstore: ")
	require.Zero(t, used(t, s, hourly(1)))
	require.True(t, now(t, s, hourly(1)))
}

// A refusing is a Database that refuses what was put.
type refusing struct {
	rowstore.Database
	calls int
}

var errRefused = errors.New("refused")

func (r *refusing) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	r.calls++
	return fmt.Errorf("%w: %w", rowstore.ErrNotSaved, r.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		return errors.Join(do(tx), errRefused)
	}))
}

// TestP12_CertainlyNotSaved: a database says that it has saved nothing. It is not asked, and callers are told at once.
func TestP12_CertainlyNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := newMemory()
		r := &refusing{Database: m}
		_, err := must(rowstore.New(r, rowstore.Options{})).Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}, MaxWait: store.AnyWait})
		require.ErrorIs(t, err, errRefused)
		require.NotContains(t, err.Error(), "not known")
		require.Equal(t, 1, r.calls)
		require.Equal(t, began, time.Now())
		require.True(t, now(t, must(rowstore.New(m, rowstore.Options{})), hourly(1)))
	})
}

// TestP8_LateCommits: a transaction is believed to be lost, and arrives after its node has found that it was not saved.
// It is refused, because the step is made again.
func TestP8_LateCommits(t *testing.T) {
	m := newOptimistic()
	s := must(rowstore.New(m, rowstore.Options{}))
	var late func() bool
	commits, arrived := 0, false
	m.commit = func(_ *optimisticTx, save func() bool) (bool, error) {
		switch commits++; commits {
		case 1:
			late = save
			return false, errLost
		case 2: // the node has looked
			saved := save()
			arrived = late()
			return saved, nil
		}
		return save(), nil
	}
	require.True(t, now(t, s, hourly(3)))
	require.False(t, arrived, "two copies of a step were saved")
	require.Equal(t, 3, commits)
	m.commit = nil
	require.Equal(t, 1, used(t, s, hourly(3)))
}

// TestP12_Doubt: while it is not known whether a step was saved, callers wait no longer than they may, and are
// told what is the matter. When the database is there again, its answer counts.
func TestP12_Doubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a := &accident{err: errLost}
		a.loses.Store(true)
		s := must(rowstore.New(&broken{m, a.before, a.after}, rowstore.Options{}))
		g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}, MaxWait: time.Second})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errLost)
		require.False(t, g.OK)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = s.Book(ctx, &store.Booking{Charges: []store.Charge{hourly(2)}})
		require.ErrorIs(t, err, context.DeadlineExceeded)

		a.end()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, used(t, s, hourly(2)), "what callers got that had left is given back")
		require.True(t, now(t, s, hourly(2)))
	})
}

// TestP12_LongDoubt: when the database is away for longer than the lease, callers get an error, and nothing that the
// node had asked for in vain is held in the end.
func TestP12_LongDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		a.loses.Store(true)
		s := must(rowstore.New(&broken{m, a.before, a.after}, rowstore.Options{}))
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err := s.Book(ctx, &store.Booking{Charges: []store.Charge{slot()}, MaxWait: store.AnyWait})
		require.ErrorIs(t, err, errLost)
		require.Greater(t, time.Since(began), 10*time.Second)
		require.Less(t, time.Since(began), 15*time.Second)
		a.end()
		require.True(t, now(t, s, slot()))
	})
}

// TestP1_AnswerBehindASlowStep: a program hears that 40 of 100 are left, and has to wait for the lock of the rows for three seconds. The upstream has not counted
// what other programs started meanwhile, so that comes on top of the 60 that others have spent.
func TestP1_AnswerBehindASlowStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		slow := func() error { time.Sleep(3 * time.Second); return nil }
		s, others := must(rowstore.New(&broken{m, slow, nil}, rowstore.Options{})), must(rowstore.New(m, rowstore.Options{}))
		api := hourly(100)

		told := make(chan error, 1)
		go func() { told <- s.Reconcile(t.Context(), api, store.Quota{Left: 40, Reset: time.Hour / 2}) }()
		time.Sleep(time.Second)
		for range 30 {
			require.True(t, now(t, others, api))
		}
		require.NoError(t, <-told)
		require.Equal(t, 90, used(t, others, api))
	})
}

// TestP3_RefusalBehindASlowStep: a refusal of a request that was sent before a penalty has to wait for the lock of the rows until the penalty is over. It has not met
// the penalty again, so the budget is not closed for twice as long.
func TestP3_RefusalBehindASlowStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		slow := func() error { time.Sleep(3 * time.Second); return nil }
		s, others := must(rowstore.New(&broken{m, slow, nil}, rowstore.Options{})), must(rowstore.New(m, rowstore.Options{}))
		api, refusal := hourly(100), store.Refusal{Length: 2 * time.Second, Ago: 100 * time.Millisecond}

		told := make(chan error, 1)
		go func() {
			_, _, err := s.Refuse(t.Context(), api, refusal)
			told <- err
		}()
		time.Sleep(time.Second / 2)
		_, _, err := others.Refuse(t.Context(), api, refusal)
		require.NoError(t, err)

		require.NoError(t, <-told)
		st, err := others.Status(t.Context(), api)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, st.Paused)
	})
}

// TestP1_Copies: a program goes on as a copy of another one, which has made steps since. Its steps are not taken for those of the
// other one.
func TestP1_Copies(t *testing.T) {
	for _, steps := range []byte{50, 2} { // 2: the copy has made the step that the program makes next
		m := newMemory()
		s := must(rowstore.New(m, rowstore.Options{}))
		require.True(t, now(t, s, hourly(9)))
		m.copied(steps)
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(9)}})
		require.ErrorContains(t, err, "copy")
		require.Equal(t, 1, used(t, s, hourly(9)))
	}
}

// copied has the records of all nodes say that copies of them have made steps, up to a number.
func (m *memory) copied(steps byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.rows {
		if strings.Contains(key, "/node-") {
			r.value = slices.Concat(r.value[:1], []byte{2 * steps, 2})
			m.rows[key] = r
		}
	}
}

// TestP1_CopiesAndDoubt: it is not known whether a step was saved, and a copy of the program has made later steps since. Its record does not say that the step
// was saved.
func TestP1_CopiesAndDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := must(rowstore.New(&unsaved{memory: m}, rowstore.Options{}))
		require.True(t, now(t, s, hourly(9)))
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(9)}})
		require.Error(t, err)
		require.Equal(t, 1, used(t, s, hourly(9)))
	})
}

// An unsaved is a database that loses the second step with its reply, just when a copy of the program makes steps.
type unsaved struct {
	*memory
	steps int
}

func (u *unsaved) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	if u.steps++; u.steps != 2 {
		return u.memory.Transact(ctx, group, keys, do)
	}
	_ = u.memory.Transact(ctx, group, keys, func(tx rowstore.Tx) error { return errors.Join(do(tx), errLost) })
	u.copied(50)
	return errLost
}

// TestP1_OtherRows: rows of another version, and what are no rows, are errors. Nothing is booked.
func TestP1_OtherRows(t *testing.T) {
	m := newMemory()
	s := must(rowstore.New(m, rowstore.Options{}))
	require.NoError(t, s.Pause(t.Context(), hourly(9), time.Millisecond))
	for key, r := range m.rows {
		whole := r
		r.value = append([]byte{77}, r.value[1:]...)
		m.rows[key] = r
		before := m.puts
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(9)}})
		require.Error(t, err, key)
		require.Equal(t, before, m.puts, key)
		m.rows[key] = whole
	}
	require.Len(t, m.rows, 3)
}

// TestP12_Away: while the database cannot be reached, callers wait as long as they may, are told so, and go on when it is there again.
func TestP12_Away(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		a.away.Store(true)
		s := must(rowstore.New(&broken{newMemory(), a.before, a.after}, rowstore.Options{}))
		told := 0
		ctx := outage.WithObserver(t.Context(), func(err error) {
			told++
			require.ErrorIs(t, err, errLost)
		})
		var all sync.WaitGroup
		all.Go(func() {
			g, err := s.Book(ctx, &store.Booking{Charges: []store.Charge{hourly(2)}, MaxWait: time.Minute})
			require.NoError(t, err)
			require.True(t, g.OK)
		})
		all.Go(func() {
			began := time.Now()
			_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}, MaxWait: time.Second})
			require.Equal(t, time.Second, time.Since(began))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, errLost)
		})
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}})
		require.ErrorIs(t, err, errLost, "a caller that never waits")
		require.ErrorIs(t, s.Pause(t.Context(), hourly(2), time.Second), errLost)
		time.Sleep(5 * time.Second)
		a.end()
		all.Wait()
		require.Positive(t, told)
		require.Equal(t, 1, used(t, s, hourly(2)))
	})
}

// TestP12_AwayBeforeTheStart: a caller that has a start, and asks whether the start is still good, waits for a database that is
// away as callers do that ask for a start, and is told why.
func TestP12_AwayBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		s := must(rowstore.New(&broken{newMemory(), a.before, a.after}, rowstore.Options{}))
		b := &store.Booking{Charges: []store.Charge{hourly(2)}}
		g, err := s.Book(t.Context(), b)
		require.NoError(t, err)
		w := s.Watch(b, g, make(chan struct{}, 1))
		defer w.Stop()
		a.away.Store(true)
		began := time.Now()
		_, err = w.Confirm(t.Context(), 0)
		require.ErrorIs(t, err, errLost, "a caller that never waits")
		require.Zero(t, time.Since(began))
		told := 0
		_, err = w.Confirm(outage.WithObserver(t.Context(), func(error) { told++ }), time.Second)
		require.ErrorIs(t, err, errLost)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.Positive(t, told)
		time.AfterFunc(time.Minute, a.end)
		ok, err := w.Confirm(t.Context(), store.AnyWait)
		require.NoError(t, err)
		require.True(t, ok)
	})
}

// TestP1_DoubtAboutAStart: it is not known for longer than the lease whether a start was given back. It was, and it is not given
// back again in place of the start of somebody else.
func TestP1_DoubtAboutAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		s := must(rowstore.New(&broken{newMemory(), a.before, a.after}, rowstore.Options{}))
		b := &store.Booking{Charges: []store.Charge{hourly(1000)}}
		var last store.Grant
		for range 5 {
			g, err := s.Book(t.Context(), b)
			require.NoError(t, err)
			last = g
		}
		a.loses.Store(true)
		s.Cancel(b, last)
		time.Sleep(30 * time.Second)
		a.end()
		time.Sleep(30 * time.Second)
		require.Equal(t, 4, used(t, s, hourly(1000)))
	})
}

// TestP1_DoubtAboutASlot: it is not known for longer than the lease whether a slot was given back. It was, and it is not given back
// again in place of what another caller holds. The node forgets it all the same.
func TestP1_DoubtAboutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		m := newMemory()
		s := must(rowstore.New(&broken{m, a.before, a.after}, rowstore.Options{}))
		release := func() { s.Release(&store.Booking{Charges: []store.Charge{slot()}}, store.Grant{OK: true}) }
		require.True(t, now(t, s, slot()))
		a.loses.Store(true)
		release()
		time.Sleep(30 * time.Second)
		a.end()
		require.True(t, now(t, s, slot()))
		time.Sleep(30 * time.Second)
		require.False(t, now(t, must(rowstore.New(m, rowstore.Options{})), slot()))
		release()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		puts := m.puts
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, puts, m.puts, "nothing is renewed")
	})
}

// TestP12_LooksAgain: a look whose connection was lost is made again.
func TestP12_LooksAgain(t *testing.T) {
	b := &broken{Database: newMemory()}
	s := must(rowstore.New(b, rowstore.Options{}))
	require.True(t, now(t, s, hourly(2)))
	b.before = once()
	require.Equal(t, 1, used(t, s, hourly(2)))
}

// TestP12_ConfirmWaits: a caller whose start has come asks whether it is still good, and the database is away. The caller waits as
// long as it may, is told so, and uses its start.
func TestP12_ConfirmWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		s := must(rowstore.New(&broken{newMemory(), a.before, a.after}, rowstore.Options{}))
		b := &store.Booking{Charges: []store.Charge{hourly(2)}, MaxWait: store.AnyWait}
		g, err := s.Book(t.Context(), b)
		require.NoError(t, err)
		w := s.Watch(b, g, make(chan struct{}, 1))
		a.away.Store(true)
		_, err = w.Confirm(t.Context(), 0)
		require.ErrorIs(t, err, errLost, "it does not wait")
		_, err = w.Confirm(t.Context(), 900*time.Millisecond)
		require.ErrorIs(t, err, errLost)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		told := false
		ctx := outage.WithObserver(t.Context(), func(error) { told = true })
		time.AfterFunc(10*time.Second, a.end)
		ok, err := w.Confirm(ctx, store.AnyWait)
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, told)
		w.Stop()
	})
}

// A hung is a database that does not answer while it hangs, and returns when the context of a call ends.
type hung struct {
	*memory
	hangs atomic.Bool
}

func (h *hung) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	if h.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.memory.Transact(ctx, group, keys, do)
}

// TestP12_ConfirmWaitsForNoAnswer: a database that does not answer a look in time is away, as one that does not answer a step: a caller that may wait waits
// for it, and uses its start.
func TestP12_ConfirmWaitsForNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &hung{memory: newMemory()}
		s := must(rowstore.New(db, rowstore.Options{}))
		b := &store.Booking{Charges: []store.Charge{hourly(2)}, MaxWait: store.AnyWait}
		g, err := s.Book(t.Context(), b)
		require.NoError(t, err)
		w := s.Watch(b, g, make(chan struct{}, 1))
		defer w.Stop()
		db.hangs.Store(true)
		told := false
		ctx := outage.WithObserver(t.Context(), func(error) { told = true })
		time.AfterFunc(30*time.Second, func() { db.hangs.Store(false) })
		ok, err := w.Confirm(ctx, store.AnyWait)
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, told)
	})
}

// TestP1_HeldWhileAway: a node cannot reach the database for longer than its lease, while its requests go on. When it reaches the
// database they count again, and the end of one ends no other.
func TestP1_HeldWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		m := newMemory()
		s, others := must(rowstore.New(&broken{m, a.before, a.after}, rowstore.Options{})), must(rowstore.New(m, rowstore.Options{}))
		c := slot()
		c.Limit = store.Concurrency(3)
		release := func() { s.Release(&store.Booking{Charges: []store.Charge{c}}, store.Grant{OK: true}) }
		require.True(t, now(t, s, c))
		a.away.Store(true)
		time.Sleep(30 * time.Second)
		require.Zero(t, used(t, others, c), "premise: the lease is over")
		a.end()
		require.True(t, now(t, s, c))
		require.Equal(t, 2, used(t, others, c))
		release()
		require.Equal(t, 1, used(t, others, c))
		release()
		require.Zero(t, used(t, others, c))
		require.True(t, now(t, s, c))
		require.Equal(t, 1, used(t, others, c))
		time.Sleep(time.Minute)
		require.Equal(t, 1, used(t, others, c), "it is renewed")
	})
}
