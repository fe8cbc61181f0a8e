// Package promthrottle tells Prometheus what throttle does:
//
//	metrics := promthrottle.New(policies)
//	prometheus.MustRegister(metrics)
//	transport, err := throttle.New(throttle.Config{
//		Store: store, Policies: policies, Observe: metrics.Observe,
//	})
//	prometheus.MustRegister(promthrottle.Budgets(transport))
//
// Labels are the names of policies and a few fixed words, never keys, hosts or paths, so
// the number of series is bounded by the table. All series exist from the start, with 0, so
// that rate() sees the first event. docs/metrics.md lists them, with alerts.
package promthrottle
