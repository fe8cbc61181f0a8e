//go:build linux || darwin

package filestore_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// hourly is a budget of which what is spent stays spent during a test.
func hourly(n int) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "hourly", Key: [16]byte{1}}, Limit: store.PerHour(n), Cost: 1}
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

// TestP1_TornRecords: a process that is killed while it writes a record has booked nothing,
// wherever the record ends. The start before it counts.
func TestP1_TornRecords(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	s := open(t, m, dir)
	require.True(t, now(t, s, hourly(3)))
	path, begin := s.File()
	require.True(t, now(t, s, hourly(3)))
	_, end := s.File()
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for size := begin; size < end; size++ {
		for _, rest := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "\x05\x00\x00\x00garbage"} {
			torn := append(append([]byte(nil), whole[:size]...), rest...)
			if bytes.HasPrefix(torn, whole) {
				continue // the rest happens to be what is missing
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), torn, 0o600))
			s := open(t, m, dir)
			require.Equal(t, 1, used(t, s, hourly(3)))
			require.True(t, now(t, s, hourly(3)))
			require.Equal(t, 2, used(t, open(t, m, dir), hourly(3)), "what is left of a record is in the way of others")
		}
	}
}

// TestP1_DamagedFiles: of a file in which a byte was changed no start is given that would
// be too many. Who changes the last record may undo it: that is what a killed process leaves.
func TestP1_DamagedFiles(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	s := open(t, m, dir)
	require.True(t, now(t, s, hourly(2)))
	require.True(t, now(t, s, hourly(2)))
	path, last := s.File()
	require.NoError(t, s.Pause(t.Context(), hourly(2), time.Microsecond))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	damaged := 0
	for at := range last {
		if at >= filestore.HeaderUsed && at < filestore.HeaderSize {
			continue // nothing is there
		}
		dir, b := t.TempDir(), append([]byte(nil), whole...)
		b[at] ^= 0x10
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600))
		s, err := m.Open(dir, time.Hour)
		if err == nil {
			_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}})
		}
		require.Error(t, err, "byte %d", at)
		require.Contains(t, err.Error(), dir, "the error names the file")
		damaged++
	}
	require.Greater(t, damaged, 100)
}

// TestShortFiles: a file of which the end was cut off while programs run is not written to.
func TestShortFiles(t *testing.T) {
	s := open(t, &filestore.Machine{Boot: "one"}, t.TempDir())
	require.True(t, now(t, s, hourly(2)))
	path, end := s.File()
	require.NoError(t, os.Truncate(path, end-1))
	_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}})
	require.ErrorContains(t, err, "cut short")
}

// TestP1_OtherVersions: budgets in a form that this version does not know are not used.
func TestP1_OtherVersions(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	s := open(t, m, dir)
	path, _ := s.File()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	binary.LittleEndian.PutUint32(b[16:], 7)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "budgets-2"), b, 0o600))

	_, err = m.Open(dir, time.Hour)
	var other *filestore.FormatError
	require.ErrorAs(t, err, &other)
	require.Equal(t, 7, other.Found)
	require.ErrorContains(t, err, "budgets-2")
}

// TestP1_RowsThatCannotBeRead: a budget whose row cannot be read stays unusable, however often somebody looks at it: a look must not leave an empty row
// behind, by which the next start would be booked.
func TestP1_RowsThatCannotBeRead(t *testing.T) {
	m := &filestore.Machine{Boot: "one"}
	s, c := open(t, m, t.TempDir()), hourly(1)
	require.True(t, now(t, s, c))
	s.Damage(c.Budget)
	for range 3 {
		_, err := s.Status(t.Context(), c)
		require.ErrorIs(t, err, ledger.ErrCorrupt)
		_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{c}})
		require.ErrorIs(t, err, ledger.ErrCorrupt)
	}
}

// TestP12_AnUnreadableRowDisturbsNoOther: callers in the line of a budget do not book again because somebody asks for a budget that cannot be read.
func TestP12_AnUnreadableRowDisturbsNoOther(t *testing.T) {
	s, broken := open(t, &filestore.Machine{Boot: "one"}, t.TempDir()), hourly(1)
	other := hourly(1)
	other.Budget.Policy, other.Budget.Key = "other", [16]byte{9}
	require.True(t, now(t, s, broken))
	require.True(t, now(t, s, other))
	k := &store.Booking{Charges: []store.Charge{other}, MaxWait: store.AnyWait, Horizon: 350 * time.Millisecond}
	g, err := s.Book(t.Context(), k)
	require.NoError(t, err)
	require.NotNil(t, g.Ready)
	defer s.Cancel(k, g)

	s.Damage(broken.Budget)
	for range 3 {
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{broken}})
		require.ErrorIs(t, err, ledger.ErrCorrupt)
	}
	select {
	case <-g.Ready:
		t.Fatal("the caller is told to book again")
	default:
	}
}

// TestP1_NothingCanBeWritten: nothing is booked, and what is given back later is given back, while the
// file cannot be written.
func TestP1_NothingCanBeWritten(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	s, err := m.Open(dir, 2*time.Second)
	require.NoError(t, err)
	slots := store.Charge{Budget: store.Budget{Policy: "slots", Key: [16]byte{2}}, Limit: store.Concurrency(1), Cost: 1}
	held := &store.Booking{Charges: []store.Charge{slots}}
	g, err := s.Book(t.Context(), held)
	require.NoError(t, err)
	require.True(t, g.OK)

	path, _ := s.File()
	readOnly, err := os.Open(path)
	require.NoError(t, err)
	defer readOnly.Close()
	back := s.Swap(readOnly)
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
	require.ErrorContains(t, err, path)
	s.Release(held, g)
	require.Equal(t, 1, used(t, s, slots))
	back()

	require.True(t, now(t, s, hourly(1)), "the failed booking spent something")
	require.Eventually(t, func() bool { return used(t, s, slots) == 0 }, time.Minute, time.Millisecond,
		"the slot is renewed and never given back")
}

// TestDirectories: what cannot work is said by Open.
func TestDirectories(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := filestore.New(filepath.Join(file, "budgets"), filestore.Options{})
	require.ErrorContains(t, err, file)

	dir := filepath.Join(t.TempDir(), "a", "new", "one")
	s, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	require.True(t, now(t, s, hourly(1)))
	again, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	require.False(t, now(t, again, hourly(1)))
	i, err := os.Stat(filepath.Join(dir, "budgets-1"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), i.Mode().Perm())
}

// TestSharedDirectories: those who may write to the directory may use the budgets.
func TestSharedDirectories(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o770))
	s, err := filestore.New(dir, filestore.Options{})
	require.NoError(t, err)
	path, _ := s.File()
	i, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), i.Mode().Perm())
}

// TestP1_Boots: what was spent before the machine was started anew counts.
func TestP1_Boots(t *testing.T) {
	dir := t.TempDir()
	before := open(t, &filestore.Machine{Boot: "one"}, dir)
	require.True(t, now(t, before, hourly(2)))
	after := open(t, &filestore.Machine{Boot: "two"}, dir)
	require.True(t, now(t, after, hourly(2)))
	require.False(t, now(t, after, hourly(2)))

	_, err := before.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}})
	require.ErrorIs(t, err, filestore.ErrOtherMachine, "no process lives in two boots")
}

// TestPowerFailure: a file that had not got to the disk when the machine lost its power is empty, or ends early.
// Programs go on with what is there.
func TestPowerFailure(t *testing.T) {
	long := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC) // before the machines of tests were started
	for _, left := range []int64{0, 100, 5000} {
		dir := t.TempDir()
		s := open(t, &filestore.Machine{Boot: "one"}, dir)
		for range 50 {
			require.True(t, now(t, s, hourly(100)))
		}
		path, _ := s.File()
		require.NoError(t, os.Truncate(path, left))
		require.NoError(t, os.Chtimes(path, long, long))
		after := open(t, &filestore.Machine{Boot: "two"}, dir)
		require.True(t, now(t, after, hourly(100)))
		if left > filestore.HeaderSize {
			require.Greater(t, used(t, after, hourly(100)), 1)
		}
	}
}

// TestP9_WallClock: a wall clock that is set back changes nothing. One that is set forward is
// followed, as memstore does.
func TestP9_WallClock(t *testing.T) {
	m := &filestore.Machine{Boot: "one"}
	s := open(t, m, t.TempDir())
	require.True(t, now(t, s, hourly(1)))
	m.Step = -2 * time.Hour
	require.False(t, now(t, s, hourly(1)))
	m.Step = 50 * time.Millisecond
	require.False(t, now(t, s, hourly(1)))
	m.Step = 2 * time.Hour
	require.True(t, now(t, s, hourly(1)))
	m.Step = 0
	require.False(t, now(t, s, hourly(1)))
}

// TestRemovedFiles: a store goes on with what it knows if somebody removes its files.
func TestRemovedFiles(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	s := open(t, m, dir)
	require.True(t, now(t, s, hourly(2)))
	path, _ := s.File()
	require.NoError(t, os.Remove(path))
	require.True(t, now(t, s, hourly(2)))
	require.False(t, now(t, s, hourly(2)))
	require.False(t, now(t, open(t, m, dir), hourly(2)))
}

// TestP1_RemovedWhileTheLockIsAwaited: a store goes on with what it knows also if somebody removes its files while other processes have the lock for long.
func TestP1_RemovedWhileTheLockIsAwaited(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	s := open(t, m, dir)
	require.True(t, now(t, s, hourly(1)))
	path, _ := s.File()
	others, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	require.NoError(t, err)
	defer others.Close()
	require.NoError(t, syscall.Flock(int(others.Fd()), syscall.LOCK_EX))
	require.NoError(t, os.Remove(path))

	// The file grows, as it does when other processes make steps.
	over := make(chan struct{})
	go func() {
		defer close(over)
		require.False(t, now(t, s, hourly(1)), "the start before is forgotten")
	}()
	for waits := true; waits; {
		select {
		case <-over:
			waits = false
		default:
			_, err := others.Write([]byte{0})
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
	}
	require.False(t, now(t, open(t, m, dir), hourly(1)))
}

// TestP8_StandsStill: a process that has locked the file stands still. Others go on without it, and when
// it goes on itself, its step is made again: the others know of everything that is booked.
func TestP8_StandsStill(t *testing.T) {
	dir := t.TempDir()
	stands, goOn := make(chan struct{}), make(chan struct{})
	m := &filestore.Machine{Boot: "one"}
	slow, fast := open(t, m, dir), open(t, &filestore.Machine{Boot: "one"}, dir)
	calls := 0
	m.Asked = func() {
		calls++
		if calls == 1 {
			close(stands)
			<-goOn
		}
	}
	granted := make(chan bool)
	go func() {
		g, err := slow.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
		granted <- err == nil && g.OK
	}()
	<-stands
	require.True(t, now(t, fast, hourly(1)))
	close(goOn)
	require.False(t, <-granted)
	require.Equal(t, 1, used(t, slow, hourly(1)))
	require.Equal(t, 1, used(t, fast, hourly(1)))
}

// TestP8_LockIsHeldByOthers: a lock that is never given back holds nobody up for long.
func TestP8_LockIsHeldByOthers(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one"}, t.TempDir()
	s := open(t, m, dir)
	path, _ := s.File()
	f, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	require.True(t, now(t, s, hourly(1)))
	next, _ := s.File()
	require.NotEqual(t, path, next)
	require.NoError(t, f.Close())
	require.False(t, now(t, s, hourly(1)))
}

// TestP10_LongFiles: files are ended when they are long, and are removed in the end.
func TestP10_LongFiles(t *testing.T) {
	m, dir := &filestore.Machine{Boot: "one", Grow: 2000}, t.TempDir()
	stores := []*filestore.Store{open(t, m, dir), open(t, m, dir)}
	for i := range 1000 {
		require.True(t, now(t, stores[i%2], hourly(1000)))
	}
	require.False(t, now(t, stores[0], hourly(1000)))
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	full := 0
	for _, e := range all {
		i, err := e.Info()
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(e.Name(), "budgets-"), e.Name())
		if i.Size() > filestore.HeaderSize {
			full++
		}
	}
	require.LessOrEqual(t, full, 2)
	require.Greater(t, len(all), 5)

	long := time.Now().Add(-time.Hour)
	for _, e := range all {
		require.NoError(t, os.Chtimes(filepath.Join(dir, e.Name()), long, long))
	}
	for range 100 {
		now(t, stores[0], hourly(2000))
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Less(t, len(left), 4)
}
