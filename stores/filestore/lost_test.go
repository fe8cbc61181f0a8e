//go:build linux || darwin

package filestore_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

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
