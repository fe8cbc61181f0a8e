package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"strings"
)

// A session is a connection during one transaction.
type session struct {
	conn  *sql.Conn
	sound bool // the connection is as it was before
}

// A statement is SQL for the server, in which the arguments are literals.
type statement struct {
	text string
	take func(*sql.Rows) error // is given the rows of the result. It is nil for a statement without rows.
}

// send sends statements in one round trip. The first statement that fails is the last that is done.
func (s *session) send(ctx context.Context, statements ...statement) error {
	var text strings.Builder
	for i, st := range statements {
		if i > 0 {
			text.WriteByte(';')
		}
		text.WriteString(st.text)
	}

	rows, err := s.conn.QueryContext(ctx, text.String())
	if err != nil {
		return err
	}
	defer rows.Close()

	// Results come in the order of the statements.
	for _, st := range statements {
		if st.take == nil {
			continue // the driver leaves out results without rows
		}
		if err := st.take(rows); err != nil {
			return err
		}

		rows.NextResultSet()
	}

	return rows.Err()
}

// end gives the connection back to the pool, or closes it if something has failed: the
// server then rolls back.
func (s *session) end() {
	if !s.sound {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // which is how a pool is told to close it
	}
	_ = s.conn.Close() // it may be closed already
}

// literal returns bytes as they stand in a statement. It has only digits and letters, so nothing in it has to be escaped.
func literal(s string) string {
	if s == "" {
		return "''"
	}
	return "x'" + hex.EncodeToString([]byte(s)) + "'"
}
