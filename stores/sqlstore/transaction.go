package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

const (
	// standstill is for how many seconds a program may have a group locked and say nothing, or take nothing that the server sends. Then the
	// server closes the program's connection, which undoes its transaction. It is wait_timeout and net_write_timeout that do so:
	// innodb_lock_wait_timeout ends only the patience of waiting sessions.
	standstill = 1

	// maxLockWait is for how many seconds a statement waits for rows at the most, if its context has no end.
	maxLockWait = 4

	// readCommitted is for the next transaction alone.
	readCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

	// restore sets the settings of the connection that patience has changed to their former values.
	restore = "SET SESSION wait_timeout = @throttle_patience, SESSION net_write_timeout = @throttle_writes, " +
		"SESSION innodb_lock_wait_timeout = @throttle_rows, SESSION lock_wait_timeout = @throttle_tables"
)

// lockFor returns for how many seconds statements wait for rows, and for a table that a stranger has locked. The waits end before ctx does, unless ctx
// ends within two seconds: the server knows no wait of less than a second. A server
// does not notice that its client has gone while a statement waits for a row, so each try would leave a connection behind. And after a wait that
// the server has ended, it is certain that nothing was saved. Two statements of a transaction may wait for a table.
func lockFor(ctx context.Context) (rows, tables int) {
	rows = maxLockWait
	if end, ok := ctx.Deadline(); ok {
		rows = max(1, int(time.Until(end)/time.Second))
	}
	return rows, max(1, rows/2)
}

// patience returns the statement that sets how long the server waits for this program, and how long the program's statements wait for locks, until
// the transaction ends. It notes the former settings for restore.
func patience(ctx context.Context) string {
	rows, tables := lockFor(ctx)
	return fmt.Sprintf("SET @throttle_patience = @@SESSION.wait_timeout, @throttle_writes = @@SESSION.net_write_timeout, "+
		"@throttle_rows = @@SESSION.innodb_lock_wait_timeout, @throttle_tables = @@SESSION.lock_wait_timeout, @throttle_began = %s, "+
		"SESSION wait_timeout = %d, SESSION net_write_timeout = %[2]d, "+
		"SESSION innodb_lock_wait_timeout = LEAST(@@SESSION.innodb_lock_wait_timeout, %d), SESSION lock_wait_timeout = LEAST(@@SESSION.lock_wait_timeout, %d)",
		clock, standstill, rows, tables)
}

// begin begins a transaction, locks the row of its group, and reads the clock and rows. It returns false, and
// has locked nothing, if the group has no row.
func (tx *transaction) begin(keys []string) (locked bool, err error) {
	tx.asked = time.Now()

	// The settings, the lock and the first read take one round trip.
	err = tx.session.send(tx.ctx,
		statement{text: patience(tx.ctx)},
		statement{text: readCommitted},
		statement{text: "BEGIN"},
		statement{
			text: "SELECT 1 FROM throttle_rows WHERE name = " + literal(groupRow(tx.group)) + " FOR UPDATE",
			take: func(rows *sql.Rows) error {
				locked = rows.Next()
				return rows.Err()
			},
		},
		tx.selects(clock+" - @throttle_began", keys),
	)

	return locked, err
}

// makeGroup makes the row of the group, in a transaction of its own: callers that lock nothing, and then insert, would
// deadlock.
func (tx *transaction) makeGroup() error {
	err := tx.session.send(tx.ctx,
		statement{text: "ROLLBACK"},
		statement{text: fmt.Sprintf("INSERT IGNORE INTO throttle_rows (name, value, minute) VALUES (%s, '', %d)", literal(groupRow(tx.group)), uint32(math.MaxUint32))},
		statement{text: restore},
	)
	tx.session.sound = err == nil
	return err
}

// rollback ends a transaction that has nothing to save.
func (tx *transaction) rollback() error {
	err := tx.session.send(tx.ctx, statement{text: "ROLLBACK"}, statement{text: restore})
	tx.session.sound = err == nil
	return err
}

// commit saves the rows of the transaction, or rolls it back if there are none.
func (tx *transaction) commit() error {
	if len(tx.puts) == 0 {
		return tx.rollback()
	}

	// Programs that lock rows in the same order do not deadlock.
	slices.SortFunc(tx.puts, func(a, b put) int { return strings.Compare(a.key, b.key) })
	err := tx.session.send(tx.ctx, statement{text: insert(tx.puts)}, statement{text: "COMMIT"}, statement{text: restore})
	tx.session.sound = err == nil

	return err
}

// insert returns the statement that saves rows. They may be a megabyte, and the group is locked meanwhile, so the statement is written once, into a
// buffer of its length.
func insert(puts []put) string {
	const begin, end = "INSERT INTO throttle_rows (name, value, minute) VALUES ", " ON DUPLICATE KEY UPDATE value = VALUES(value), minute = VALUES(minute)"
	const around = len("(x'',x'',4294967295),") // with the longest minute

	length := len(begin) + len(end)
	for _, p := range puts {
		length += hex.EncodedLen(len(p.key)+len(p.value)) + around
	}

	text := append(make([]byte, 0, length), begin...)
	for i, p := range puts {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '(')
		text = appendLiteral(text, []byte(p.key))
		text = append(text, ',')
		text = appendLiteral(text, p.value)
		text = append(text, ',')
		text = strconv.AppendInt(text, p.minute, 10)
		text = append(text, ')')
	}

	return string(append(text, end...))
}

// look reads the clock and rows, and locks nothing.
func (tx *transaction) look(keys []string) error {
	tx.asked = time.Now()
	err := tx.session.send(tx.ctx, tx.selects("0", keys))

	// The clock comes with the rows. Without any row, not even the group's, ask for the clock alone.
	if err == nil && tx.now.IsZero() {
		err = tx.session.send(tx.ctx, statement{text: "SELECT " + clock + ", 0, '', ''", take: tx.take})
	}
	return err
}

// A transaction implements [rowstore.Tx] and [rowstore.Asker].
type transaction struct {
	ctx     context.Context
	session *session
	group   string
	now     time.Time
	asked   time.Time
	rows    map[string][]byte // the rows that were read, nil if there is none
	puts    []put
	err     error // of the last Get
}

// clock is the server's clock in microseconds, as a number that does not depend on a time zone. The server reads it when
// the statement begins. That moment is after the lock was given, because the lock has a statement of its own.
const clock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// newTransaction returns a transaction that has not begun, for a group. keys is about how many rows it reads.
func newTransaction(ctx context.Context, s *session, group string, keys int) *transaction {
	return &transaction{ctx: ctx, session: s, group: group, rows: make(map[string][]byte, keys)}
}

// A put is a row that is to be saved.
type put struct {
	key    string
	value  []byte
	minute int64
}

// Now implements [rowstore.Tx].
func (tx *transaction) Now() time.Time { return tx.now }

// Asked implements [rowstore.Asker].
func (tx *transaction) Asked() time.Time { return tx.asked }

// Get implements [rowstore.Tx].
func (tx *transaction) Get(keys ...string) ([][]byte, error) {
	var missing []string
	for _, key := range keys {
		if _, known := tx.rows[key]; !known {
			missing = append(missing, key)
		}
	}

	if len(missing) > 0 {
		// The time of the transaction is the time of its first read.
		now, asked := tx.now, tx.asked
		tx.err = tx.session.send(tx.ctx, tx.selects("0", missing))
		tx.now, tx.asked = now, asked
		if tx.err != nil {
			return nil, fail(tx.err)
		}
	}

	values := make([][]byte, len(keys))
	for i, key := range keys {
		values[i] = tx.rows[key]
	}

	return values, nil
}

// Put implements [rowstore.Tx].
func (tx *transaction) Put(key string, value []byte, keep time.Duration) {
	// The minute from which the row may be removed: in whole minutes the index of the column seldom changes. Both times are rounded down, so add a minute
	// for each. Only rows of groups have the highest minute, so that they stay.
	minute := tx.now.Unix()/60 + int64(min(keep, math.MaxInt64-time.Minute)/time.Minute) + 2
	tx.puts = append(tx.puts, put{key, value, min(minute, math.MaxUint32-1)})
}

// selects returns the statement that reads the clock and rows, which count as missing until take has read them. passed
// is an SQL expression: how many microseconds of the server's clock have passed since the batch of the statement began.
func (tx *transaction) selects(passed string, keys []string) statement {
	var text strings.Builder
	text.WriteString("SELECT " + clock + ", " + passed + ", name, value FROM throttle_rows WHERE name IN (" + literal(groupRow(tx.group)))
	for _, key := range keys {
		text.WriteByte(',')
		text.WriteString(literal(key))

		// take replaces the nil if the row exists.
		tx.rows[key] = nil
	}
	text.WriteByte(')')
	return statement{text: text.String(), take: tx.take}
}

// groupRow returns the name of the row of a group. Keys have no spaces.
func groupRow(group string) string { return "group " + group }

// take reads the clock and rows from the result of a statement of selects.
func (tx *transaction) take(rows *sql.Rows) error {
	sent := tx.asked
	for rows.Next() {
		var now, passed int64
		var name string
		var value []byte
		if err := rows.Scan(&now, &passed, &name, &value); err != nil {
			return err
		}

		tx.now = time.UnixMicro(now)

		// The batch has waited for the lock since it was sent, and for no longer than this program has waited.
		tx.asked = sent.Add(min(time.Duration(max(passed, 0))*time.Microsecond, time.Since(sent)))
		tx.rows[name] = value
	}

	return rows.Err()
}

// minConns is the least size of a pool that can spare a connection to show that the program lives.
const minConns = 4

// errFewConns says that the pool needs its connections for transactions.
var errFewConns = errors.New("sqlstore: the pool has too few connections for a session of the program")

// lockName returns the name of the lock that shows that a node lives. Every user may take a lock, but the name has the node's random number, which
// stands in rows alone. A stranger that holds the lock of a node that has died only makes other nodes wait for its lease.
func lockName(node string) string { return "throttle/" + node }

// Attend implements [rowstore.Attender]. The server frees the lock of a node when its session ends.
func (d *database) Attend(ctx context.Context, node string) (rowstore.Session, error) {
	if limit := d.db.Stats().MaxOpenConnections; limit > 0 && limit < minConns {
		return nil, errFewConns
	}

	s, err := d.session(ctx)
	if err != nil {
		return nil, fail(err)
	}

	a := &attendance{session: s, own: lockName(node)}
	if _, _, err := a.Present(ctx, nil); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// An attendance implements [rowstore.Session] by a lock with a name. Its session is never sound: the pool closes the connection, and with it the
// lock is free.
type attendance struct {
	session *session
	own     string
	held    bool // the session has the lock
}

// Present implements [rowstore.Session].
func (a *attendance) Present(ctx context.Context, nodes []string) (present []bool, now time.Time, err error) {
	// One statement asks for all. An earlier session of the node may have the lock until the server has noticed its end.
	var text strings.Builder
	text.WriteString("SELECT " + clock + ", ")
	if a.held {
		text.WriteString("1")
	} else {
		text.WriteString("GET_LOCK(" + literal(a.own) + ", 0)")
	}
	for _, n := range nodes {
		text.WriteString(", IS_FREE_LOCK(" + literal(lockName(n)) + ")")
	}

	var micros int64
	var got sql.NullBool
	free := make([]sql.NullBool, len(nodes))
	to := []any{&micros, &got}
	for i := range free {
		to = append(to, &free[i])
	}

	if err := a.session.conn.QueryRowContext(ctx, text.String()).Scan(to...); err != nil {
		return nil, now, fail(err)
	}

	// The server says NULL if it cannot tell. Then the node counts as present.
	a.held = got.Bool
	for _, f := range free {
		present = append(present, !f.Valid || !f.Bool)
	}
	return present, time.UnixMicro(micros), nil
}

// Close implements [rowstore.Session].
func (a *attendance) Close() { a.session.end() }
