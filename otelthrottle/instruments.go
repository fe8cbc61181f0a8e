package otelthrottle

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/telemetry"
)

// The attributes.
const (
	policyKey = attribute.Key("throttle.policy")
	shareKey  = attribute.Key("throttle.share")
	resultKey = attribute.Key("throttle.result")
	eventKey  = attribute.Key("throttle.event")
	errorKey  = attribute.Key("error.type")
	causeKey  = attribute.Key("throttle.cause")
)

// instruments are what events are told to.
type instruments struct {
	requests, events, penalties, failures metric.Int64Counter
	waits, shadows                        metric.Float64Histogram
	away                                  metric.Float64ObservableGauge
}

// make makes the instruments.
func (i *instruments) make(m metric.Meter) error {
	var errs [7]error
	i.requests, errs[0] = m.Int64Counter("throttle.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests by what became of them, and by the policy that held them last."))
	i.waits, errs[1] = m.Float64Histogram("throttle.request.time_in_queue", metric.WithUnit("s"),
		metric.WithDescription("How long requests were held, whatever became of them."), metric.WithExplicitBucketBoundaries(telemetry.Buckets...))
	i.events, errs[2] = m.Int64Counter("throttle.events", metric.WithUnit("{event}"),
		metric.WithDescription("Other events, by kind and policy."))
	i.penalties, errs[3] = m.Int64Counter("throttle.penalties", metric.WithUnit("{penalty}"),
		metric.WithDescription("Answers that closed a budget."))
	i.shadows, errs[4] = m.Float64Histogram("throttle.shadow.time_in_queue", metric.WithUnit("s"),
		metric.WithDescription("How much longer requests would have been held by policies in shadow mode."), metric.WithExplicitBucketBoundaries(telemetry.Buckets...))
	i.failures, errs[5] = m.Int64Counter("throttle.store.failures", metric.WithUnit("{event}"),
		metric.WithDescription("Events that say that the store did not do what it was asked, by cause."))
	i.away, errs[6] = m.Float64ObservableGauge("throttle.store.away", metric.WithUnit("s"),
		metric.WithDescription("For how long the store has not answered this program, 0 if it answers."))
	return errors.Join(errs[:]...)
}

// What becomes of requests.
const (
	started = iota
	refusedByLimit
	refusedByStore
	refusedByMistake
	refusedOtherwise
	gaveUp
	outcomes
)

// results are the attributes of what becomes of requests.
var results = [outcomes][]attribute.KeyValue{
	started:          {resultKey.String("started")},
	refusedByLimit:   {resultKey.String("refused"), errorKey.String("limit")},
	refusedByStore:   {resultKey.String("refused"), errorKey.String("store")},
	refusedByMistake: {resultKey.String("refused"), errorKey.String("config")},
	refusedOtherwise: {resultKey.String("refused"), errorKey.String("_OTHER")},
	gaveUp:           {resultKey.String("gave_up"), errorKey.String("context")},
}

// A series is all that belongs to one policy, bound beforehand: events come on the
// request's way.
type series struct {
	requests  [outcomes]counter
	waits     [outcomes]histogram
	events    [len(telemetry.Kinds)]counter // by kind
	penalties counter
	shadow    histogram
}

// bind makes the series of a policy. Its counters exist from then on, with 0, so that a rate
// sees the first event.
func (i *instruments) bind(policy string) *series {
	var of []attribute.KeyValue
	if policy != "" {
		of = append(of, policyKey.String(policy))
	}
	with := func(more ...attribute.KeyValue) attribute.Set { return attribute.NewSet(slices.Concat(of, more)...) }
	s := new(series)
	for r, attributes := range results {
		s.requests[r] = newCounter(i.requests, with(attributes...))
		s.waits[r] = newHistogram(i.waits, with(attributes[:1]...))
	}
	for kind, name := range telemetry.Kinds {
		if name != "" && kind != int(throttle.EventPenalized) { // which has a counter of its own
			s.events[kind] = newCounter(i.events, with(eventKey.String(name)))
		}
	}
	s.penalties = newCounter(i.penalties, with())
	s.shadow = newHistogram(i.shadows, with())
	return s
}

// A counter has its attributes.
type counter struct {
	of      metric.Int64Counter // nil: nothing is counted
	options []metric.AddOption
}

func newCounter(of metric.Int64Counter, set attribute.Set) counter {
	c := counter{of, []metric.AddOption{metric.WithAttributeSet(set)}}
	of.Add(context.Background(), 0, c.options...)
	return c
}

func (c *counter) add(ctx context.Context) {
	if c.of != nil {
		c.of.Add(ctx, 1, c.options...)
	}
}

// A histogram has its attributes.
type histogram struct {
	of      metric.Float64Histogram
	options []metric.RecordOption
}

func newHistogram(of metric.Float64Histogram, set attribute.Set) histogram {
	return histogram{of, []metric.RecordOption{metric.WithAttributeSet(set)}}
}

func (h *histogram) record(ctx context.Context, d time.Duration) {
	h.of.Record(ctx, d.Seconds(), h.options...)
}
