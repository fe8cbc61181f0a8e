// Package otelthrottle tells OpenTelemetry what throttle does, in metrics modelled on
// aspnetcore.rate_limiting.*, the only ones for rate limits that are a convention, and in spans
// of requests that were held:
//
//	o, err := otelthrottle.New(otelthrottle.Config{
//		MeterProvider: meters, TracerProvider: tracers, Policies: policies,
//	})
//	transport, err := throttle.New(throttle.Config{
//		Store: store, Policies: policies, Observe: o.Observe,
//		Base: otelhttp.NewTransport(http.DefaultTransport),
//	})
//
// otelhttp goes inside, as the Base: then http.client.request.duration is the upstream's own
// time, and the wait is throttle's. Attributes are the names of policies and a few fixed words,
// never keys, hosts or paths, so the number of series is bounded by the table. docs/metrics.md
// lists them.
package otelthrottle
