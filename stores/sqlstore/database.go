package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// maxRepeats is how many times at the most a transaction is repeated of which nothing was saved.
const maxRepeats = 20

// A database implements [rowstore.Database], [rowstore.Reader] and [rowstore.Attender].
//
// A transaction locks the row of its group in a statement of its own. The next statement reads the clock and
// rows: in READ COMMITTED it sees all rows that were committed before it began, by whichever program.
type database struct {
	db *sql.DB

	mu     sync.Mutex
	probed bool  // nothing is wrong with how connections are set up
	swept  int64 // the minute in which rows were last removed
}

// Transact implements [rowstore.Database].
func (d *database) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return repeat(ctx, func() (again bool, err error) { return d.try(ctx, group, keys, do) })
}

// errNotRun says that the last try has only made the row of its group.
var errNotRun = errors.New("the row of the group was missing, and there was no time left to begin again")

// repeat calls try, and calls it again as long as again is true, at most maxRepeats times and not after the end of ctx. It returns the error of the last call, or
// errNotRun if the last call returned again without an error. After the end of ctx every error wraps the error of ctx, too: the driver may only say
// that the connection was closed.
func repeat(ctx context.Context, try func() (again bool, err error)) error {
	for n := 0; ; n++ {
		again, err := try()
		last := n == maxRepeats || ctx.Err() != nil

		// Without an error the caller would believe that the transaction is saved.
		if again && err == nil && last {
			err = undoneError{fail(errNotRun)}
		}
		if over := ended(ctx); err != nil && over != nil && !errors.Is(err, over) {
			return fmt.Errorf("%w: %w", over, err)
		}
		if !again || last {
			return err
		}
	}
}

// ended returns why ctx has ended, or nil. ctx counts as ended from its deadline on: on a busy machine it ends a little later, and a dial has failed at
// the deadline.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

// try makes a transaction. again says that nothing was saved, and that the transaction may be repeated. If again comes without an error, try has only made the
// row of the group, and has not called do.
func (d *database) try(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) (again bool, err error) {
	s, err := d.session(ctx)
	if err != nil {
		return false, undoneError{fail(err)}
	}
	defer s.end()

	tx := newTransaction(ctx, s, group, len(keys))
	locked, err := tx.begin(keys)

	// If the group has no row yet, make it, and begin again.
	if err == nil && !locked {
		err = tx.makeGroup()
		if err == nil {
			return true, nil
		}
	}

	// After a deadlock, or on a new connection, a further try may succeed. A statement that was refused would be refused again.
	if err != nil {
		return isRolledBack(err) || isGone(err), undoneError{fail(err)}
	}

	// If the server has undone the transaction in a Get, begin again.
	if err := do(tx); err != nil {
		_ = tx.rollback() // if it fails the connection is closed, which does the same
		return isRolledBack(tx.err), err
	}

	// After any other error of the commit nobody knows whether the rows were saved.
	switch err := tx.commit(); {
	case err != nil && (isUndone(err) || isUnsent(err)):
		return isRolledBack(err) || isUnsent(err), undoneError{fail(err)}
	case err != nil:
		return false, fail(err)
	}

	// tx.now is the time of the server's clock, by which rows are removed.
	d.sweep(tx.now)
	return false, nil
}

// Read implements [rowstore.Reader].
func (d *database) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return repeat(ctx, func() (again bool, err error) { return d.look(ctx, group, keys, do) })
}

// look makes one attempt of Read. again says that the connection was gone, so that the next attempt may succeed.
func (d *database) look(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) (again bool, err error) {
	s, err := d.session(ctx)
	if err != nil {
		return false, fail(err)
	}
	defer s.end()

	tx := newTransaction(ctx, s, group, len(keys))
	if err := tx.look(keys); err != nil {
		return isGone(err), fail(err)
	}

	// Reading has left the connection as it was.
	s.sound = true
	return false, do(tx)
}

// session returns a connection for one transaction. It returns the mistakes in the settings of connections as an error: see probe.
func (d *database) session(ctx context.Context) (*session, error) {
	if err := d.probe(ctx); err != nil {
		return nil, err
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &session{conn: conn}, nil
}

// check returns an error if the database is nil, or if the server refuses the connection or its settings within longestProbe. A server that is away is no error.
func (d *database) check() error {
	if d.db == nil {
		return &store.OptionError{Package: "sqlstore", Option: "db", Problem: "is nil: check the error of sql.Open"}
	}

	ctx, cancel := context.WithTimeout(context.Background(), longestProbe)
	defer cancel()
	if err := d.probe(ctx); err != nil && isRefusal(err) {
		return fail(err)
	}

	return nil
}

// probe asks the server for the settings of connections, and returns the mistakes in them, or why it could not ask. Once nothing is wrong it does not ask
// any more. Callers that come meanwhile wait for its answer.
func (d *database) probe(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.probed {
		return nil
	}

	var commits bool
	if err := d.db.QueryRowContext(ctx, "SELECT @@autocommit").Scan(&commits); err != nil {
		return err
	}

	var mistakes []error
	if !commits {
		mistakes = append(mistakes, errAutocommit)
	}

	// Where connections take one statement at a time, two of them are a syntax error.
	switch _, err := d.db.ExecContext(ctx, "DO 1; DO 1"); {
	case isNumber(err, syntaxError):
		mistakes = append(mistakes, errMultiStatements)
	case err != nil:
		return err
	}

	d.probed = len(mistakes) == 0
	return errors.Join(mistakes...)
}

// maxSwept is how many rows are removed in one transaction, so that it is short.
const maxSwept = 1000

// sweep removes rows that do not matter any more, in a goroutine, at most once in each minute of the server's clock. Each saved transaction calls sweep: now is
// the transaction's time.
func (d *database) sweep(now time.Time) {
	minute := now.Unix() / 60
	d.mu.Lock()
	defer d.mu.Unlock()

	// A transaction that began in the minute before may come late. If the clock was set back by more than that, sweep by the new time.
	if minute == d.swept || minute == d.swept-1 {
		return
	}

	// Programs that run for less than a minute leave the sweep to others.
	first := d.swept == 0
	d.swept = minute
	if first {
		return
	}

	// No caller waits for the sweep.
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()

		for {
			removed, err := d.remove(ctx, minute)
			if err != nil || removed < maxSwept {
				return // after an error a later sweep removes the rest
			}
		}
	}()
}

// remove removes up to maxSwept rows whose minute is before the given one, and returns how many.
func (d *database) remove(ctx context.Context, minute int64) (removed int, err error) {
	s, err := d.session(ctx)
	if err != nil {
		return 0, err
	}
	defer s.end()

	err = s.send(ctx,
		statement{text: readCommitted},
		statement{text: fmt.Sprintf("DELETE FROM throttle_rows WHERE minute < %d ORDER BY minute LIMIT %d", minute, maxSwept)},
		statement{text: "SELECT ROW_COUNT()", take: func(rows *sql.Rows) error {
			if rows.Next() {
				return rows.Scan(&removed)
			}
			return rows.Err()
		}},
	)

	s.sound = err == nil
	return removed, err
}
