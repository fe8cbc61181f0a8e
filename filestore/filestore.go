// Package filestore shares budgets among the processes of one machine through a directory: several
// workers of one program, jobs that run beside it, scripts of cron. There is no server, and nothing
// to install. Programs on several machines use redisstore.
//
// Budgets are exact, and callers are served in the order in which they came, in whichever process. What
// happens when processes are killed or stopped, the disk is full or the machine restarts:
// see docs/filestore.md.
package filestore

import (
	"fmt"
	"os"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// A Store is a [store.Store] that keeps budgets in a directory, which other processes of the
// machine may use at the same time. Make one with [Open]. It is safe for concurrent use. There is
// nothing to close.
type Store struct {
	*nodestore.Store
	backend *backend
}

// lease is for how long a process is believed to live that says nothing: after that, what it held of
// Concurrency budgets is free, and its callers have left their lines.
const lease = 10 * time.Second

// Open returns a store that keeps budgets in a directory, which it makes if need be. All
// programs that share budgets give the same directory, on a file system of this machine. Whoever may
// write to the directory may use the budgets: its files get the rights that the directory has.
func Open(dir string) (*Store, error) {
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
	return openHere(d, lease)
}

// openHere is Open in a directory that is open.
func openHere(d *folder, lease time.Duration) (*Store, error) {
	return open(d, thisMachine{}, pipes{d}, growMost, nodestore.Options{
		Node: ledger.Node{ID: nodestore.NewNode(), Lease: lease.Microseconds()},
	})
}

// open is Open on a machine.
func open(d *folder, m machine, bells bells, grow int64, o nodestore.Options) (*Store, error) {
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
	return &Store{nodestore.New(b, o), b}, nil
}
