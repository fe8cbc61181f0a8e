package throttle

import (
	"context"
	"errors"
)

// away returns what a store is to tell while it does not answer; nil if nobody
// wants to know. An outage makes one event.
func (a *acquisition) outageObserver(ctx context.Context) func(error) {
	if a.observe == nil {
		return nil
	}
	return func(err error) {
		if !a.outageReported {
			a.outageReported = true
			a.report(ctx, StoreFailed, a.waited(), &StoreError{err})
		}
	}
}

// failure is the error of a caller whom the store could not answer. One that has
// left learns what kept it, if the store knows more than that it has left.
func (a *acquisition) storeFailure(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return &StoreError{err}
	}
	e := a.gaveUp(ctx)
	if !errors.Is(e.cause, err) && !errors.Is(e.err, err) {
		e.store = &StoreError{err}
	}
	return e
}
