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
	"errors"
	"fmt"
	"os"
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
	// Lease is for how long a process is believed to live that says nothing: after that, its slots of
	// Concurrency budgets are free, and its callers have left their lines. At least a second. Defaults to 10 s.
	Lease time.Duration
}

const (
	defaultLease = 10 * time.Second
	leastLease   = time.Second
)

// New returns a store that keeps budgets in a directory, which it makes if need be. All
// programs that share budgets give the same directory, on a file system of this machine. Whoever may
// write to the directory may use the budgets: its files get the rights that the directory has.
//
// Its error has a *[store.OptionError] for each mistake in what New was given, or says why the directory cannot be used.
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

	pipes{d}.tidy()
	return openHere(d, cmp.Or(o.Lease, defaultLease))
}

// check returns all mistakes in the arguments of [New].
func check(dir string, o Options) error {
	var mistakes []error
	if dir == "" {
		mistakes = append(mistakes, &store.OptionError{
			Package: "filestore", Option: "dir", Problem: "is empty: give a directory of this machine, the same in all programs",
		})
	}

	if o.Lease != 0 && o.Lease < leastLease {
		mistakes = append(mistakes, &store.OptionError{
			Package: "filestore", Option: "Options.Lease",
			Problem: fmt.Sprintf("%v is too short: use %v or more, or 0 for %v", o.Lease, leastLease, defaultLease),
		})
	}

	return errors.Join(mistakes...)
}

// openHere is New in a directory that is open.
func openHere(d *folder, lease time.Duration) (*Store, error) {
	return open(d, thisMachine{}, pipes{d}, growMost, node.Options{
		Node: ledger.Node{ID: node.NewNode(), Lease: lease.Microseconds()},
	})
}

// open is New on a machine.
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
