package rowstore

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

const (
	// maxLooks is how many looks are under way at the most.
	maxLooks = 3

	// lookAlone is for how long the next look waits for the end of the look that is under way. If the database is far away callers do not wait
	// longer: an answer after two looks comes too late for a start that they want to confirm.
	lookAlone = 12 * time.Millisecond
)

// looks are the looks of a node at the rows of a group. Callers that come while a look is under way share the next look.
type looks struct {
	*group
	mu      sync.Mutex
	waiting []*look
	running int  // looks that are under way
	alone   bool // the last look began less than lookAlone ago and is not over, so the next waits
}

// A look is the wish of one caller to see some rows.
type look struct {
	keys []ledger.Key
	done chan error // has room for one

	mu  sync.Mutex
	see func(node.Rows) // is shown the rows. It is nil when the caller has left.
}

// show lets the caller look.
func (l *look) show(rows node.Rows) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.see != nil {
		l.see(rows)
	}
}

// leave has the caller see nothing of the look, because it does not wait any longer.
func (l *look) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.see = nil
}

// look shows a caller the rows of keys, and waits for them as long as ctx allows.
func (l *looks) look(ctx context.Context, keys []ledger.Key, see func(node.Rows)) error {
	caller := &look{keys: keys, see: see, done: make(chan error, 1)}
	l.mu.Lock()
	l.waiting = append(l.waiting, caller)

	l.begin()
	l.mu.Unlock()

	// The caller may leave. Its look goes on with the others, and shows it nothing.
	select {
	case err := <-caller.done:
		return err
	case <-ctx.Done():
		caller.leave()
		return context.Cause(ctx)
	}
}

// begin begins a look for all callers that wait, if it is time. The looks are locked.
func (l *looks) begin() {
	if len(l.waiting) == 0 || l.alone || l.running == maxLooks {
		return
	}

	// Without a Reader a look is a transaction, which would wait for the looks before.
	if _, ok := l.db.(Reader); !ok && l.running > 0 {
		return
	}

	batch := l.waiting
	l.waiting = nil
	l.alone = true
	l.running++
	go l.run(batch)
}

// run makes a look. The next look begins when this one is over, or has taken longer than lookAlone.
func (l *looks) run(batch []*look) {
	// next lets the next look begin, at its first call only: after that, alone belongs to the next look.
	next := sync.OnceFunc(func() { l.alone = false })
	long := time.AfterFunc(lookAlone, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		next()
		l.begin()
	})

	err := l.make(batch)
	long.Stop()
	for _, caller := range batch {
		caller.done <- err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	next()
	l.begin()
}

// make reads the rows of all callers of a batch at once, and shows them to each. Its error is the error of all.
func (l *looks) make(batch []*look) error {
	var budgets []ledger.Key
	for _, caller := range batch {
		budgets = append(budgets, caller.keys...)
	}

	keys := l.names.rows([]string{l.names.board()}, budgets)
	do := func(tx Tx, asked time.Time) error {
		o, err := l.open(tx, keys, asked, false)
		if err != nil {
			return err
		}

		for _, caller := range batch {
			caller.show(&o.table)
		}

		return o.table.Err()
	}

	// A second try helps if a connection was lost.
	err := l.read(keys, do)
	if err != nil {
		err = l.read(keys, do)
	}

	return err
}

// read runs do in a read without a transaction, if the database can do so, and otherwise in a transaction that puts nothing.
func (l *looks) read(keys []string, do func(Tx, time.Time) error) error {
	ctx, stop := context.WithTimeout(context.Background(), maxTransact)
	defer stop()
	asked := time.Now()
	doAsked := func(tx Tx) error { return do(tx, asked) }
	if r, ok := l.db.(Reader); ok {
		return r.Read(ctx, l.name(), keys, doAsked)
	}
	return l.db.Transact(ctx, l.name(), keys, doAsked)
}
