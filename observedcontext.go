package throttle

import (
	"context"

	"github.com/fleetthrottle/throttle/internal/outage"
)

// An observedContext is the context of a call of the store that has an observer of
// outages. It lies in the caller's acquisition, so that it costs no memory of its own.
type observedContext struct {
	context.Context
	observer outage.Observer
}

// Value implements [context.Context].
func (c *observedContext) Value(key any) any {
	if key == (outage.Key{}) {
		return c.observer
	}
	return c.Context.Value(key)
}
