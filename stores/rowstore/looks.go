package rowstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

const (
	// maxLooks is how many looks are under way at the most.
	maxLooks = 3

	// lookAlone is for how long the next look waits for the end of the look that is under way. If looks are slow callers do not wait longer: an
	// answer after two looks comes too late for a start that they want to confirm.
	lookAlone = 5 * time.Millisecond

	// hedgeAfter is after how many times the usual length of a look a second look is made for the same callers. The first answer counts. Where a
	// database answers unevenly, few callers have to wait for an answer of many times the usual length.
	hedgeAfter = 2
)

// looks are the looks of a node at the rows of a group. A look reads rows once, for several callers. Callers that come while a look is under way share
// the next look. A look answers all callers that wait when it begins, also those of slower looks that are under way.
type looks struct {
	*group
	mu      sync.Mutex
	waiting []*viewer     // callers without an answer
	fresh   bool          // a caller has come since the last look began
	running int           // looks that are under way
	alone   bool          // the last look began less than lookAlone ago and is not over, so the next waits
	usual   time.Duration // how long looks take, on average
}

// A viewer is a caller that wants to see some rows. The lock of the looks guards it.
type viewer struct {
	keys []ledger.Key
	see  func(node.Rows) // is shown the rows
	open int             // how many looks under way may answer the caller
	over bool            // the caller has its answer, or has left
	done chan error      // has room for one
}

// look calls see with the rows of keys, once a look has read them. It waits for that look as long as ctx allows. After an error see may or may not
// have been called.
func (l *looks) look(ctx context.Context, keys []ledger.Key, see func(node.Rows)) error {
	caller := &viewer{keys: keys, see: see, done: make(chan error, 1)}
	l.mu.Lock()
	l.waiting, l.fresh = append(l.waiting, caller), true
	l.begin(false)
	l.mu.Unlock()

	// The caller may leave. Looks that are under way go on for the others, and show the caller nothing.
	select {
	case err := <-caller.done:
		return err
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		caller.over = true
		return context.Cause(ctx)
	}
}

// begin begins a look for all callers that wait, unless the next look still has to wait for another one, or nobody waits. Without again it begins a look
// only if a caller has come since the last look began. The looks are locked.
func (l *looks) begin(again bool) {
	if !l.fresh && !again {
		return
	}
	if l.alone || l.running == maxLooks {
		return
	}

	// Without a Reader a look is a transaction, which would wait for the look under way.
	if _, ok := l.db.(Reader); !ok && l.running > 0 {
		return
	}

	l.fresh = false
	l.forgetAnswered()
	batch := slices.Clone(l.waiting)
	if len(batch) == 0 {
		return
	}

	for _, c := range batch {
		c.open++
	}
	l.running++
	l.alone = true
	go l.run(batch)
}

// forgetAnswered forgets the callers that have their answer, or have left. The looks are locked.
func (l *looks) forgetAnswered() {
	l.waiting = slices.DeleteFunc(l.waiting, func(c *viewer) bool { return c.over })
}

// run makes a look, and answers its callers. The next look may begin when this look ends, or after lookAlone. If this look takes hedgeAfter times as
// long as usual, and longer than lookAlone, a second look begins, which answers the callers of this look, too.
func (l *looks) run(batch []*viewer) {
	l.mu.Lock()
	hedge := max(lookAlone, hedgeAfter*l.usual)
	if l.usual == 0 {
		hedge = maxTransact // nobody knows yet how long a look takes
	}
	l.mu.Unlock()

	// allowNext clears alone at its first call only: after that the next look may have begun, which sets alone for itself.
	allowNext := sync.OnceFunc(func() { l.alone = false })
	nextTimer := time.AfterFunc(lookAlone, func() { l.locked(func() { allowNext(); l.begin(false) }) })
	hedgeTimer := time.AfterFunc(hedge, func() { l.locked(func() { allowNext(); l.begin(true) }) })

	began := time.Now()
	err := l.make(batch)
	nextTimer.Stop()
	hedgeTimer.Stop()

	l.locked(func() {
		allowNext()
		l.noteLength(time.Since(began))
		l.running--
		for _, c := range batch {
			c.open--

			// Where a look has failed, its callers wait for other looks that are under way for them.
			if !c.over && (err == nil || c.open == 0) {
				c.over = true
				c.done <- err
			}
		}

		// If begin begins no look, it forgets nobody.
		l.forgetAnswered()
		l.begin(false)
	})
}

// noteLength adds the length of a look to the moving average, which the first length begins. The looks are locked.
func (l *looks) noteLength(took time.Duration) {
	if l.usual == 0 {
		l.usual = took
	}
	l.usual += (took - l.usual) / 8
}

// locked calls a function with the lock.
func (l *looks) locked(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// make reads the rows of all callers of a batch at once, and shows them to each caller that still has no answer. After an error it tries once more.
// Its error is for all callers.
func (l *looks) make(batch []*viewer) error {
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

		l.mu.Lock()
		defer l.mu.Unlock()
		for _, caller := range batch {
			if !caller.over {
				caller.see(&o.table)
			}
		}

		return o.table.Err()
	}

	err := l.read(keys, do)
	if err != nil {
		err = l.read(keys, do) // the first error may be of a connection that was lost
	}

	return err
}

// read runs do in a Read, if the Database is a [Reader], and otherwise in a transaction that puts nothing. do gets the time of the call, which is
// before the clock of the database is read. A database that does not answer within maxTransact is away.
func (l *looks) read(keys []string, do func(Tx, time.Time) error) error {
	ctx, stop := context.WithTimeout(context.Background(), maxTransact)
	defer stop()
	asked := time.Now()
	doAsked := func(tx Tx) error { return do(tx, asked) }
	if r, ok := l.db.(Reader); ok {
		return orAway(ctx, r.Read(ctx, l.name(), keys, doAsked))
	}
	return orAway(ctx, l.db.Transact(ctx, l.name(), keys, doAsked))
}
