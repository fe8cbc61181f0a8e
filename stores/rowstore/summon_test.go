package rowstore_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A stoppable is a database for one node, which stands still, or is dead, from some moment on: what it does then has no answer, and it hears nothing.
type stoppable struct {
	notifier
	mu      sync.Mutex
	stopped chan struct{} // closed when the node goes on; nil while it goes
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
