// Package outage lets a store say why it does not answer while a caller waits for it.
package outage

import "context"

type observerKey struct{}

// WithObserver returns a context for a call of a store, which tells f why it does not
// answer: as soon as something has failed, or has not been answered for a second, and
// not for every attempt. F is called before the call of the store returns, by one
// goroutine at a time.
func WithObserver(ctx context.Context, f func(error)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// Observer returns the function of WithObserver; nil if there is none.
func Observer(ctx context.Context) func(error) {
	f, _ := ctx.Value(observerKey{}).(func(error))
	return f
}
