package throttle_test

import (
	"context"
	"errors"

	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A secretPanic is what careless functions panic with.
type secretPanic struct{ token string }

func (p secretPanic) Error() string { return p.token }

func panicKey(*http.Request) string { panic(secretPanic{secretToken}) }
func panicCost(*http.Request) int   { panic(secretToken) }

// oneInFlight is a policy whose budget shows what was left behind.
var oneInFlight = throttle.Policy{Name: "flight", Limit: throttle.Concurrency(1)}

// TestP6_AFunctionThatPanicsRefusesTheRequest books nothing, closes the body, and
// says where, but not with what.
func TestP6_AFunctionThatPanicsRefusesTheRequest(t *testing.T) {
	var none []int
	for _, c := range []struct {
		name string
		bad  throttle.Policy
		want string
	}{
		{"key", throttle.Policy{Key: panicKey}, "Key: panicked with a throttle_test.secretPanic at panic_test.go:24"},
		{"cost", throttle.Policy{Cost: panicCost}, "Cost: panicked with a string at panic_test.go:25"},
		{"runtime error", throttle.Policy{Cost: func(*http.Request) int { return none[3] }},
			"Cost: panicked with a runtime.boundsError at panic_test.go:41"},
		{"nil", throttle.Policy{Key: func(*http.Request) string { panic(nil) }},
			"Key: panicked with a *runtime.PanicNilError at panic_test.go:43"},
		{"negative cost", throttle.Policy{Cost: func(*http.Request) int { return -7 }}, "Cost: returned -7: return 0 or more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.bad.Name, c.bad.Limit = "bad", throttle.PerHour(1)
			seen, store := &events{}, newSpy()
			tr := must(throttle.New(throttle.Config{Store: store, Observe: seen.observe,
				Base: base(func(*http.Request) (*http.Response, error) {
					t.Error("sent")
					return nil, errors.New("sent")
				}), Policies: []throttle.Policy{oneInFlight, c.bad}}))
			body := &responseBody{t: t}
			r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, body))
			_, err := tr.RoundTrip(r)

			var wrong *throttle.ConfigError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, "bad", wrong.Policy)
			require.EqualError(t, err, `throttle: policy "bad": `+c.want)
			require.NotErrorIs(t, err, throttle.ErrLimited)
			require.EqualValues(t, 1, body.closed.Load())
			require.Empty(t, store.booked())
			require.Equal(t, []throttle.EventKind{throttle.Refused}, seen.kinds())
			require.Equal(t, "bad", seen.all[0].Policy)

			require.Len(t, tr.Explain(r), 1, "what has a price is explained")
			var told recording
			told.see(err, seen.all[0])
			require.NotContains(t, told.String(), secretToken)
		})
	}
}

// TestP13_AFunctionMayAbortItsHandler lets the panic pass that net/http knows.
func TestP13_AFunctionMayAbortItsHandler(t *testing.T) {
	tr := newTransport(t, answer(200, ""), oneInFlight, throttle.Policy{Name: "bad", Limit: throttle.PerHour(1),
		Key: func(*http.Request) string { panic(http.ErrAbortHandler) }})
	body := &responseBody{t: t}
	r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, body))
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = tr.RoundTrip(r) })
	require.EqualValues(t, 1, body.closed.Load())
}

// TestP13_ABaseThatPanicsLeavesNothingInFlight: its panic is not ours.
func TestP13_ABaseThatPanicsLeavesNothingInFlight(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, "base"} {
		store := memstore.New()
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{oneInFlight},
			Base: base(func(*http.Request) (*http.Response, error) { panic(value) })}))
		require.PanicsWithValue(t, value, func() { _, _ = tr.RoundTrip(get(t, home)) })
		require.Zero(t, status(t, store, tr, get(t, home)).Used)
	}
}

// TestP15_AnObserverThatPanics changes nothing, whatever it is told of, and hears
// of it if it listens.
func TestP15_AnObserverThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, heard := memstore.New(), &events{}
		tr := must(throttle.New(throttle.Config{Store: store,
			Base: answer(429, "", "Retry-After", "1"), Policies: []throttle.Policy{oneInFlight, onePerHour},
			Observe: func(ctx context.Context, e throttle.Event) {
				if e.Kind != throttle.FunctionFailed {
					panic(secretToken)
				}
				heard.observe(ctx, e)
				panic("again")
			}}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Zero(t, status(t, store, tr, get(t, home)).Used)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		r := must(http.NewRequestWithContext(ctx, http.MethodGet, home, nil))
		require.ErrorIs(t, send(t, tr, r), throttle.ErrLimited)

		require.Len(t, heard.all, 4) // Started, twice Penalized, Refused
		for _, e := range heard.all {
			require.ErrorContains(t, e.Err, "Observe: panicked with a string at panic_test.go:")
			require.Equal(t, 1, strings.Count(e.Err.Error(), "throttle: "))
		}
	})
}
