//go:build linux || darwin

package filestore_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/processes"
	"github.com/fleetthrottle/throttle/internal/lab/sharetest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestContract: one process.
func TestContract(t *testing.T) {
	dirs := t.TempDir()
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, &filestore.Machine{Boot: "one"}, newDir(t, dirs))
	})
}

// TestP5_FairBound: what two shares that always have callers start, over their weights, differs by at most one caller of each.
func TestP5_FairBound(t *testing.T) {
	dirs := t.TempDir()
	rows := func(t *testing.T) store.Store { return open(t, &filestore.Machine{Boot: "one"}, newDir(t, dirs)) }
	for seed := range uint64(soak.Seeds(20, 3)) {
		sharetest.FairBound(t, rows, seed, 20, 0)
	}
}

// TestContractOfTwoStores: two of them, which take turns to be called.
func TestContractOfTwoStores(t *testing.T) {
	soak.WithoutRace(t)
	dirs := t.TempDir()
	storetest.RunWithin(t, twostores.Slack, func(t *testing.T) store.Store {
		m, dir := &filestore.Machine{Boot: "one", Grow: everyFewSteps}, newDir(t, dirs)
		return twostores.New(open(t, m, dir), open(t, m, dir))
	})
}

// everyFewSteps lets a file end after a few steps: when its records are three times what it began with. It does not end after each step: the
// files of a bubble are never old enough to be removed, and whoever ends one looks at all of them.
const everyFewSteps = 1

// newDir makes a directory that outlives the test: stores are not closed, and end with a bubble.
func newDir(t *testing.T, in string) string {
	dir, err := os.MkdirTemp(in, "")
	require.NoError(t, err)
	return dir
}

func open(t *testing.T, m *filestore.Machine, dir string) *filestore.Store {
	s, err := m.Open(dir, store.MaxAhead)
	require.NoError(t, err)
	return s
}

// TestDifferential has random callers ask memstore and stores of files the same. All answers
// are the same, to the microsecond.
func TestDifferential(t *testing.T) {
	dirs := t.TempDir()
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			m, dir := &filestore.Machine{Boot: "one", Grow: everyFewSteps}, newDir(t, dirs)
			twostores.Differ(t, seed, 300, memstore.New(), twostores.New(open(t, m, dir), open(t, m, dir)))
		})
	}
}

// starts counts how many starts stores get that book one after the other.
func starts(t *testing.T, most int, stores ...*filestore.Store) (n int) {
	t.Helper()
	for range most {
		for _, s := range stores {
			if now(t, s, hourly(most)) {
				n++
			}
		}
	}
	return n
}

// TestP1_FilesBegunAnew: somebody removes the files, and a program that is started then writes a new one before the other program has
// noticed. Both programs share the limit.
func TestP1_FilesBegunAnew(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	before := open(t, m, dir)
	path, _ := before.File()
	require.NoError(t, os.Remove(path))
	after := open(t, m, dir)
	require.Equal(t, 10, starts(t, 10, after, before))
}

// TestP1_ReplacedDirectory: another directory takes the place of the one that a program uses. The program shares the limit
// with those that are started afterwards.
func TestP1_ReplacedDirectory(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, filepath.Join(t.TempDir(), "budgets")
	require.NoError(t, os.Mkdir(dir, 0o700))
	before := open(t, m, dir)
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	after := open(t, m, dir)
	require.Equal(t, 10, starts(t, 10, before, after))
}

// TestP1_TwoBeginAnew: two programs write new files at the same moment, one of which knows more. Both go on in one of the files.
func TestP1_TwoBeginAnew(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one", Grow: 1}, t.TempDir()
	old := open(t, m, dir)
	first, _ := old.File()
	for path := first; path == first; path, _ = old.File() {
		require.True(t, now(t, old, hourly(100)))
	}
	path, _ := old.File()
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	all, err := filepath.Glob(filepath.Join(dir, "budgets-*"))
	require.NoError(t, err)
	for _, p := range all {
		require.NoError(t, os.Remove(p))
	}
	m.Grow = 0
	young := open(t, m, dir)
	require.NoError(t, os.WriteFile(path, file, 0o600)) // of the other one
	spent := used(t, open(t, m, dir), hourly(100))
	require.Equal(t, 100-spent, starts(t, 100, young, old))
}

// TestP12_CallersWaitForTheDirectory: callers wait while the directory is away, and get their starts when it is there again.
func TestP12_CallersWaitForTheDirectory(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, filepath.Join(t.TempDir(), "budgets")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := open(t, m, dir)
	require.True(t, now(t, s, hourly(2)))
	require.NoError(t, os.Rename(dir, dir+".away"))
	told := make(chan error, 1)
	ctx := outage.WithObserver(t.Context(), func(err error) {
		select {
		case told <- err:
		default:
		}
	})
	got := make(chan bool, 1)
	go func() {
		within, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		g, err := s.Book(within, &store.Booking{Charges: []store.Charge{hourly(2)}, MaxWait: store.AnyWait})
		got <- err == nil && g.OK
	}()
	select {
	case err := <-told:
		require.ErrorIs(t, err, os.ErrNotExist)
	case ok := <-got:
		t.Fatalf("the caller did not wait: %v", ok)
	}
	require.NoError(t, os.Rename(dir+".away", dir))
	require.True(t, <-got)
	require.Equal(t, 2, used(t, s, hourly(2)))
}

// TestP11_ReplacedDirectory: a program that holds or waits for something hears of what others do where another directory has taken the place of the
// first one.
func TestP11_ReplacedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "budgets")
	waits, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	l, err := throttle.NewLimiter(waits, throttle.Policy{Name: "one", Limit: store.Concurrency(1)})
	require.NoError(t, err)
	held, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	pipes := func() int {
		all, err := filepath.Glob(filepath.Join(dir, "node-*"))
		require.NoError(t, err)
		return len(all)
	}
	require.Eventually(t, func() bool { return pipes() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.True(t, now(t, waits, hourly(1)))
	require.Eventually(t, func() bool { return pipes() == 1 }, time.Minute, time.Millisecond)
	held.Release()
	require.Eventually(t, func() bool { return pipes() == 0 }, time.Minute, time.Millisecond)
}

// shared is the store of several processes.
var shared = processes.Store{
	Role: "filestore", Lease: lease,
	Open: func(dir string, lease time.Duration) (s store.Store, close func(), err error) {
		s, err = filestore.OpenHere(dir, lease)
		return s, nil, err
	},
}

// lease is one whose end tests see soon, and within which a process of a busy machine comes to renew it.
const lease = 4 * time.Second

func TestMain(m *testing.M) {
	shared.Main()
	crew.Main(markRole, markMember)
	os.Exit(m.Run())
}

// TestProcesses is what processes of one machine are promised.
func TestProcesses(t *testing.T) { shared.Run(t, func(t *testing.T) string { return t.TempDir() }) }
