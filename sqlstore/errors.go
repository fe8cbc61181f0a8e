package sqlstore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// Numbers of errors, see https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html.
const (
	accessDenied    = 1044
	commandDenied   = 1142
	syntaxError     = 1064
	noTable         = 1146
	lockWaitTimeout = 1205
	deadlock        = 1213
	readOnly        = 1290
	inactive        = 4031 // MySQL's, when wait_timeout is over; MariaDB closes the connection without a word
)

func isNumber(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// isRolledBack reports whether an error says that the transaction is not saved, and may be repeated. A lock
// that was waited for too long leaves the transaction open; its connection is closed then.
func isRolledBack(err error) bool { return isNumber(err, deadlock, lockWaitTimeout, inactive) }

// isGone reports whether an error says that a connection was closed. The pool may have had
// it since before the server was started anew.
func isGone(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
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

// fail is an error as callers get it.
func fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlstore: %w", explain(err))
}
