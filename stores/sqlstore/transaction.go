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
	// server closes the program's connection, which undoes its transaction. The settings for that are wait_timeout and net_write_timeout:
	// innodb_lock_wait_timeout only bounds the waits of other sessions.
	standstill = 1

	// maxLockWait is for how many seconds a statement waits for rows at the most, if its context has no deadline.
	maxLockWait = 4

	// readCommitted sets the isolation level of the next transaction alone.
	readCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

	// restore sets the settings of the connection that patience has changed to their former values.
	restore = "SET SESSION wait_timeout = @throttle_patience, SESSION net_write_timeout = @throttle_writes, " +
		"SESSION innodb_lock_wait_timeout = @throttle_rows, SESSION lock_wait_timeout = @throttle_tables"
)

// lockFor returns for how many seconds at the most statements wait for rows, and for a table that a stranger has locked. Two statements of a transaction may
// wait for a table, so each has half the time. The waits must end before ctx: while a statement waits, the server does not notice that its client has
// gone, so each try would leave a connection behind; and after a wait that the server has ended, it is certain that nothing was saved. If ctx ends within
// two seconds the waits may still be longer, because the server knows no wait of less than a second.
func lockFor(ctx context.Context) (rows, tables int) {
	rows = maxLockWait
	if end, ok := ctx.Deadline(); ok {
		rows = max(1, int(time.Until(end)/time.Second))
	}
	return rows, max(1, rows/2)
}

// patience returns the statement that sets how long the server waits for this program, and how long the program's statements wait for locks. The statement
// notes the former settings for restore, and the time for begin.
func patience(ctx context.Context) string {
	rows, tables := lockFor(ctx)
	return fmt.Sprintf("SET @throttle_patience = @@SESSION.wait_timeout, @throttle_writes = @@SESSION.net_write_timeout, "+
		"@throttle_rows = @@SESSION.innodb_lock_wait_timeout, @throttle_tables = @@SESSION.lock_wait_timeout, @throttle_began = %s, "+
		"SESSION wait_timeout = %d, SESSION net_write_timeout = %[2]d, "+
		"SESSION innodb_lock_wait_timeout = LEAST(@@SESSION.innodb_lock_wait_timeout, %d), SESSION lock_wait_timeout = LEAST(@@SESSION.lock_wait_timeout, %d)",
		clock, standstill, rows, tables)
}

// begin begins a transaction, locks the row of its group, and reads the clock and rows. If the group has no row, locked is false, and nothing is
// locked.
func (tx *transaction) begin(keys []string) (locked bool, err error) {
	tx.asked = time.Now()

	// The settings, the lock and the first read take one round trip. take moves asked on by the wait for the lock.
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

// makeGroup ends the transaction and makes the row of the group, which is never removed. The row has a transaction of its own: programs that look for the missing
// row and insert it in one transaction would deadlock.
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

// commit saves the rows of the transaction, or rolls it back if there are none. After an error isUndone and isUnsent report whether it is
// certain that nothing was saved.
func (tx *transaction) commit() error {
	if len(tx.puts) == 0 {
		return tx.rollback()
	}

	// Programs that save rows in the same order do not deadlock.
	slices.SortFunc(tx.puts, func(a, b put) int { return strings.Compare(a.key, b.key) })
	err := tx.session.send(tx.ctx, statement{text: insert(tx.puts)}, statement{text: "COMMIT"}, statement{text: restore})
	tx.session.sound = err == nil

	return err
}

// insert returns the statement that saves rows. The rows may be a megabyte, and the group is locked while insert runs: so insert
// first makes a buffer that is large enough.
func insert(puts []put) string {
	const begin, end = "INSERT INTO throttle_rows (name, value, minute) VALUES ", " ON DUPLICATE KEY UPDATE value = VALUES(value), minute = VALUES(minute)"
	const around = len("(x'',x'',4294967295),") // of one row: all except key and value, with the longest minute

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
	rows    map[string][]byte // the values of the rows that were read. A row that does not exist has nil.
	puts    []put
	err     error // the error of the last Get
}

// clock is the time of the server's clock in microseconds since 1970, whatever the time zone. The server reads the clock when
// the statement begins. That moment is after the lock was granted, because the lock has a statement of its own.
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
		// The time of the transaction is that of its first read, so put back what take changes.
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
	// The minute from which the row may be removed: in whole minutes the index of the column seldom changes. now and keep are rounded down, so add a minute
	// for each. Only rows of groups have the highest minute, so that they stay.
	minute := tx.now.Unix()/60 + int64(keep/time.Minute) + 2
	tx.puts = append(tx.puts, put{key, value, min(minute, math.MaxUint32-1)})
}

// selects returns the statement that reads the clock and the rows of keys. It notes all of them as missing, until take has read them. passed
// is an SQL expression: how many microseconds of the server's clock have passed since the trip of the statement began.
func (tx *transaction) selects(passed string, keys []string) statement {
	var text strings.Builder
	// The row of the group brings the clock, even if all other rows are missing.
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

// take sets now and rows from the result of a statement of selects. It moves asked on by the time for which the trip has waited on the server.
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

		// If the server's clock was set meanwhile passed is wrong: keep asked between sent and this moment.
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

	// A question about no other node takes the lock of this one.
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
	own     string // the name of the node's lock
	held    bool   // the session has that lock
}

// Present implements [rowstore.Session].
func (a *attendance) Present(ctx context.Context, nodes []string) (present []bool, now time.Time, err error) {
	// One statement asks for all, and for the lock of this node as long as the session does not have it: an earlier session of the node may have the
	// lock until the server has noticed its end.
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

	// A free lock has no session. If the server cannot tell it says NULL, and the node counts as present.
	a.held = got.Bool
	for _, f := range free {
		present = append(present, !f.Valid || !f.Bool)
	}
	return present, time.UnixMicro(micros), nil
}

// Close implements [rowstore.Session].
func (a *attendance) Close() { a.session.end() }
