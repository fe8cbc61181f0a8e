//go:build linux || darwin

package filestore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// TestP12_EarlierFiles: somebody puts back an earlier copy of the files, from when other callers waited. The lines go on when what the copy says of
// the processes is over.
func TestP12_EarlierFiles(t *testing.T) {
	for stores := 1; stores <= 2; stores++ {
		t.Run(fmt.Sprint(stores), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { earlierFiles(t, dir, stores) })
		})
	}
}

func earlierFiles(t *testing.T, dir string, stores int) {
	m := &filestore.Machine{Boot: "one"}
	var starts [2]atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range stores {
		s, err := m.Open(dir, 10*time.Second)
		require.NoError(t, err)
		for i, limit := range []store.Limit{store.PerSecond(2), store.Concurrency(2)} {
			l, err := throttle.NewLimiter(s, throttle.Policy{Name: fmt.Sprint(i), Limit: limit})
			require.NoError(t, err)
			for range 8 {
				callers.Go(func() {
					for ctx.Err() == nil {
						if p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); err == nil {
							starts[i].Add(1)
							time.Sleep(500 * time.Millisecond)
							p.Release()
						}
					}
				})
			}
		}
	}
	time.Sleep(3 * time.Second)
	path := filepath.Join(dir, "budgets-1")
	earlier, err := os.ReadFile(path)
	require.NoError(t, err)
	time.Sleep(3 * time.Second)

	// The copy comes whole: a step that meets half of it would take the rest for damage.
	copied := dir + ".copy"
	require.NoError(t, os.WriteFile(copied, earlier, 0o600))
	require.NoError(t, os.Rename(copied, path))
	time.Sleep(15 * time.Second) // more than a lease
	before := [2]int64{starts[0].Load(), starts[1].Load()}
	time.Sleep(10 * time.Second)
	for i, least := range []int64{15, 30} {
		require.GreaterOrEqual(t, starts[i].Load()-before[i], least, "the line stands still")
	}
	end()
	callers.Wait()
}

// anotherGroup returns a group to which this process may give its files, if possible not the one that they have anyway.
func anotherGroup(t *testing.T) int {
	t.Helper()
	if os.Getuid() == 0 {
		return 4242
	}
	all, err := os.Getgroups()
	require.NoError(t, err)
	for _, g := range all {
		if g != os.Getgid() {
			return g
		}
	}
	return os.Getgid()
}

// TestGroupOfTheDirectory: all members of a directory's group may use the budgets, though it is not the first group of those that make
// the files. What the superuser makes belongs to the owner of the directory.
func TestGroupOfTheDirectory(t *testing.T) {
	dir, owner, group := t.TempDir(), os.Getuid(), anotherGroup(t)
	if owner == 0 {
		owner = 4241
	}
	require.NoError(t, os.Chown(dir, owner, group))
	require.NoError(t, os.Chmod(dir, 0o770))
	s, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	l, err := throttle.NewLimiter(s, throttle.Policy{Name: "slots", Limit: store.Concurrency(1)})
	require.NoError(t, err)
	held, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	defer held.Release()
	path, _ := s.File()
	for _, pattern := range []string{path, filepath.Join(dir, "node-*[^p]")} {
		var found []string
		require.Eventually(t, func() bool { found, _ = filepath.Glob(pattern); return len(found) == 1 }, time.Minute, time.Millisecond, pattern)
		i, err := os.Stat(found[0])
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o660), i.Mode().Perm(), found[0])
		require.EqualValues(t, group, i.Sys().(*syscall.Stat_t).Gid, found[0])
		require.EqualValues(t, owner, i.Sys().(*syscall.Stat_t).Uid, found[0])
	}
}

// TestP10_PipesOfKilledProcesses: the pipe of a process that was killed goes away, even if it was killed while it made the pipe.
func TestP10_PipesOfKilledProcesses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"node-a1", "node-a2.tmp", "node-a3", "node-a4.tmp"} {
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	longAgo := time.Now().Add(-2 * time.Minute)
	for _, name := range []string{"node-a1", "node-a2.tmp"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), longAgo, longAgo))
	}
	_, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(dir, "node-*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "node-a3"), filepath.Join(dir, "node-a4.tmp")}, left, "others are begun now")
}

// TestWrongOptions: what cannot be meant is refused, all of it at once, and nothing is made.
func TestWrongOptions(t *testing.T) {
	for _, c := range []struct {
		dir   string
		lease time.Duration
		wrong []string
	}{
		{t.TempDir(), 0, nil},
		{t.TempDir(), time.Second, nil},
		{t.TempDir(), 10, []string{"Options.Lease: 10ns is too short"}},
		{t.TempDir(), -time.Minute, []string{"Options.Lease: -1m0s is too short"}},
		{"", 0, []string{"dir: is empty"}},
		{"", time.Second - 1, []string{"dir: is empty", "Options.Lease: 999.999999ms is too short"}},
	} {
		s, err := filestore.New(c.dir, filestore.Options{Lease: c.lease})
		require.Equal(t, len(c.wrong) == 0, err == nil, "%v", err)
		require.Equal(t, len(c.wrong) == 0, s != nil)
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, "filestore: "+wrong)
			require.ErrorAs(t, err, new(*store.OptionError))
		}
	}
}

const markRole = "filestore-marks"

// A markOrder is what a process is to do whose starts are noted.
type markOrder struct {
	Dir     string
	Workers int
	N       int // a second. With 0 there is one slot, which the process keeps.
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
	limit := store.Concurrency(1)
	if o.N > 0 {
		limit = store.SlidingWindow(o.N, time.Second)
	}
	l, err := throttle.NewLimiter(marks, throttle.Policy{Name: "one", Limit: limit})
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

// TestP7_SlotsOfAKilledProcess: a process that has worked for long is killed, and its successor begins at once. The slots of the first are free within a second,
// although its pipe is old.
func TestP7_SlotsOfAKilledProcess(t *testing.T) {
	m := newMarks(t, 0)
	m.order.Workers = 1
	first := m.start()
	m.awaitMore(1)
	var pipes []string
	require.Eventually(t, func() bool {
		pipes, _ = filepath.Glob(filepath.Join(m.order.Dir, "node-*[^p]"))
		return len(pipes) == 1
	}, time.Minute, time.Millisecond)
	longAgo := time.Now().Add(-2 * time.Minute)
	require.NoError(t, os.Chtimes(pipes[0], longAgo, longAgo))
	first.Kill()

	killed := time.Now()
	m.start()
	m.awaitMore(1)
	require.Less(t, time.Since(killed), 5*time.Second, "a lease is 10 s")
}

// TestP1_KilledProcesses: processes are killed at any instruction, and others take their place.
func TestP1_KilledProcesses(t *testing.T) {
	rounds := soak.Seeds(60, 12)
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
	rounds := soak.Seeds(12, 3)
	m := newMarks(t, 2000)
	processes := []*crew.Member{m.start(), m.start(), m.start()}
	for range rounds {
		p := processes[rand.IntN(len(processes))]
		m.awaitMore(50 + rand.IntN(50))
		require.NoError(t, p.Pause())
		stopped := time.Now()
		m.awaitMore(1000)
		require.Eventually(t, func() bool { return time.Since(stopped) > filestore.Standstill+100*time.Millisecond }, time.Minute, time.Millisecond)
		require.NoError(t, p.Continue())
	}
	m.awaitMore(500)
	m.judge(processes...)
}
