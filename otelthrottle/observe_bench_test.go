package otelthrottle_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/otelthrottle"
)

// An empty base answers at once, with nothing.
type empty struct{}

func (empty) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// BenchmarkObserve is a request through a Transport, with and without metrics.
func BenchmarkObserve(b *testing.B) {
	policies := []throttle.Policy{{Name: "a", Limit: throttle.PerSecond(1_000_000_000), Jitter: -1}}
	o, err := otelthrottle.New(otelthrottle.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), Policies: policies})
	require.NoError(b, err)
	for name, observe := range map[string]func(context.Context, throttle.Event){"without": nil, "with": o.Observe} {
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
