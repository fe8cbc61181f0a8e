package sqlstore

import (
	"context"
	"database/sql"
	"math"
	"strings"
	"time"
)

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
	var more []string
	for _, key := range keys {
		if _, known := tx.rows[key]; !known {
			more = append(more, key)
		}
	}

	if len(more) > 0 {
		// The time of the transaction is the time of its first read.
		now, asked := tx.now, tx.asked
		tx.err = tx.session.send(tx.ctx, tx.selects("0", more))
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
	// In whole minutes, so that the index of the column seldom changes. It stays below the minute of rows of groups.
	minute := tx.now.Unix()/60 + int64(min(keep, math.MaxInt64-time.Minute)/time.Minute) + 2
	tx.puts = append(tx.puts, put{key, value, min(minute, math.MaxUint32-1)})
}

// selects returns the statement that reads the clock and rows. Passed is an expression: how many microseconds
// of the server's clock have passed since the program sent the batch of the statement.
func (tx *transaction) selects(passed string, keys []string) statement {
	var text strings.Builder
	text.WriteString("SELECT " + clock + ", " + passed + ", name, value FROM throttle_rows WHERE name IN (" + literal(groupRow(tx.group)))
	for _, key := range keys {
		text.WriteByte(',')
		text.WriteString(literal(key))

		// A row that is not found is known not to exist.
		tx.rows[key] = nil
	}
	text.WriteByte(')')
	return statement{text: text.String(), take: tx.take}
}

// groupRow returns the name of the row of a group. Keys have no spaces.
func groupRow(group string) string { return "group " + group }

// take takes in the clock and rows, from the result of a statement of selects.
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
