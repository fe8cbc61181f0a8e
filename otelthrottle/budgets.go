package otelthrottle

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/telemetry"
)

// askTime is how long the store may take to say what all budgets are like.
const askTime = 2 * time.Second

// budgets are what is told of budgets, and whom to ask.
type budgets struct {
	all telemetry.Budgets

	limit, used, ceiling metric.Float64ObservableGauge
	waiting              metric.Int64ObservableUpDownCounter
	paused               metric.Float64ObservableGauge
}

// Budgets tells what the budgets of a transport's policies are like: of those without a Key,
// because keys are no attributes. Each collection asks the store once for each of them, so let
// few programs of a fleet have it. It is of the policies as they are now; the registration ends
// it. While the store is away a collection has an error, and no values.
func Budgets(p metric.MeterProvider, t *throttle.Transport, policies []throttle.Policy) (metric.Registration, error) {
	b := &budgets{all: telemetry.BudgetsOf(t, policies)}
	m := p.Meter(scope)
	var errs [5]error
	b.limit, errs[0] = m.Float64ObservableGauge("throttle.budget.limit", metric.WithUnit("{request}"),
		metric.WithDescription("How much the limit allows: in a window, in flight, or in a burst."))
	b.used, errs[1] = m.Float64ObservableGauge("throttle.budget.usage", metric.WithUnit("{request}"),
		metric.WithDescription("How much of the limit the fleet uses now."))
	b.ceiling, errs[2] = m.Float64ObservableGauge("throttle.budget.ceiling", metric.WithUnit("{request}"),
		metric.WithDescription("How much of the limit the fleet has learned to use, 0 if the limit alone counts."))
	b.waiting, errs[3] = m.Int64ObservableUpDownCounter("throttle.queued_requests", metric.WithUnit("{request}"),
		metric.WithDescription("How many requests of the fleet wait for this budget."))
	b.paused, errs[4] = m.Float64ObservableGauge("throttle.penalty.remaining", metric.WithUnit("s"),
		metric.WithDescription("For how long the budget is still closed, by a penalty or by hand."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return m.RegisterCallback(b.observe, b.limit, b.used, b.ceiling, b.waiting, b.paused)
}

// observe asks the store.
func (b *budgets) observe(ctx context.Context, to metric.Observer) error {
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	return b.all.Ask(ctx, func(policy string, st throttle.Status) { b.tell(to, policy, st) })
}

// tell tells what one budget is like.
func (b *budgets) tell(to metric.Observer, policy string, st throttle.Status) {
	of := metric.WithAttributes(policyKey.String(policy))
	if st.Limit.Kind() != throttle.KindUnlimited {
		to.ObserveFloat64(b.limit, float64(st.Limit.Capacity()), of)
		to.ObserveFloat64(b.used, float64(st.Used), of)
		to.ObserveFloat64(b.ceiling, st.Ceiling, of)
	}
	to.ObserveInt64(b.waiting, int64(st.Waiting), of)
	to.ObserveFloat64(b.paused, st.Paused.Seconds(), of)
}
