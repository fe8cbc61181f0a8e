package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A trip remembers when the requests of one task started, for an upstream that
// does not count arrivals for us. It travels in the requests' context.
type trip struct {
	started atomic.Pointer[time.Time] // the request under way
	starts  []start                   // the requests that were answered
}

type tripKey struct{}

func withTrip(ctx context.Context, t *trip) context.Context {
	return context.WithValue(ctx, tripKey{}, t)
}

// tripOf returns the context's trip, or one that nobody looks at.
func tripOf(ctx context.Context) *trip {
	if t, ok := ctx.Value(tripKey{}).(*trip); ok {
		return t
	}
	return new(trip)
}

// observe notes starts. Of several, when a connection broke, the last counts.
func observe(ctx context.Context, e throttle.Event) {
	if e.Kind == throttle.Started {
		now := time.Now()
		tripOf(ctx).started.Store(&now)
	}
}

// answered notes the request that was answered just now.
func (t *trip) answered(path string) {
	if at := t.started.Swap(nil); at != nil {
		t.starts = append(t.starts, start{path, *at})
	}
}
