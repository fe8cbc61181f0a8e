// Package filestore shares budgets among the processes of one machine through a directory: several
// workers of one program, jobs that run beside it, scripts of cron. There is no server, and nothing
// to install. Programs on several machines use redisstore.
//
// Budgets are exact, and callers are served in the order in which they came, in whichever process. What
// happens when processes are killed or stopped, the disk is full or the machine restarts:
// see the page on the [file store].
//
// [file store]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/filestore.md
package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a [store.Store] that keeps budgets in a directory, which other processes of the
// machine may use at the same time. Make one with [New]. It is safe for concurrent use. There is
// nothing to close.
type Store struct {
	node    *node.Store
	backend *backend
}

// Options configure a [Store]. The zero value of each field is useful.
type Options struct {
	// Lease is for how long a process that writes nothing to the directory counts as alive: after that, its slots of
	// Concurrency budgets are free, and its callers have left their lines. Those of a killed process are free earlier.
	// At least a second. Defaults to 10 s.
	Lease time.Duration
}

const (
	defaultLease = 10 * time.Second
	minLease     = time.Second
)

// New returns a store that keeps budgets in a directory. If the directory is missing, New makes it for this
// user alone. All programs that share budgets give the same directory, on a file system of this machine.
// Whoever may write to the directory may use the budgets: its files get the rights that the directory has.
//
// The error has a *[store.OptionError] for each mistake in the arguments, or says why the directory cannot be used.
func New(dir string, o Options) (*Store, error) {
	if err := check(dir, o); err != nil {
		return nil, err
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}

	switch kind, err := sharedBy(dir); {
	case err != nil:
		return nil, fmt.Errorf("filestore: %s: %w", dir, err)
	case kind != "":
		return nil, fmt.Errorf("filestore: %s is on %s: locks and clocks of several machines cannot be relied on; use a directory of this machine, or redisstore", dir, kind)
	}

	d, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}

	s, err := openHere(d, cmp.Or(o.Lease, defaultLease))
	if err != nil {
		return nil, err
	}

	// Remove old pipes of dead processes.
	pipes{d}.tidy(s.backend.isLeased)
	return s, nil
}

// check returns all mistakes in the arguments of [New].
func check(dir string, o Options) error {
	var mistakes []error
	if dir == "" {
		mistakes = append(mistakes, &store.OptionError{
			Package: "filestore", Option: "dir", Problem: "is empty: give a directory of this machine, the same in all programs",
		})
	}

	if o.Lease != 0 && o.Lease < minLease {
		mistakes = append(mistakes, &store.OptionError{
			Package: "filestore", Option: "Options.Lease",
			Problem: fmt.Sprintf("%v is too short: use %v or more, or 0 for %v", o.Lease, minLease, defaultLease),
		})
	}

	return errors.Join(mistakes...)
}

// openHere returns a store on this machine in a directory that is open.
func openHere(d *folder, lease time.Duration) (*Store, error) {
	return open(d, thisMachine{}, pipes{d}, maxGrow, node.Options{
		Node: ledger.Node{ID: node.NewNode(), Lease: lease.Microseconds()},
	})
}

// open returns a store that has its clock from m, and that wakes nodes by bells. Its files grow by grow bytes at the least before
// they are ended. open reads the budgets of the directory, or writes the first file.
func open(d *folder, m machine, bells bells, grow int64, o node.Options) (*Store, error) {
	b := &backend{
		listener:  listener{node: o.Node.ID, bells: bells},
		mu:        make(chan struct{}, 1),
		directory: directory{folder: d, machine: m, grow: grow, lease: time.Duration(o.Node.Lease) * time.Microsecond},
	}

	var err error
	if b.boot, err = m.boot(); err != nil {
		return nil, fmt.Errorf("filestore: the identity of the boot: %w", err)
	}
	if _, err := b.current(); err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}

	return &Store{node.New(b, o), b}, nil
}

// The methods of [store.Store], written out so that the documentation of this
// package has them.

// Book books the earliest start at which all charges of b have room, in one step,
// and says how long it is until then: see [store.Store].
func (s *Store) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	return s.node.Book(ctx, b)
}

// Cancel gives back a start that was not used, or a place in line. It returns no
// error: a start whose return cannot be written to the directory stays charged.
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	s.node.Cancel(b, g)
}

// Release gives back the slots of Concurrency limits that a start holds.
func (s *Store) Release(b *store.Booking, g store.Grant) {
	s.node.Release(b, g)
}

// Settle changes the cost of a start, to costs[i] for b.Charges[i].
func (s *Store) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	return s.node.Settle(ctx, b, g, costs)
}

// Pause closes the budget of c for d, for all programs that share it.
func (s *Store) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	return s.node.Pause(ctx, c, d)
}

// Refuse closes the budget of c because its upstream refused a request, and returns
// the ceiling of an Adaptive budget before and after.
func (s *Store) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	return s.node.Refuse(ctx, c, r)
}

// Resume opens the budget of c.
func (s *Store) Resume(ctx context.Context, c store.Charge) error {
	return s.node.Resume(ctx, c)
}

// Reconcile lowers the rest of the budget of c to the rest that its upstream reports.
func (s *Store) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	return s.node.Reconcile(ctx, c, q)
}

// Watch tells news when a booked start may have become useless, until the watch is
// stopped.
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	return s.node.Watch(b, g, news)
}

// Status describes the budget of c, and changes nothing.
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return s.node.Status(ctx, c)
}

// Traits says which optional features of stores this store has.
func (s *Store) Traits() store.Traits {
	return s.node.Traits()
}

// KeepTurn returns the place of a caller that leaves its line, for RestoreTurn. A
// filestore keeps no places.
func (s *Store) KeepTurn(b *store.Booking, t store.Turn) []byte {
	return s.node.KeepTurn(b, t)
}

// RestoreTurn returns the place of a caller that comes back. It returns false if the
// bytes are not of a place in the same budgets.
func (s *Store) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	return s.node.RestoreTurn(b, kept)
}

// Appoint returns in how long a caller that leaves its line should come again.
func (s *Store) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.node.Appoint(ctx, c, wait, again)
}

// PauseNote returns what an operator said who closed the budget. A
// filestore knows of none.
func (s *Store) PauseNote(b store.Budget) store.PauseNote {
	return s.node.PauseNote(b)
}

// A folder is the directory of a store. Several users may write to the directory, and each of them may put links, files and pipes there to
// have a process with more rights change a file elsewhere. So:
//
//   - All names are looked up below an open directory ([os.Root]), and a file behind a link is refused.
//   - Owner, group, mode and length are changed by the descriptor of an open file, never by name.
//   - A file that is there already is looked at before it is changed: its kind, and that it has no name elsewhere.
//
// Users who may write to the directory can still stop and forge the budgets. A folder is safe for concurrent use.
type folder struct {
	path string
	root atomic.Pointer[os.Root]

	made func(name string) // for tests: is called when a file was made, before it gets its owner
}

// openFolder returns the folder of a directory, which must exist.
func openFolder(path string) (*folder, error) {
	d := &folder{path: path}
	return d, d.reopen()
}

// reopen looks up the directory again: a new one may have taken its place. The former root is closed when nobody uses it any more.
func (d *folder) reopen() error {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}

	d.root.Store(root)
	return nil
}

// pathOf is the path of a file, for messages and for comparing: nothing is opened by the path.
func (d *folder) pathOf(name string) string { return filepath.Join(d.path, name) }

// each calls do with the entries of the directory. After an error it may have called do with some of them.
func (d *folder) each(do func(e os.DirEntry)) error {
	dir, err := d.root.Load().Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()

	all, err := dir.ReadDir(-1)
	for _, e := range all {
		do(e)
	}

	return err
}

// open opens a file of a kind: [fs.ModeNamedPipe], or 0 for a regular file. It refuses a file of a different kind, a link, and a file that has a second name
// outside of the directory: writing to it would damage a stranger's file. It never waits: a pipe without a reader cannot be opened for writing.
func (d *folder) open(name string, flag int, kind fs.FileMode) (*os.File, error) {
	root := d.root.Load()
	f, err := root.OpenFile(name, flag|openFlags, 0)
	if err != nil {
		// After fs.ErrNotExist callers look again at once. A link that leads nowhere would give them that error forever.
		if there, e := root.Lstat(name); e == nil && there.Mode().Type() != kind {
			err = d.foreign(name)
		}
		return nil, err
	}

	if err := d.check(f, name, kind); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// check returns an error unless an open file is of a kind, still has its name, and has all of its names in the directory. If a different file
// has the name now, the error is [fs.ErrNotExist].
func (d *folder) check(f *os.File, name string, kind fs.FileMode) error {
	const rounds = 10 // names may come and go while they are counted
	for range rounds {
		own, err := f.Stat()
		if err != nil {
			return err
		}

		there, err := d.root.Load().Lstat(name)
		if err != nil {
			return err
		}

		switch {
		case own.Mode().Type() != kind, there.Mode().Type() != kind:
			return d.foreign(name)
		case !os.SameFile(own, there):
			return &fs.PathError{Op: "open", Path: d.pathOf(name), Err: fs.ErrNotExist}
		case links(own) == 1:
			return nil
		}

		// Count the names in the directory: a file that was just made has two for a moment.
		here := uint64(0)
		err = d.each(func(e os.DirEntry) {
			if other, err := e.Info(); err == nil && os.SameFile(own, other) {
				here++
			}
		})
		if err != nil || here >= links(own) {
			return err
		}
	}

	return d.foreign(name)
}

// foreign is the error of a file that no store has made.
func (d *folder) foreign(name string) error {
	return fmt.Errorf("%s: %w: it is a link, has another name elsewhere, or is of another kind", d.pathOf(name), errDamaged)
}

// create makes a new file, whose name is a prefix and a random number. Only the user of this process may use the file: see share.
func (d *folder) create(prefix string) (f *os.File, name string, err error) {
	// Try further numbers until a name is free.
	for {
		name = prefix + strconv.FormatUint(rand.Uint64(), 36)
		f, err = d.root.Load().OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}

	if err == nil && d.made != nil {
		d.made(name)
	}

	return f, name, err
}

// share opens a file that this process has made to the users of the directory: the file gets the directory's owner and group, as far as this
// process may change them, and the directory's rights to read and to write.
func (d *folder) share(f *os.File) error {
	i, err := d.root.Load().Stat(".")
	if err != nil {
		return err
	}

	giveTo(f, i)
	return f.Chmod(fileMode(i))
}

// fileMode is the mode of files in a directory: the directory's rights to read and to write. The owner always has both.
func fileMode(dir fs.FileInfo) fs.FileMode { return dir.Mode().Perm()&0o666 | 0o600 }

// isOld reports whether an entry is of a kind, and was last written to longer ago than an age. After an error it is false.
func isOld(e os.DirEntry, kind fs.FileMode, age time.Duration) bool {
	i, err := e.Info()
	return err == nil && i.Mode().Type() == kind && time.Since(i.ModTime()) > age
}

// remove removes a file of the directory.
func (d *folder) remove(name string) error { return d.root.Load().Remove(name) }
