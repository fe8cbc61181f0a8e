//go:build linux || darwin

package filestore_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

const markRole = "filestore-marks"

// A markOrder is what a process is to do whose starts are noted.
type markOrder struct {
	Dir     string
	Workers int
	N       int // a second
}

// markMember acquires starts until it is alone or killed, and tells the mark of each: when it is
// by the store's clock. So what is counted does not depend on how late a stopped process goes on.
func markMember(program *crew.Link) error {
	var o markOrder
	if err := program.Hear(&o); err != nil {
		return err
	}
	s, err := filestore.New(o.Dir, filestore.Options{})
	if err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	ctx := program.Alone()
	failed := make(chan error, o.Workers)
	for range o.Workers {
		go func() { failed <- acquireAll(ctx, s, o, program) }()
	}
	return <-failed
}

func acquireAll(ctx context.Context, s store.Store, o markOrder, program *crew.Link) error {
	marks := &markStore{Store: s}
	l, err := throttle.NewLimiter(marks, throttle.Policy{Name: "one", Limit: store.SlidingWindow(o.N, time.Second)})
	if err != nil {
		return err
	}
	for {
		if _, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); err != nil {
			return err
		}
		if err := program.Tell(marks.last); err != nil {
			return err
		}
	}
}

// A markStore notes the mark of the last start that its only caller got.
type markStore struct {
	store.Store
	last int64
}

func (m *markStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := m.Store.Book(ctx, b)
	if g.OK {
		m.last = g.Handle.Start
	}
	return g, err
}

// marks are those of all starts of a fleet.
type marks struct {
	t     *testing.T
	order markOrder

	mu   sync.Mutex
	all  []int64
	done sync.WaitGroup
}

func newMarks(t *testing.T, n int) *marks {
	return &marks{t: t, order: markOrder{Dir: t.TempDir(), Workers: 8, N: n}}
}

// start starts a process, and notes its marks until it ends.
func (m *marks) start() *crew.Member {
	members, err := crew.Muster(m.t.Context(), markRole, []markOrder{m.order})
	require.NoError(m.t, err)
	m.t.Cleanup(members.Kill)
	process := members[0]
	m.done.Go(func() {
		for mark := int64(0); process.Hear(&mark) == nil; {
			m.mu.Lock()
			m.all = append(m.all, mark)
			m.mu.Unlock()
		}
	})
	return process
}

func (m *marks) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// awaitMore waits until there are so many more starts.
func (m *marks) awaitMore(more int) {
	m.t.Helper()
	want := m.count() + more
	require.Eventually(m.t, func() bool { return m.count() >= want }, time.Minute, time.Millisecond, "the fleet stands still")
}

// judge ends all processes, and counts.
func (m *marks) judge(processes ...*crew.Member) {
	m.t.Helper()
	for _, p := range processes {
		p.Kill()
	}
	m.done.Wait()
	slices.Sort(m.all)
	require.Greater(m.t, len(m.all), m.order.N)
	for i := m.order.N; i < len(m.all); i++ {
		require.Greater(m.t, m.all[i]-m.all[i-m.order.N], time.Second.Microseconds(), "%d starts in a window", m.order.N+1)
	}
}

// TestP1_KilledProcesses: processes are killed at any instruction, and others take their place.
func TestP1_KilledProcesses(t *testing.T) {
	rounds := soak.Most(200, 12)
	m := newMarks(t, 500)
	processes := []*crew.Member{m.start(), m.start(), m.start(), m.start()}
	for range rounds {
		i := rand.IntN(len(processes))
		m.awaitMore(40 + rand.IntN(40)) // they work
		processes[i].Kill()
		processes[i] = m.start()
	}
	m.judge(processes...)
}

// TestP1_StoppedProcesses: processes stand still for longer than others wait for them, and go on.
func TestP1_StoppedProcesses(t *testing.T) {
	rounds := soak.Most(50, 3)
	m := newMarks(t, 2000)
	processes := []*crew.Member{m.start(), m.start(), m.start()}
	for range rounds {
		p := processes[rand.IntN(len(processes))]
		m.awaitMore(50 + rand.IntN(50))
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		stopped := time.Now()
		m.awaitMore(1000)
		require.Eventually(t, func() bool { return time.Since(stopped) > filestore.Standstill+100*time.Millisecond }, time.Minute, time.Millisecond)
		require.NoError(t, p.Signal(syscall.SIGCONT))
	}
	m.awaitMore(500)
	m.judge(processes...)
}
