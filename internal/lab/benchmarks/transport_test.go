package benchmarks

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// BenchmarkTransport is what a request pays on top of its base. The base does
// nothing, so its ratio is the worst there can be: look at the difference, and at the
// ratio to x/time/rate's Wait, which a base would call that waits by itself.
func BenchmarkTransport(b *testing.B) {
	limit := throttle.PerSecond(plenty)
	app := throttle.Policy{Name: "app", Match: "api.example.com/", Limit: limit, Key: throttle.Header("X-App")}
	all := throttle.Policy{Name: "all", Match: "*.example.com/", Limit: limit}
	call := throttle.Policy{
		Name: "call", Match: "GET api.example.com/v1/{what...}", Limit: limit,
		Key: throttle.Join(throttle.Header("X-App"), throttle.RawPath),
	}
	for _, shape := range []struct {
		name     string
		policies []throttle.Policy
		url      string
		charges  int
	}{
		{"nothing-matches", []throttle.Policy{all, app, call}, "https://elsewhere.org/v1/users", 0},
		{"1-policy", []throttle.Policy{all}, "https://api.example.com/v1/users", 1},
		{"3-policies", []throttle.Policy{all, app, call}, "https://api.example.com/v1/users", 3},
	} {
		b.Run(shape.name, func(b *testing.B) {
			base := new(idleBase)
			t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: shape.policies, Base: base})
			require.NoError(b, err)
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, shape.url, nil)
			require.NoError(b, err)
			req.Header.Set("X-App", "app-1")
			require.Len(b, t.Explain(req), shape.charges, "premise: so many policies match")
			wait := locals[0].open()
			sent := 0
			send := func(t http.RoundTripper) func(int) error {
				return func(calls int) error {
					sent += calls
					return together(1, calls, func(int) error { return send(t, req) })
				}
			}
			race(b, localCalls,
				contestant{name: "throttle", run: send(t)},
				contestant{name: "bare", run: send(base)},
				contestant{name: "xtime", run: func(calls int) error {
					return together(1, calls, func(int) error { return wait(b.Context()) })
				}})
			require.Equal(b, sent, base.requests, "premise: every request arrived")
		})
	}
}

func send(t http.RoundTripper, req *http.Request) error {
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// An idleBase answers at once with nothing.
type idleBase struct{ requests int }

func (t *idleBase) RoundTrip(req *http.Request) (*http.Response, error) {
	t.requests++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}
