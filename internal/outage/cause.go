package outage

import "errors"

// A Cause is the kind of reason why a store does not do what it is asked.
type Cause uint8

// The causes.
const (
	Away   Cause = iota // the store does not answer, or will be ready later
	Denied              // the program may not: it has not the right, or not the password
	Failed              // the store answers that it cannot, and asking again does not help
)

// String returns the cause's name.
func (c Cause) String() string { return [...]string{"away", "denied", "failed"}[c] }

// Because returns an error of a store with its cause.
func Because(c Cause, err error) error { return &because{err, c} }

// CauseOf returns the cause of a store's error. Of an error without one it is [Away].
func CauseOf(err error) Cause {
	if b, ok := errors.AsType[*because](err); ok {
		return b.cause
	}
	return Away
}

// A because is an error with its cause.
type because struct {
	error
	cause Cause
}

// Unwrap returns the error without the cause.
func (b *because) Unwrap() error { return b.error }
