// Package sqlstore shares budgets among programs through a table of MySQL or MariaDB.
//
// Budgets are exact, and callers are served in the order in which they came, in whichever program. What
// the server must be, which rights a program needs, and the losses of a crash: see the page on [MySQL].
//
// [MySQL]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/mysql.md
package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// Schema is the statement that makes the table throttle_rows, if there is none.
//
//go:embed schema.sql
var Schema string

// CreateTable runs [Schema]. It needs rights that programs need not have later.
func CreateTable(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, Schema); err != nil {
		return fmt.Errorf("sqlstore: %w", explain(err))
	}
	return nil
}

// A Store is a [rowstore.Store] whose rows lie in MySQL or MariaDB. It is safe for concurrent use, and has nothing to
// close but the database.
type Store = rowstore.Store

// Options configure a [Store]. The zero value of each field is useful. All programs that share budgets give the
// same ones.
type Options struct {
	// Rows are the options of all stores that keep budgets in rows.
	Rows rowstore.Options
}

// longestProbe is for how long [New] waits for the server to say how connections are set up.
const longestProbe = 2 * time.Second

// New returns a store that keeps budgets in the table throttle_rows of a database of MySQL 8.0 or MariaDB 10.6, or
// later ones. All programs that share budgets use the same server.
//
// The driver is github.com/go-sql-driver/mysql. Its data source name has multiStatements=true, or its Config has
// MultiStatements: a step of the store then takes two round trips, and would take eight without that. The *sql.DB is
// one of the store's own, without a limit of open connections: a store that waits for a connection that its own caller
// holds waits in vain.
//
// New has the pool keep up to 4 idle connections, in place of the 2 of package sql. A later SetMaxIdleConns has the last word.
//
// New asks the server how connections are set up, for 2 seconds at most. Its error says at once what the server
// refuses, and has a *[store.OptionError] for each mistake in what New was given. A server that is away is no mistake:
// then the first booking asks.
func New(db *sql.DB, o Options) (*Store, error) {
	d := &database{db: db}
	s, err := rowstore.New(d, o.Rows)
	if err = errors.Join(d.check(), err); err != nil {
		return nil, err
	}

	db.SetMaxIdleConns(idleConns)
	return s, nil
}

// idleConns is how many idle connections the pool keeps: a step and up to three looks use one each. With fewer the pool would close a
// connection that is needed again a moment later, and a new one takes three round trips.
const idleConns = 4

// Numbers of errors, see https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html.
const (
	accessDenied           = 1044
	commandDenied          = 1142
	syntaxError            = 1064
	noTable                = 1146
	tooManyUserConnections = 1203
	lockWaitTimeout        = 1205
	deadlock               = 1213
	userLimitReached       = 1226 // of connections or statements in an hour
	readOnly               = 1290 // MariaDB's, and MySQL's
	tableFull              = 1114
	inactive               = 4031 // MySQL's, when wait_timeout is over; MariaDB closes the connection without a word
)

// isNumber reports whether err is an error of the server with one of the numbers.
func isNumber(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// isRolledBack reports whether an error says that the transaction is not saved, and may be repeated. A lock
// that was waited for too long leaves the transaction open; its connection is closed then.
func isRolledBack(err error) bool { return isNumber(err, deadlock, lockWaitTimeout, inactive) }

// isUndone reports whether an error of the trip that saves rows says that nothing was saved: only the statement before COMMIT can
// have the error, or COMMIT undoes the transaction with it.
func isUndone(err error) bool {
	return isRolledBack(err) || isNumber(err, commandDenied, noTable, readOnly, tableFull)
}

// An undoneError is the error of a transaction of which nothing was saved.
type undoneError struct{ error }

// Unwrap returns the error of the transaction.
func (e undoneError) Unwrap() error { return e.error }

// Is implements the interface of [errors.Is].
func (undoneError) Is(target error) bool { return target == rowstore.ErrNotSaved }

// isUnsent reports whether an error says that the server has not got the whole of a trip, so that it has done nothing of it: the driver says
// driver.ErrBadConn if it has sent nothing, and the error of the network if it has sent a part. The server undoes the transaction.
func isUnsent(err error) bool {
	var broke *net.OpError
	return errors.Is(err, driver.ErrBadConn) || errors.As(err, &broke) && broke.Op == "write"
}

// isGone reports whether an error says that a connection was closed. The pool may have had
// it since before the server was started anew.
func isGone(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
}

// What is wrong with how connections are set up.
var (
	errAutocommit = &store.OptionError{
		Package: "sqlstore", Option: "db",
		Problem: "connections have autocommit=0, so no transaction ends as it should: leave autocommit out of the data source name",
	}
	errMultiStatements = &store.OptionError{
		Package: "sqlstore", Option: "db",
		Problem: `connections take one statement at a time, which makes 8 round trips of 2: add multiStatements=true to the data source name, as in "user:password@tcp(host:3306)/database?multiStatements=true", or set mysql.Config.MultiStatements`,
	}
)

// never are the errors of the driver, and of this package, that do not pass by themselves.
var never = []error{
	errAutocommit, errMultiStatements, mysql.ErrNoTLS, mysql.ErrCleartextPassword, mysql.ErrNativePassword, mysql.ErrOldPassword, mysql.ErrUnknownPlugin, mysql.ErrPktTooLarge,
}

// isRefusal reports whether the same statement will be refused again until somebody changes something: the error is in never, the database is closed, or the
// server refuses a login (class 28), or a statement, a right or a table (42). A server that is away, starts, has no connection left, or is not the
// primary yet may accept the statement later.
func isRefusal(err error) bool {
	for _, e := range never {
		if errors.Is(err, e) {
			return true
		}
	}

	if strings.HasSuffix(err.Error(), "sql: database is closed") { // package sql does not export that error
		return true
	}

	// These two are of class 42, and pass with time.
	var e *mysql.MySQLError
	if !errors.As(err, &e) || isNumber(err, tooManyUserConnections, userLimitReached) {
		return false
	}

	class := string(e.SQLState[:2])
	return class == "28" || class == "42"
}

// explain adds to an error what to do about it.
func explain(err error) error {
	switch {
	case isNumber(err, noTable):
		return fmt.Errorf("%w: make the table with sqlstore.CreateTable, or run schema.sql", err)
	case isNumber(err, accessDenied, commandDenied):
		return fmt.Errorf("%w: the program needs SELECT, INSERT, UPDATE and DELETE on throttle_rows; CreateTable needs CREATE", err)
	case isNumber(err, readOnly):
		return fmt.Errorf("%w: the store needs the primary", err)
	}
	return err
}

// fail returns an error as a store returns it. Callers are told at once of refusals and wrong options. Every other error wraps ErrAway, so that callers wait. For nil
// it returns nil.
func fail(err error) error {
	switch {
	case err == nil, errors.As(err, new(*store.OptionError)):
		return err
	case isRefusal(err):
		return fmt.Errorf("sqlstore: %w", explain(err))
	}
	return fmt.Errorf("sqlstore: %w: %w", rowstore.ErrAway, explain(err))
}

// A session is a connection during one transaction.
type session struct {
	conn  *sql.Conn
	sound bool // the connection is as it was before the transaction, so that the pool can have it back
}

// A statement is SQL for the server, in which the arguments are literals.
type statement struct {
	text string
	take func(*sql.Rows) error // reads the rows of the result. It is nil for a statement without rows.
}

// send sends statements in one round trip, and calls take of each that has one. The first statement that fails is the last that is done.
// The error is that of the statement, or of take.
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
			continue // the driver skips results without rows
		}
		if err := st.take(rows); err != nil {
			return err
		}

		rows.NextResultSet()
	}

	return rows.Err()
}

// end gives the connection back to the pool, or closes it if it is not sound: the
// server then rolls back.
func (s *session) end() {
	if !s.sound {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // this error has the pool close the connection
	}
	_ = s.conn.Close() // it may be closed already
}

// literal returns a text as a hexadecimal literal of SQL, in which nothing has to be escaped.
func literal(s string) string { return string(appendLiteral(nil, []byte(s))) }

// appendLiteral appends b to a statement, in the form of literal.
func appendLiteral(text, b []byte) []byte {
	if len(b) == 0 {
		return append(text, "''"...)
	}
	text = append(text, "x'"...)
	text = hex.AppendEncode(text, b)
	return append(text, '\'')
}
