//go:build linux || darwin

package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// A victim is a file outside of a shared directory, which members of the directory may not change.
type victim struct {
	path   string
	before os.FileInfo
	text   []byte
}

// newVictim makes a file with a text, in a directory of its own.
func newVictim(t *testing.T, text []byte) *victim {
	t.Helper()
	path := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	i, err := os.Stat(path)
	require.NoError(t, err)
	return &victim{path, i, text}
}

// checkUnharmed fails the test if the file was written to, cut off, given away or opened for others.
func (v *victim) checkUnharmed(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(v.path)
	require.NoError(t, err)
	require.Equal(t, v.text, text, "the content of a file outside of the directory")
	i, err := os.Stat(v.path)
	require.NoError(t, err)
	require.Equal(t, v.before.Mode(), i.Mode(), "the mode of a file outside of the directory")
	is, was := i.Sys().(*syscall.Stat_t), v.before.Sys().(*syscall.Stat_t)
	require.Equal(t, [2]uint32{was.Uid, was.Gid}, [2]uint32{is.Uid, is.Gid}, "the owner of a file outside of the directory")
}

// members returns a directory of the kind that docs/run/filestore.md tells to share: that of another user, if this process may
// give it away.
func members(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	owner := os.Getuid()
	if owner == 0 {
		owner = 4241
	}
	require.NoError(t, os.Chown(dir, owner, anotherGroup(t)))
	require.NoError(t, os.Chmod(dir, 0o770))

	// A store that has nothing to do any more takes its pipe away soon after the test, and TempDir tries only once.
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, time.Minute, time.Millisecond)
	})
	return dir
}

// put is how a member puts something in the place of a name that a store opens.
var put = map[string]func(target, name string) error{"link": os.Symlink, "hard link": os.Link}

// TestHostilePipes: a member of the directory puts a link to a file in the place of a pipe. A store that tells all programs of a penalty does not write
// into the file.
func TestHostilePipes(t *testing.T) {
	for kind, put := range put {
		t.Run(kind, func(t *testing.T) {
			dir, v := members(t), newVictim(t, []byte("root:x\n"))
			for _, name := range []string{"node-1", "node-2.tmp"} {
				require.NoError(t, put(v.path, filepath.Join(dir, name)))
			}
			s, err := filestore.New(dir, filestore.Options{})
			require.NoError(t, err)
			require.NoError(t, s.Pause(t.Context(), hourly(1), time.Second))
			v.checkUnharmed(t)
		})
	}
}

// TestHostileForeignPipe: a pipe that has a name elsewhere is not written to.
func TestHostileForeignPipe(t *testing.T) {
	dir, elsewhere := members(t), filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(elsewhere, 0o600))
	pipe, err := os.OpenFile(elsewhere, os.O_RDWR|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer pipe.Close()
	require.NoError(t, os.Link(elsewhere, filepath.Join(dir, "node-1")))
	s, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Pause(t.Context(), hourly(1), time.Second))

	raw, err := pipe.SyscallConn()
	require.NoError(t, err)
	var n int
	require.NoError(t, raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), make([]byte, 1)) }))
	require.ErrorIs(t, err, syscall.EAGAIN)
	require.LessOrEqual(t, n, 0)
}

// TestHostileSwap: whenever a store makes a file, a member of the directory puts a link to a file of somebody else in its place.
func TestHostileSwap(t *testing.T) {
	for kind, put := range put {
		t.Run(kind, func(t *testing.T) {
			dir, v := members(t), newVictim(t, []byte("root:x\n"))
			swapped := 0
			m := &filestore.Machine{Boot: "one", Grow: 1}
			m.Made = func(name string) {
				swapped++
				require.NoError(t, os.Remove(filepath.Join(dir, name)))
				require.NoError(t, put(v.path, filepath.Join(dir, name)))
			}
			_, err := m.Open(dir, time.Hour)
			require.ErrorContains(t, err, dir)
			require.Positive(t, swapped)
			v.checkUnharmed(t)
		})
	}
}

// TestHostileSwapOfPipe: the same for the pipe of a node, which goes on without one.
func TestHostileSwapOfPipe(t *testing.T) {
	for kind, put := range put {
		t.Run(kind, func(t *testing.T) {
			dir, v := members(t), newVictim(t, []byte("root:x\n"))
			swapped := make(chan struct{}, 1)
			s, err := filestore.OpenWith(dir, func(name string) {
				if !strings.HasPrefix(name, "node-") {
					return
				}
				_ = os.Remove(filepath.Join(dir, name))
				_ = put(v.path, filepath.Join(dir, name))
				select {
				case swapped <- struct{}{}:
				default:
				}
			})
			require.NoError(t, err)
			l, err := throttle.NewLimiter(s, throttle.Policy{Name: "slots", Limit: store.Concurrency(1)})
			require.NoError(t, err)
			held, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
			require.NoError(t, err)
			<-swapped
			waits := make(chan error, 1)
			go func() {
				next, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
				if err == nil {
					next.Release()
				}
				waits <- err
			}()
			held.Release()
			require.NoError(t, <-waits)
			v.checkUnharmed(t)
		})
	}
}

// TestHostileGenerations: the file of a former generation, or of the last one, is a link to a file of somebody else, which may be one of the budgets of
// another directory. It is not ended, not cut off, and not used.
func TestHostileGenerations(t *testing.T) {
	m := &filestore.Machine{Boot: "one"}
	other := open(t, m, t.TempDir())
	require.True(t, now(t, other, hourly(2)))
	path, _ := other.File()
	budgets, err := os.ReadFile(path)
	require.NoError(t, err)
	long := append([]byte("root:x\n"), make([]byte, 2*filestore.HeaderSize)...)

	for kind, put := range put {
		for name, text := range map[string][]byte{"budgets": budgets, "other": long} {
			t.Run(kind+" to "+name, func(t *testing.T) {
				dir, v := members(t), newVictim(t, text)
				require.NoError(t, put(v.path, filepath.Join(dir, "budgets-1")))
				_, err := m.Open(dir, time.Hour)
				require.ErrorContains(t, err, "budgets-1")
				v.checkUnharmed(t)

				// Now as a generation that is over.
				use := t.TempDir()
				young := &filestore.Machine{Boot: "one", Grow: 1}
				s := open(t, young, use)
				first := filepath.Join(use, "budgets-1")
				bookUntil(t, s, filepath.Join(use, "budgets-3"))
				require.NoError(t, os.Remove(first))
				require.NoError(t, put(v.path, first))
				require.NoError(t, os.Chtimes(first, ago, ago))
				bookUntil(t, s, filepath.Join(use, "budgets-4"))
				v.checkUnharmed(t)
			})
		}
	}
}

// ago is before anything that a store keeps for a while.
var ago = time.Now().Add(-time.Hour)

// bookUntil books until the store uses a file.
func bookUntil(t *testing.T, s *filestore.Store, file string) {
	t.Helper()
	for path := ""; path != file; path, _ = s.File() {
		require.True(t, now(t, s, hourly(10_000)))
	}
}

// TestHostileOtherFiles: files whose names only look like those of a store are left as they are.
func TestHostileOtherFiles(t *testing.T) {
	dir := t.TempDir()
	var own []string
	for _, name := range []string{"tmp-1", "budgets-0", "node-1", "node-2.tmp"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, make([]byte, 3*filestore.HeaderSize), 0o600))
		require.NoError(t, os.Chtimes(path, ago, ago))
		own = append(own, path)
	}
	s, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	require.True(t, now(t, s, hourly(1)))
	for _, path := range own {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 3*filestore.HeaderSize), b, path)
	}
}

// TestHostileSizes: a member of the directory makes the file as long as can be, which costs no room on the disk. Programs get an error, and live on.
func TestHostileSizes(t *testing.T) {
	for _, size := range []int64{65 << 20, 3 << 30, 1 << 40} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := open(t, &filestore.Machine{Boot: "one"}, members(t))
			require.True(t, now(t, s, hourly(2)))
			path, _ := s.File()
			require.NoError(t, os.Truncate(path, size))
			_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}})
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "damaged")
		})
	}
}

// TestHostileNumbers: a generation with the highest number there is, a link that leads nowhere, and one that leads to a file of the directory are errors.
// Programs do not look for the next one for ever.
func TestHostileNumbers(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, members(t)
	s := open(t, m, dir)
	require.True(t, now(t, s, hourly(2)))
	first, _ := s.File()
	last := filepath.Join(dir, fmt.Sprintf("budgets-%d", int64(1<<63-1)))
	for _, target := range []string{"nowhere", filepath.Base(first)} {
		require.NoError(t, os.Symlink(target, last))
		_, err := m.Open(dir, time.Hour)
		require.ErrorContains(t, err, last)
		require.NoError(t, os.Remove(last))
	}

	require.NoError(t, os.WriteFile(last, filestore.Header(1<<63-1, "one"), 0o600))
	long := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC) // before the machine of the test was started
	require.NoError(t, os.Chtimes(last, long, long))
	_, err := m.Open(dir, time.Hour)
	require.ErrorContains(t, err, last)
}

// TestP12_StalledFileSystem: while a step cannot write, callers that ask for something else have their answer when their contexts end, and no goroutine
// stays for each of them.
func TestP12_StalledFileSystem(t *testing.T) {
	stands, goOn := make(chan struct{}), make(chan struct{})
	calls := 0
	m := &filestore.Machine{Boot: "one"}
	s := open(t, m, t.TempDir())
	require.True(t, now(t, s, hourly(3)))
	m.Asked = func() { // in a step, with all that a step holds
		calls++
		if calls == 1 {
			close(stands)
			<-goOn
		}
	}
	booked := make(chan bool, 1)
	go func() {
		g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(3)}})
		booked <- err == nil && g.OK
	}()
	<-stands

	short := func() context.Context {
		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		t.Cleanup(stop)
		return ctx
	}
	for range 50 {
		_, err := s.Status(short(), hourly(3))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "does not answer")
	}
	booking := &store.Booking{Charges: []store.Charge{hourly(3)}}
	watch := s.Watch(booking, store.Grant{OK: true}, make(chan struct{}, 1))
	_, err := watch.Confirm(short(), 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = watch.Confirm(t.Context(), time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	watch.Stop()
	require.ErrorIs(t, s.Pause(short(), hourly(3), time.Second), context.DeadlineExceeded)

	close(goOn)
	require.True(t, <-booked)
	require.Equal(t, 2, used(t, s, hourly(3)))
}

// TestP12_StalledDirectory: while the pipe of a node cannot be made, its callers go on.
func TestP12_StalledDirectory(t *testing.T) {
	goOn := make(chan struct{})
	stands := make(chan struct{}, 1)
	dir := t.TempDir()
	s, err := filestore.OpenWith(dir, func(name string) {
		if strings.HasPrefix(name, "node-") {
			stands <- struct{}{}
			<-goOn
		}
	})
	require.NoError(t, err)

	// The file that was held up is written while the directory is removed. In a directory that is gone nothing can be written.
	defer func() {
		close(goOn)
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, time.Minute, time.Millisecond)
	}()
	l, err := throttle.NewLimiter(s, throttle.Policy{Name: "slots", Limit: store.Concurrency(2)})
	require.NoError(t, err)
	first, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	<-stands
	watch := s.Watch(&store.Booking{Charges: []store.Charge{hourly(3)}}, store.Grant{OK: true}, make(chan struct{}, 1))
	watch.Stop()
	second, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	first.Release()
	second.Release()
}
