package sqlstore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

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

// isRefusal reports whether the same statement will be refused again, until somebody changes a login (class 28), a statement, a right or a
// table (42). A server that is away, starts, has no connection left, or is not the primary yet may accept the statement later.
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

// fail returns an error as a store returns it. Callers wait for trouble that will pass, and are told at once of every refusal.
func fail(err error) error {
	switch {
	case err == nil, errors.As(err, new(*store.OptionError)):
		return err
	case isRefusal(err):
		return fmt.Errorf("sqlstore: %w", explain(err))
	}
	return fmt.Errorf("sqlstore: %w: %w", rowstore.ErrAway, explain(err))
}
