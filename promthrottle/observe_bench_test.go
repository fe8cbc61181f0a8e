package promthrottle_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/promthrottle"
)

// An empty base answers at once, with nothing.
type empty struct{}

func (empty) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// BenchmarkObserve is a request through a Transport, with and without metrics.
func BenchmarkObserve(b *testing.B) {
	policies := []throttle.Policy{{Name: "a", Limit: throttle.PerSecond(1_000_000_000), Jitter: -1}}
	m := promthrottle.New(policies)
	for name, observe := range map[string]func(context.Context, throttle.Event){"without": nil, "with": m.Observe} {
		b.Run(name, func(b *testing.B) {
			t := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, Base: empty{}, Observe: observe}))
			req, _ := http.NewRequest(http.MethodGet, "https://example.com/", nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.RoundTrip(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
