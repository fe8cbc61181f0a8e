package otelthrottle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/fleetthrottle/throttle/adapters/otelthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/hotpath"
)

// BenchmarkObserve is what metrics add to a request that nothing holds.
func BenchmarkObserve(b *testing.B) {
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	o, err := otelthrottle.New(otelthrottle.Config{MeterProvider: meters})
	require.NoError(b, err)
	hotpath.Benchmark(b, o.Observe)
}
