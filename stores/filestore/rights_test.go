//go:build linux || darwin

package filestore_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

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
