// Package outage lets a store say why it does not answer while a caller waits for it.
package outage

import (
	"context"
	"errors"
)

// An Observer is told why a store does not answer a call: as soon as an attempt has failed, or
// has not been answered for a second, but not for every attempt. StoreAway is called
// before the call of the store returns, by one goroutine at a time.
type Observer interface{ StoreAway(error) }

// A Func is a function that observes.
type Func func(error)

// StoreAway implements [Observer].
func (f Func) StoreAway(err error) { f(err) }

// Key is the context key of an [Observer]. It is exported for types of contexts whose method
// Value returns an Observer of their own.
type Key struct{}

// WithObserver returns a context for a call of a store. If the store does not answer, it calls
// f with the reason.
func WithObserver(ctx context.Context, f func(error)) context.Context {
	return context.WithValue(ctx, Key{}, Func(f))
}

// From returns the observer in a context, or nil.
func From(ctx context.Context) Observer {
	o, _ := ctx.Value(Key{}).(Observer)
	return o
}

// A Cause says why a store failed.
type Cause uint8

// The causes.
const (
	Away   Cause = iota // the store does not answer, or will be ready later
	Denied              // the program lacks a right, or its password is wrong
	Failed              // the store answers that it cannot, and asking again does not help
)

// String returns the cause's name.
func (c Cause) String() string { return [...]string{"away", "denied", "failed"}[c] }

// Because returns an error of a store with its cause.
func Because(c Cause, err error) error { return &because{err, c} }

// CauseOf returns the cause of a store's error, and [Away] for an error without a cause.
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

// A Question asks a store that did not answer whether it does now. Equal Questions ask the same store.
type Question interface {
	// Ask returns why the store still does not answer, or nil if it answers. It waits for the
	// store as long as ctx allows.
	Ask(ctx context.Context) error
}

// questionKey is the context key of a [Question].
type questionKey struct{}

// WithQuestion returns the context of an event that says that a store did not answer. An observer
// finds q in the context by QuestionOf, and asks whether the store answers again.
func WithQuestion(ctx context.Context, q Question) context.Context {
	return context.WithValue(ctx, questionKey{}, q)
}

// QuestionOf returns the question in the context of an event, or nil.
func QuestionOf(ctx context.Context) Question {
	q, _ := ctx.Value(questionKey{}).(Question)
	return q
}
