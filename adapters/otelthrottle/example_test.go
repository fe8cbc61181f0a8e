package otelthrottle_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/otelthrottle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A transport that tells OpenTelemetry of waits, with otelhttp inside.
func Example() {
	reader := metric.NewManualReader() // of a program: an exporter
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	tracers := trace.NewTracerProvider()
	policies := []throttle.Policy{{Name: "orders", Match: "api.example.com/", Limit: throttle.PerSecond(40)}}

	o, err := otelthrottle.New(otelthrottle.Config{MeterProvider: meters, TracerProvider: tracers})
	if err != nil {
		log.Fatal(err)
	}
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: policies, Observe: o.Observe,
		Base: otelhttp.NewTransport(fake{}, otelhttp.WithMeterProvider(meters), otelhttp.WithTracerProvider(tracers)),
	}))
	o.Follow(transport)

	resp, err := (&http.Client{Transport: transport}).Get("https://api.example.com/orders")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			fmt.Println(m.Name)
		}
	}
	// Unordered output:
	// throttle.requests
	// throttle.request.time_in_queue
	// throttle.events
	// throttle.penalties
	// throttle.store.failures
	// throttle.store.away
	// http.client.request.body.size
	// http.client.request.duration
}

func request() *http.Request {
	req, _ := http.NewRequest(http.MethodGet, "https://example.com/", nil)
	return req
}
