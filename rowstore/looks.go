package rowstore

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// looks are the looks of a node at the rows of a group. Those that come while one is under way share the next.
type looks struct {
	*group
	mu      sync.Mutex
	waiting []*look
	running bool
}

// A look is that of one caller.
type look struct {
	keys []ledger.Key
	at   func(nodestore.Rows)
	done chan error // has room for one
}

// look has a look made, and waits for it as long as ctx allows.
func (l *looks) look(ctx context.Context, keys []ledger.Key, at func(nodestore.Rows)) error {
	one := &look{keys, at, make(chan error, 1)}
	l.mu.Lock()
	l.waiting = append(l.waiting, one)
	if !l.running {
		l.running = true
		go l.run()
	}
	l.mu.Unlock()
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run makes looks until nobody wants one.
func (l *looks) run() {
	for {
		l.mu.Lock()
		batch := l.waiting
		l.waiting = nil
		l.running = len(batch) > 0
		l.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		err := l.make(batch)
		for _, one := range batch {
			one.done <- err
		}
	}
}

// make makes looks together.
func (l *looks) make(batch []*look) error {
	names := []string{l.boardKey()}
	known := make(map[ledger.Key]struct{})
	for _, one := range batch {
		for _, k := range one.keys {
			if _, ok := known[k]; !ok {
				known[k] = struct{}{}
				names = append(names, l.rowKey(k))
			}
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), transactMost)
	defer stop()
	asked := time.Now()
	do := func(tx Tx) error {
		o, err := l.open(tx, names, 0, asked, false)
		if err != nil {
			return err
		}
		for _, one := range batch {
			one.at(&o.table)
		}
		return o.table.Err()
	}
	if r, ok := l.db.(Reader); ok {
		return r.Read(ctx, l.name, names, do)
	}
	return l.db.Transact(ctx, l.name, names, do)
}
