package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// standstill is for how many seconds a program may have a group locked and say nothing, or take nothing that the server sends. Then the
	// server closes the program's connection, which undoes its transaction. It is wait_timeout and net_write_timeout that do so:
	// innodb_lock_wait_timeout ends only the patience of waiting sessions.
	standstill = 1

	// lockMost is for how many seconds a statement waits for rows at the most, if its context has no end.
	lockMost = 4

	// readCommitted is for the next transaction alone.
	readCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

	// restore sets the settings of the connection that patience has changed to their former values.
	restore = "SET SESSION wait_timeout = @throttle_patience, SESSION net_write_timeout = @throttle_writes, " +
		"SESSION innodb_lock_wait_timeout = @throttle_rows, SESSION lock_wait_timeout = @throttle_tables"
)

// lockFor returns for how many seconds statements wait for rows, and for a table that a stranger has locked. The waits end before ctx does. A server
// does not notice that its client has gone while a statement waits for a row, so each try would leave a connection behind. And after a wait that
// the server has ended, it is certain that nothing was saved. Two statements of a transaction may wait for a table.
func lockFor(ctx context.Context) (rows, tables int) {
	rows = lockMost
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

// begin begins a transaction, locks the row of its group, and reads the clock and rows. It returns false if
// the group has no row: then nothing is locked.
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

// commit saves rows.
func (tx *transaction) commit() error {
	if len(tx.puts) == 0 {
		return tx.rollback()
	}

	// Programs that lock rows in the same order do not deadlock.
	slices.SortFunc(tx.puts, func(a, b put) int { return strings.Compare(a.key, b.key) })
	var text strings.Builder
	text.WriteString("INSERT INTO throttle_rows (name, value, minute) VALUES ")

	for i, p := range tx.puts {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, "(%s,%s,%d)", literal(p.key), literal(string(p.value)), p.minute)
	}

	text.WriteString(" ON DUPLICATE KEY UPDATE value = VALUES(value), minute = VALUES(minute)")
	err := tx.session.send(tx.ctx, statement{text: text.String()}, statement{text: "COMMIT"}, statement{text: restore})
	tx.session.sound = err == nil

	return err
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
