package otelthrottle

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
)

// scope names this package to providers.
const scope = "github.com/fleetthrottle/throttle/adapters/otelthrottle"

// Other is throttle.policy of policies that are not in the table.
const Other = telemetry.Other

// Config is what [New] needs. Its zero value is useful.
type Config struct {
	// MeterProvider makes the metrics. Defaults to nil: the global provider of package otel, as for otelhttp. A noop
	// provider of OpenTelemetry makes none.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. Defaults to nil: the provider of the span in whose context a request is sent, as
	// for otelhttp. A noop provider of OpenTelemetry makes none.
	TracerProvider trace.TracerProvider
}

// An Observer turns events into metrics and spans. It is safe for concurrent use, and there is
// nothing to close. Use one for all transports and limiters of a program: metrics of the store must
// not be reported twice. The zero Observer equals New(Config{}), and passes the error that New
// would return to the error handler of package otel.
type Observer struct {
	made sync.Once
	instruments
	tracers trace.TracerProvider     // nil for the provider of the request's span
	all     *telemetry.Table[series] // nil if the instruments could not be made
	causes  []counter                // failures of the store, by the cause
	outages telemetry.Outages
}

// New returns an observer. Its errors come from the meter provider. Set [throttle.Config.Observe]
// of all transports and limiters to its Observe, and pass the transports and limiters to
// [Observer.Follow].
func New(c Config) (*Observer, error) {
	o := new(Observer)
	var err error

	// Use the Once of the zero Observer, so that Observe does not make the instruments again.
	o.made.Do(func() { err = o.make(c) })
	if err != nil {
		return nil, err
	}
	return o, nil
}

// make makes the instruments, and registers collect. After an error of the instruments o.all is nil.
func (o *Observer) make(c Config) error {
	m := meterOf(c.MeterProvider)
	if err := o.instruments.make(m); err != nil {
		return err
	}

	for _, cause := range telemetry.Causes() {
		o.causes = append(o.causes, o.newCounter(o.failures, attribute.NewSet(errorKey.String(cause))))
	}
	o.tracers, o.all = c.TracerProvider, telemetry.NewTable(o.bind)

	_, err := m.RegisterCallback(o.collect, o.away)
	return err
}

// ready makes the instruments of a zero Observer at its first call, and reports whether they could be made. It passes an error of making to the error
// handler of package otel.
func (o *Observer) ready() bool {
	o.made.Do(func() {
		if err := o.make(Config{}); err != nil {
			otel.Handle(err)
		}
	})
	return o.all != nil
}

// meterOf returns this package's meter from a provider, or from the global provider if p is nil.
func meterOf(p metric.MeterProvider) metric.Meter {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	return p.Meter(scope)
}

// Follow creates the series of all policies of the sources, with 0, and later the series of
// policies that SetPolicies adds. Series of removed policies stay until the program ends. Without
// Follow a policy has its series from its first event on.
func (o *Observer) Follow(sources ...Source) {
	if o.ready() {
		o.all.Follow(sources...)
	}
}

// collect makes the series of new policies, and reports for how long the store has not answered. It runs at each collection, and returns no error.
func (o *Observer) collect(ctx context.Context, to metric.Observer) error {
	o.all.Refresh()
	o.addZeros(ctx)
	to.ObserveFloat64(o.away, o.outages.Longest(ctx).Seconds())
	return nil
}

// Observe counts an event, and makes a span of a wait that has ended and was longer than a millisecond. It is meant for
// [throttle.Config.Observe]. It allocates nothing except for the span. ctx must be the context that
// throttle passed: after a failure the next collection asks the context's store whether it answers.
func (o *Observer) Observe(ctx context.Context, e throttle.Event) {
	if !o.ready() {
		return
	}

	if cause, failed := telemetry.CauseOf(&e); failed {
		o.causes[cause].add(ctx)
		o.outages.Note(ctx)
	}

	s := o.all.Of(&e)
	switch e.Kind {
	case throttle.EventStarted, throttle.EventRefused, throttle.EventGaveUp:
		o.outcome(ctx, s, resultOf(&e), &e)
	case throttle.EventPenalized:
		s.penalties.add(ctx)
	case throttle.EventShadowed:
		s.shadow.record(ctx, e.Duration)
		s.events[e.Kind].add(ctx)
	default:
		if int(e.Kind) < len(s.events) { // unknown kinds are of a newer version
			s.events[e.Kind].add(ctx)
		}
	}
}

// outcome counts a result of a request, and its wait, and makes a span of a wait longer than leastHold.
func (o *Observer) outcome(ctx context.Context, s *series, result int, e *throttle.Event) {
	s.requests[result].add(ctx)
	s.waits[result].record(ctx, e.Duration)
	if e.Duration > leastHold {
		o.hold(ctx, result, e)
	}
}

// leastHold is the longest wait that gets no span.
const leastHold = time.Millisecond

// hold records the span of a wait that is over, as a child of the request's span. If the request has no span that is
// recorded, hold does nothing. The span is made only now, because nobody knows beforehand whether a request is held.
func (o *Observer) hold(ctx context.Context, result int, e *throttle.Event) {
	request := trace.SpanFromContext(ctx)
	if !request.IsRecording() {
		return
	}

	// Without a provider of its own the observer uses the provider of the request's span.
	tracers := o.tracers
	if tracers == nil {
		tracers = request.TracerProvider()
	}

	// The event comes when the wait is over, so the span ends now.
	end := time.Now()
	attributes := append(make([]attribute.KeyValue, 0, 8), results[result]...)
	if e.Policy != "" {
		attributes = append(attributes, policyKey.String(e.Policy), attribute.Bool(telemetry.AttrPaused, e.Paused))
	}
	if e.Budget != "" {
		attributes = append(attributes, attribute.String(telemetry.AttrBudget, e.Budget), attribute.Stringer(telemetry.AttrLimit, e.Limit))
	}

	_, span := tracers.Tracer(scope).Start(ctx, "throttle.hold", trace.WithTimestamp(end.Add(-e.Duration)), trace.WithAttributes(attributes...))
	switch {
	case result == gaveUp:
		span.SetStatus(codes.Error, "the caller gave up") // the cause is the program's own, and may be a secret
	case result != started && e.Err != nil:
		span.SetStatus(codes.Error, e.Err.Error())
	}

	span.End(trace.WithTimestamp(end))
}
