package fleet

import (
	"context"
	"errors"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// An Error says that Redis could not be asked, or what it said in place of an answer.
type Error struct{ Err error }

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error of the client, or of the store.
func (e *Error) Unwrap() error { return e.Err }

// failure is the error of a store that was asked; nil stays nil.
func failure(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// Denied reports whether an error says that the user of Redis may not do what was asked.
func Denied(err error) bool { return conn.Denied(err) }

// away reports whether an error is about all budgets and not one.
func away(err error) bool {
	return conn.Transient(err) || Denied(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
