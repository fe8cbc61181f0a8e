package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A trip remembers what became of the requests of one task: when they started,
// for an upstream that does not count arrivals for us, and what the answers were
// that the caller never saw, because they were asked for again. It travels in the
// requests' context.
type trip struct {
	mu       sync.Mutex
	path     string // of the request under way
	starts   []start
	refusals []string // the codes of answers that said no
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

// sends notes which request comes next.
func (t *trip) sends(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.path = path
}

// observe notes starts.
func observe(ctx context.Context, e throttle.Event) {
	if e.Kind != throttle.Started {
		return
	}
	t := tripOf(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starts = append(t.starts, start{t.path, time.Now()})
}

// A tripObserver sees every answer of its base, whether it is asked for again or not.
type tripObserver struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w tripObserver) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(r)
	if err == nil {
		tripOf(r.Context()).saw(resp)
	}
	return resp, err
}

// saw notes the code of an answer that says no.
func (t *trip) saw(resp *http.Response) {
	body, err := throttle.PeekBody(resp, 4096)
	if err != nil {
		return // the body's reader gets the error too
	}
	if code := refusal(resp.StatusCode, body); code != "" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.refusals = append(t.refusals, code)
	}
}
