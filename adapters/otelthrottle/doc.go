// Package otelthrottle reports throttle's events to OpenTelemetry: as metrics modelled on
// aspnetcore.rate_limiting.*, the only convention for rate limits, and as spans of requests that
// waited:
//
//	o, err := otelthrottle.New(otelthrottle.Config{})
//	transport, err := throttle.New(throttle.Config{
//		Store: store, Policies: policies, Observe: o.Observe,
//		Base: otelhttp.NewTransport(http.DefaultTransport),
//	})
//	o.Follow(transport)
//
// It uses the global providers of package otel unless [Config] names others.
//
// otelhttp goes inside, as the Base: then http.client.request.duration is the upstream's own
// time, and the wait is throttle's. Attributes are the names of policies and a few fixed words,
// never keys, hosts or paths, so the number of series is bounded by the table. The page on
// [metrics] lists them.
//
// [metrics]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/metrics.md#opentelemetry
package otelthrottle
