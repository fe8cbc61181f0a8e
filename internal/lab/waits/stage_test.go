package waits

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

const (
	ms   = time.Millisecond
	home = "http://api.example.com/"
)

// must is for what cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A stage is where visits happen.
type stage struct {
	t     *testing.T
	begin time.Time
}

func newStage(t *testing.T) stage { return stage{t, time.Now()} }

func (s stage) now() time.Duration { return time.Since(s.begin) }

// at calls f at a time of the scenario.
func (s stage) at(d time.Duration, f func()) { time.AfterFunc(d-s.now(), f) }

// An ask lets a visit wait for its start, and notes it.
type ask func(context.Context, *visit) error

// play lets each visit come at its time, and returns when all have started or
// left. At the end those that still wait leave.
func (s stage) play(visits []visit, end time.Duration, ask ask) {
	ctx, over := context.WithCancel(s.t.Context())
	defer over()
	defer time.AfterFunc(end-s.now(), over).Stop()
	var waiting sync.WaitGroup
	for i := range visits {
		v := &visits[i]
		if d := v.came - s.now(); d > 0 {
			time.Sleep(d)
		}
		waiting.Go(func() {
			v.came = s.now()
			v.err = s.let(ctx, v, ask)
		})
	}
	waiting.Wait()
	for i := range visits {
		require.NoError(s.t, visits[i].unexpected())
	}
}

// let lets one visit wait, at most for its maxWait. If the limiter knows how
// long that is, it refuses at once what it cannot serve in time.
func (s stage) let(ctx context.Context, v *visit, ask ask) error {
	switch {
	case v.maxWait > 0 && v.says:
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, v.maxWait)
		defer leave()
	case v.maxWait > 0:
		var leave context.CancelFunc
		ctx, leave = context.WithCancel(ctx)
		defer leave()
		defer time.AfterFunc(v.maxWait, leave).Stop()
	}
	return ask(ctx, v)
}

// kept fails if more than n visits started in an interval of a length. Short waits
// are worth nothing if the limit is passed.
func (s stage) kept(visits []visit, n int, per time.Duration) {
	require.LessOrEqual(s.t, worst(visits, per), n)
}

// unexpected returns an error that is not the visit's own will, nor a refusal.
func (v *visit) unexpected() error {
	for _, own := range []error{context.Canceled, context.DeadlineExceeded, throttle.ErrLimited} {
		if errors.Is(v.err, own) {
			return nil
		}
	}
	return v.err
}

// refused counts the visits that were refused.
func refused(visits []visit) (n int) {
	for i := range visits {
		if errors.Is(visits[i].err, throttle.ErrLimited) {
			n++
		}
	}
	return n
}

// limiter asks a Limiter.
func (s stage) limiter(l *throttle.Limiter) ask {
	return func(ctx context.Context, v *visit) error {
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", v.cost())
		if err == nil {
			v.start = s.now()
		}
		return err
	}
}

// newLimiter returns a limiter for one limit.
func newLimiter(store store.Store, l store.Limit) *throttle.Limiter {
	return must(throttle.NewLimiter(store, throttle.Policy{Name: "api", Limit: l}))
}

// visitKey is the context key of a request's visit.
type visitKey struct{}

// transport sends a request for each visit; paths has one for each api.
func (s stage) transport(t *throttle.Transport, paths ...string) ask {
	return func(ctx context.Context, v *visit) error {
		url := home
		if len(paths) > 0 {
			url += paths[v.api]
		}
		r := must(http.NewRequestWithContext(context.WithValue(ctx, visitKey{}, v), http.MethodGet, url, nil))
		resp, err := t.RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
}

// An upstream is a base that answers everything.
type upstream struct {
	stage
	dial   func() time.Duration // how long a connection takes; nil: it does not tell of connections
	answer time.Duration        // how long an answer takes
}

// RoundTrip notes when the request is written.
func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	trace := httptrace.ContextClientTrace(ctx)
	if u.dial != nil && trace != nil {
		if err := pass(ctx, u.dial()); err != nil {
			return nil, err
		}
		trace.GotConn(httptrace.GotConnInfo{})
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		trace.WroteHeaders()
	}
	ctx.Value(visitKey{}).(*visit).start = u.now()
	if err := pass(ctx, u.answer); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// pass lets time pass.
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newTransport returns a transport whose base is u.
func newTransport(u upstream, store store.Store, policies ...throttle.Policy) *throttle.Transport {
	return throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: policies}))
}
