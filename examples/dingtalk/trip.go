package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A trip is what one task sees of the throttle: whether its request is held,
// and when it started. It travels in the request's context.
type trip struct {
	held    *atomic.Int64 // how many requests of the node are held
	waiting atomic.Bool
	started atomic.Pointer[time.Time]
	starts  []start
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

// observe follows a request through the throttle. A request may be held more
// than once.
func observe(ctx context.Context, e throttle.Event) {
	t := tripOf(ctx)
	switch e.Kind {
	case throttle.Waiting:
		if t.held != nil && t.waiting.CompareAndSwap(false, true) {
			t.held.Add(1)
		}
	case throttle.Started:
		now := time.Now()
		t.started.Store(&now)
		t.free()
	case throttle.Refused, throttle.GaveUp:
		t.free()
	}
}

// free takes the request out of those that are held.
func (t *trip) free() {
	if t.waiting.CompareAndSwap(true, false) {
		t.held.Add(-1)
	}
}

// arrived notes the request that was answered just now.
func (t *trip) arrived(path string) {
	if at := t.started.Swap(nil); at != nil {
		t.starts = append(t.starts, start{path, *at})
	}
}
