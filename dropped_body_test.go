package throttle_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
)

// slotTransport returns a transport of a Concurrency limit, and a function that says how many slots are taken.
func slotTransport(t *testing.T, b http.RoundTripper, seen *events, more ...throttle.Policy) (tr *throttle.Transport, taken func() int) {
	t.Helper()
	s := memstore.New()
	policies := append([]throttle.Policy{{Name: "slots", Match: "/", Limit: throttle.Concurrency(2)}}, more...)
	tr = must(throttle.New(throttle.Config{Store: s, Base: b, Policies: policies, Observe: seen.observe}))
	return tr, func() int { return status(t, s, tr, get(t, "http://a.invalid/")).Used }
}

// TestDroppedBody: the slot of an answer whose body the program neither reads to its end nor closes, under a context that
// has no deadline, is given back, and the observer is told once.
func TestDroppedBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}))
	defer server.Close()
	real := &http.Transport{}
	defer real.CloseIdleConnections()
	cancelable, cancel := context.WithCancel(t.Context())
	defer cancel()

	metered := throttle.Policy{Name: "metered", Match: "/", Limit: throttle.PerSecond(100), Meter: func(*http.Response) throttle.Meter { return blindMeter{} }}
	peeked := throttle.Policy{Name: "peeked", Match: "/", Limit: throttle.PerSecond(100), Answer: func(r *http.Response) throttle.Answer {
		feedback.PeekBody(r, 10)
		return feedback.LeaveOpen(r)
	}}
	upgrade := base(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: struct{ io.ReadWriteCloser }{}, Request: r}, nil
	})
	for name, c := range map[string]struct {
		base     http.RoundTripper
		ctx      context.Context
		policies []throttle.Policy
		read     int64
	}{
		"unread":                  {answer(200, "some text"), context.Background(), nil, 0},
		"a server's":              {real, context.Background(), nil, 0},
		"a server's, half read":   {real, context.Background(), nil, 1000},
		"under a long context":    {real, cancelable, nil, 0},
		"metered and looked into": {real, context.Background(), []throttle.Policy{metered, peeked}, 10},
		"an upgraded connection":  {upgrade, context.Background(), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			tr, taken := slotTransport(t, c.base, &seen, c.policies...)
			for range 2 {
				func() {
					req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, server.URL, nil)
					require.NoError(t, err)
					resp, err := (&http.Client{Transport: tr}).Do(req) //nolint:bodyclose // that is what is tested
					require.NoError(t, err)
					_, err = io.CopyN(io.Discard, resp.Body, c.read)
					require.NoError(t, err)
				}()
			}
			require.Eventually(t, func() bool {
				runtime.GC()
				return taken() == 0 && len(seen.only(throttle.EventDropped)) == 2
			}, 10*time.Second, time.Millisecond)
			require.Equal(t, "slots", seen.only(throttle.EventDropped)[0].Policy)
		})
	}
}

// TestBodiesThatAreNotDropped: a body that is over, and one that the program still has, are not told of.
func TestBodiesThatAreNotDropped(t *testing.T) {
	for name, use := range map[string]func(*http.Response, func()){
		"closed":        func(r *http.Response, _ func()) { require.NoError(t, r.Body.Close()) },
		"read":          func(r *http.Response, _ func()) { require.NotEmpty(t, must(io.ReadAll(r.Body))) },
		"context ended": func(_ *http.Response, cancel func()) { cancel() },
	} {
		var seen events
		tr, taken := slotTransport(t, answer(200, "some text"), &seen)
		ctx, cancel := context.WithCancel(t.Context())
		use(must(tr.RoundTrip(get(t, "http://a.invalid/").WithContext(ctx))), cancel)
		require.Eventually(t, func() bool { return taken() == 0 }, 10*time.Second, time.Millisecond, name)
		for range 3 {
			runtime.GC()
		}
		require.Empty(t, seen.only(throttle.EventDropped), name)
		cancel()
	}

	var seen events
	tr, taken := slotTransport(t, answer(200, strings.Repeat("x", 100)), &seen)
	kept := must(tr.RoundTrip(get(t, "http://a.invalid/").WithContext(context.Background())))
	for range 3 {
		runtime.GC()
	}
	require.Equal(t, 1, taken())
	require.Len(t, must(io.ReadAll(kept.Body)), 100)
	require.Zero(t, taken())
	require.Empty(t, seen.only(throttle.EventDropped))
}

// A blindMeter learns nothing.
type blindMeter struct{}

func (blindMeter) Write(p []byte) (int, error) { return len(p), nil }
func (blindMeter) Cost() int                   { return -1 }
