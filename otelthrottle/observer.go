package otelthrottle

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/telemetry"
)

// scope names this package to providers.
const scope = "github.com/fleetthrottle/throttle/otelthrottle"

// Other is throttle.policy of policies that are not in the table.
const Other = telemetry.Other

// Config is what [New] needs. Global providers are never used.
type Config struct {
	// MeterProvider makes the metrics. Defaults to nil: there are none.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. Defaults to nil: there are none.
	TracerProvider trace.TracerProvider

	// Policies are those of the transport. A policy that is not among them is [Other].
	Policies []throttle.Policy
}

// An Observer has metrics and spans made of events. It is safe for concurrent use, and
// there is nothing to close. One is for all transports of a program: what several tell of the store
// would not be added up.
type Observer struct {
	instruments
	tracer  trace.Tracer
	all     telemetry.Table[series]
	causes  [len(telemetry.Causes)]counter
	outages telemetry.Outages
}

// New returns an observer. Its errors are those of the meter provider.
func New(c Config) (*Observer, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = metricnoop.NewMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = tracenoop.NewTracerProvider()
	}
	o := &Observer{tracer: c.TracerProvider.Tracer(scope)}
	m := c.MeterProvider.Meter(scope)
	if err := o.instruments.make(m); err != nil {
		return nil, err
	}
	if _, err := m.RegisterCallback(o.observeStore, o.away); err != nil {
		return nil, err
	}
	for i, cause := range telemetry.Causes {
		o.causes[i] = newCounter(o.failures, attribute.NewSet(causeKey.String(cause)))
	}
	o.SetPolicies(c.Policies)
	return o, nil
}

// SetPolicies makes the series of a new table. Those of policies that are gone stay, as
// long as the program runs.
func (o *Observer) SetPolicies(policies []throttle.Policy) { o.all.Add(policies, o.bind) }

// observeStore tells for how long the store has not answered.
func (o *Observer) observeStore(ctx context.Context, to metric.Observer) error {
	to.ObserveFloat64(o.away, o.outages.Longest(ctx).Seconds())
	return nil
}

// Observe counts an event, and makes a span of a wait that is over. It is meant for
// [throttle.Config.Observe]. It allocates nothing, but for the span. The context must be the one
// that throttle gave: by it the store is asked, at a collection after a failure, whether it
// answers.
func (o *Observer) Observe(ctx context.Context, e throttle.Event) {
	if cause, failed := telemetry.CauseOf(&e); failed {
		o.causes[cause].add(ctx)
		o.outages.Note(ctx)
	}
	s := o.all.Of(e.Policy)
	switch e.Kind {
	case throttle.EventStarted:
		o.outcome(ctx, s, started, &e)
	case throttle.EventRefused:
		o.outcome(ctx, s, reasonOf(e.Err), &e)
	case throttle.EventGaveUp:
		o.outcome(ctx, s, gaveUp, &e)
	case throttle.EventPenalized:
		s.penalties.add(ctx)
	case throttle.EventShadowed:
		s.shadow.record(ctx, e.Duration)
		s.events[e.Kind].add(ctx)
	default:
		if int(e.Kind) < len(s.events) { // else of a version that this one does not know
			s.events[e.Kind].add(ctx)
		}
	}
}

// outcome tells what became of a request.
func (o *Observer) outcome(ctx context.Context, s *series, r int, e *throttle.Event) {
	s.requests[r].add(ctx)
	s.waits[r].record(ctx, e.Duration)
	if e.Duration > leastHold {
		o.hold(ctx, r, e)
	}
}

// reasonOf returns why a request was refused.
func reasonOf(err error) int {
	var store *throttle.StoreError
	var mistake *throttle.ConfigError
	switch {
	case errors.Is(err, throttle.ErrLimited):
		return refusedByLimit
	case errors.As(err, &store):
		return refusedByStore
	case errors.As(err, &mistake):
		return refusedByMistake
	}
	return refusedOtherwise
}

// leastHold is how long a request was held at least that has a span for it.
const leastHold = time.Millisecond

// hold makes the span of a wait that is over: a child of the request's, if that is recorded. It
// is made afterwards, because a request does not know beforehand whether it is held, so it
// cannot be the parent of anything.
func (o *Observer) hold(ctx context.Context, result int, e *throttle.Event) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	end := time.Now()
	attributes := append(make([]attribute.KeyValue, 0, 8), results[result]...)
	if e.Policy != "" {
		attributes = append(attributes, policyKey.String(e.Policy), attribute.Bool("throttle.paused", e.Paused))
	}
	if e.Budget != "" {
		attributes = append(attributes, attribute.String("throttle.budget", e.Budget), attribute.Stringer("throttle.limit", e.Limit))
	}
	_, span := o.tracer.Start(ctx, "throttle.hold", trace.WithTimestamp(end.Add(-e.Duration)), trace.WithAttributes(attributes...))
	switch {
	case result == gaveUp:
		span.SetStatus(codes.Error, "the caller gave up") // the cause is the program's own, and may be a secret
	case result != started && e.Err != nil:
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(end))
}
