package throttle

import (
	"context"
	"errors"
)

// away returns what a store is to tell while it does not answer; nil if nobody
// wants to know. An outage makes one event.
func (h *hold) away(ctx context.Context) func(error) {
	if h.observe == nil {
		return nil
	}
	return func(err error) {
		if !h.outage {
			h.outage = true
			h.event(ctx, StoreFailed, h.waited(), &StoreError{err})
		}
	}
}

// failure is the error of a caller whom the store could not answer. One that has
// left learns what kept it, if the store knows more than that it has left.
func (h *hold) failure(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return &StoreError{err}
	}
	e := h.left(ctx)
	if !errors.Is(e.cause, err) && !errors.Is(e.err, err) {
		e.store = &StoreError{err}
	}
	return e
}
