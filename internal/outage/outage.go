// Package outage lets a store say why it does not answer while a caller waits for it.
package outage

import "context"

// An Observer is told why a store does not answer: as soon as something has failed, or
// has not been answered for a second, and not for every attempt. StoreAway is called
// before the call of the store returns, by one goroutine at a time.
type Observer interface{ StoreAway(error) }

// A Func is a function that observes.
type Func func(error)

// StoreAway implements [Observer].
func (f Func) StoreAway(err error) { f(err) }

// Key is the context key of an [Observer]. A context with a Value of its own for it
// needs no other context around it.
type Key struct{}

// WithObserver returns a context for a call of a store, which tells f why it does not
// answer.
func WithObserver(ctx context.Context, f func(error)) context.Context {
	return context.WithValue(ctx, Key{}, Func(f))
}

// From returns the observer in a context; nil if there is none.
func From(ctx context.Context) Observer {
	o, _ := ctx.Value(Key{}).(Observer)
	return o
}
