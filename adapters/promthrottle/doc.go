// Package promthrottle tells Prometheus what throttle does:
//
//	metrics := promthrottle.New()
//	transport, err := throttle.New(throttle.Config{
//		Store: store, Policies: policies, Observe: metrics.Observe,
//	})
//	metrics.Follow(transport)
//	prometheus.MustRegister(metrics, promthrottle.Budgets(transport))
//
// Labels are the names of policies and a few fixed words, never keys, hosts or paths, so
// the number of series is bounded by the table. All series exist from the start, with 0, so
// that rate() sees the first event. The page on [metrics] lists them, with alerts.
//
// [metrics]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/metrics.md
package promthrottle
