package otelthrottle

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/fleetthrottle/throttle/adapters/telemetry"
)

// A Source has a table of policies, and knows what their budgets are like: a
// Transport or Limiters of package throttle.
type Source = telemetry.Source

// budgets are the instruments for the state of budgets, and the sources to read it from.
type budgets struct {
	sources []Source

	limit, used, ceiling metric.Float64ObservableGauge
	known, up            metric.Int64ObservableGauge
	booked, waiting      metric.Int64ObservableUpDownCounter
	callers              metric.Int64ObservableUpDownCounter
	shareWaiting         metric.Int64ObservableUpDownCounter
	shareServed          metric.Int64ObservableGauge
	paused, told         metric.Float64ObservableGauge
}

// Budgets registers instruments for the state of the budgets of all policies of the sources. A
// policy with a Key has a budget for each key. Keys are no attributes: the 16 budgets that the
// program used last are read and reported together. Each collection asks the store once for each
// budget, so register Budgets in few programs of a fleet. It follows SetPolicies, until Unregister of the
// registration. One registration serves all transports and limiters of a program. A nil
// provider means the global provider of package otel.
//
// For a policy with a Share it reports the waiting shares: the 16 with the most waiters by their
// hashed names, as "throttle explain" prints them, and the rest together as "other". Callers
// without a share are "none", and shares beyond the number that a budget distinguishes are
// "common".
func Budgets(p metric.MeterProvider, sources ...Source) (metric.Registration, error) {
	b := &budgets{sources: sources}
	m := meterOf(p)
	var errs [12]error
	b.limit, errs[0] = m.Float64ObservableGauge("throttle.budget.limit", metric.WithUnit("{request}"),
		metric.WithDescription("The limit of the fullest budget: in a window, in flight, or in a burst; absent without a number: for Unlimited, and for Told until an answer tells one."))
	b.used, errs[1] = m.Float64ObservableGauge("throttle.budget.usage", metric.WithUnit("{request}"),
		metric.WithDescription("How much of the limit of the fullest budget the fleet uses now; absent without a number: for Unlimited, and for Told until an answer tells one."))
	b.ceiling, errs[2] = m.Float64ObservableGauge("throttle.budget.ceiling", metric.WithUnit("{request}"),
		metric.WithDescription("The part of the limit that the fleet has learned to use; the lowest; 0 if the limit alone counts; absent without a number."))
	b.waiting, errs[3] = m.Int64ObservableUpDownCounter("throttle.queued_requests", metric.WithUnit("{request}"),
		metric.WithDescription("The cost of the waiting requests of the fleet, with a booked start or in line, of all budgets together."))
	b.paused, errs[4] = m.Float64ObservableGauge("throttle.penalty.remaining", metric.WithUnit("s"),
		metric.WithDescription("How long until the budget opens, after a penalty or a pause; the longest."))
	b.known, errs[5] = m.Int64ObservableGauge("throttle.budget.count", metric.WithUnit("{budget}"),
		metric.WithDescription("How many budgets were read; of a policy with a Key those that callers of this program used: 16 means 16 or more."))
	b.up, errs[6] = m.Int64ObservableGauge("throttle.store.up", metric.WithUnit("1"),
		metric.WithDescription("1 if the store answered all calls within half a second, and no caller waits for its answer; otherwise 0."))
	b.booked, errs[7] = m.Int64ObservableUpDownCounter("throttle.budget.booked", metric.WithUnit("{request}"),
		metric.WithDescription("The cost of starts that are booked for later, of all budgets together; not yet in the used part."))
	b.shareWaiting, errs[8] = m.Int64ObservableUpDownCounter("throttle.share.queued_requests", metric.WithUnit("{request}"),
		metric.WithDescription("The cost of the requests of a share that wait in line; of the 16 shares that wait most, and of all others as \"other\"."))
	b.shareServed, errs[9] = m.Int64ObservableGauge("throttle.share.served_requests", metric.WithUnit("{request}"),
		metric.WithDescription("The cost of the starts of a share since its callers began to wait; 0 again when none of them waits; absent if the store does not know it."))
	b.callers, errs[10] = m.Int64ObservableUpDownCounter("throttle.waiting_callers", metric.WithUnit("{caller}"),
		metric.WithDescription("The number of callers of the fleet in line, without a booked start, whatever their cost, of all budgets together."))
	b.told, errs[11] = m.Float64ObservableGauge("throttle.budget.told", metric.WithUnit("s"),
		metric.WithDescription("How long ago an answer told the limit of the fullest budget; absent if answers do not tell it."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}

	return m.RegisterCallback(b.observe, b.limit, b.used, b.ceiling, b.booked, b.waiting, b.callers, b.paused, b.told, b.known, b.up, b.shareWaiting, b.shareServed)
}

// observe asks the stores and reports the budgets of all policies. It returns no error: if a store does not answer, it reports up as 0.
func (b *budgets) observe(ctx context.Context, to metric.Observer) error {
	all, err := telemetry.Summaries(ctx, b.sources...)
	for policy, s := range all {
		b.tell(to, policy, s)
	}
	up := int64(1)
	if err != nil {
		up = 0
	}
	to.ObserveInt64(b.up, up)
	return nil
}

// tell reports the state of one policy's budgets.
func (b *budgets) tell(to metric.Observer, policy string, s *telemetry.Summary) {
	of := metric.WithAttributes(policyKey.String(policy))

	// Unlimited, and Told until an answer tells a limit, have no number: report no limit, and nothing that is measured against it.
	if s.Limit.N() > 0 {
		to.ObserveFloat64(b.limit, float64(s.Limit.Capacity()), of)
		to.ObserveFloat64(b.used, float64(s.Used), of)
		to.ObserveFloat64(b.ceiling, s.Ceiling, of)
	}

	to.ObserveInt64(b.known, int64(s.Budgets), of)
	to.ObserveInt64(b.booked, int64(s.Booked), of)
	to.ObserveInt64(b.waiting, int64(s.Waiting), of)
	to.ObserveInt64(b.callers, int64(s.Callers), of)
	to.ObserveFloat64(b.paused, s.Paused.Seconds(), of)
	if s.Told {
		to.ObserveFloat64(b.told, s.ToldAgo.Seconds(), of)
	}

	for _, l := range s.Shares {
		share := metric.WithAttributes(policyKey.String(policy), shareKey.String(l.Name))
		to.ObserveInt64(b.shareWaiting, int64(l.Waiting), share)

		// Below 0 the store does not know the number.
		if l.Served >= 0 {
			to.ObserveInt64(b.shareServed, int64(l.Served), share)
		}
	}
}
