package otelthrottle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
)

// The attributes.
const (
	policyKey = attribute.Key(telemetry.AttrPolicy)
	shareKey  = attribute.Key(telemetry.AttrShare)
	resultKey = attribute.Key(telemetry.AttrResult)
	eventKey  = attribute.Key(telemetry.AttrEvent)
	errorKey  = attribute.Key(telemetry.AttrErrorType)
)

// instruments are the metrics that events change.
type instruments struct {
	requests, events, penalties, failures metric.Int64Counter
	waits, shadows                        metric.Float64Histogram
	away                                  metric.Float64ObservableGauge

	mu    sync.Mutex
	fresh []counter // the counters that no collection has seen yet
}

// make makes the instruments. Its error has the errors of all that could not be made.
func (i *instruments) make(m metric.Meter) error {
	var errs [7]error
	i.requests, errs[0] = m.Int64Counter("throttle.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that were started, refused or gave up, by the policy that held the request last; no policy if none did."))
	i.waits, errs[1] = m.Float64Histogram("throttle.request.time_in_queue", metric.WithUnit("s"),
		metric.WithDescription("How long requests were held, whatever became of them, without the time of the upstream."), metric.WithExplicitBucketBoundaries(telemetry.Buckets()...))
	i.events, errs[2] = m.Int64Counter("throttle.events", metric.WithUnit("{event}"),
		metric.WithDescription("Events of all other kinds."))
	i.penalties, errs[3] = m.Int64Counter("throttle.penalties", metric.WithUnit("{penalty}"),
		metric.WithDescription("Answers that closed a budget."))
	i.shadows, errs[4] = m.Float64Histogram("throttle.shadow.time_in_queue", metric.WithUnit("s"),
		metric.WithDescription("How much longer shadow policies would have held requests."), metric.WithExplicitBucketBoundaries(telemetry.Buckets()...))
	i.failures, errs[5] = m.Int64Counter("throttle.store.failures", metric.WithUnit("{event}"),
		metric.WithDescription("Failures of the store. away: it did not answer, or was not ready. denied: a right or a password is missing. failed: it answered with an error. One request may cause two."))
	i.away, errs[6] = m.Float64ObservableGauge("throttle.store.away", metric.WithUnit("s"),
		metric.WithDescription("For how long the store has not answered this program, 0 if it answers."))

	return errors.Join(errs[:]...)
}

// results are the attributes of what becomes of requests, by the index that [resultOf] returns: the result first, and then why.
var results = [...][]attribute.KeyValue{
	{resultKey.String("started")},
	{resultKey.String("gave_up"), errorKey.String(telemetry.ErrorContext)},
	{resultKey.String("refused"), errorKey.String(telemetry.ErrorLimit)},
	{resultKey.String("refused"), errorKey.String(telemetry.ErrorStore)},
	{resultKey.String("refused"), errorKey.String(telemetry.ErrorConfig)},
	{resultKey.String("refused"), errorKey.String(telemetry.ErrorUnmatched)},
	{resultKey.String("refused"), errorKey.String(telemetry.ErrorOther)},
}

// The indexes in results of the kinds of events that say all.
const (
	started = 0
	gaveUp  = 1
)

// resultOf returns the index in results of an event that says what became of a request. For an unknown reason it is the last, ErrorOther.
func resultOf(e *throttle.Event) int {
	switch e.Kind {
	case throttle.EventStarted:
		return started
	case throttle.EventGaveUp:
		return gaveUp
	}

	reason := telemetry.ErrorType(e)
	for i := gaveUp + 1; i < len(results); i++ {
		if results[i][1].Value.AsString() == reason {
			return i
		}
	}

	return len(results) - 1
}

// A series has the metrics of one policy, with their attributes. It is made beforehand, so that an event does not delay its request.
type series struct {
	requests  [len(results)]counter   // by result
	waits     [len(results)]histogram // by result
	events    []counter               // by kind
	penalties counter
	shadow    histogram
}

// bind creates the series of a policy, or of requests that no policy held for "". An event of the policy then allocates nothing.
func (i *instruments) bind(policy string) *series {
	var of []attribute.KeyValue
	if policy != "" {
		of = append(of, policyKey.String(policy))
	}

	with := func(more ...attribute.KeyValue) attribute.Set { return attribute.NewSet(slices.Concat(of, more)...) }

	// Only the counters say why a request was refused.
	s := new(series)
	for r, attributes := range results {
		s.requests[r] = i.newCounter(i.requests, with(attributes...))
		s.waits[r] = newHistogram(i.waits, with(attributes[:1]...))
	}

	for kind, name := range telemetry.Kinds() {
		var c counter

		// Penalties and the results of requests have counters of their own.
		if name != "" && kind != int(throttle.EventPenalized) {
			c = i.newCounter(i.events, with(eventKey.String(name)))
		}
		s.events = append(s.events, c)
	}

	s.penalties = i.newCounter(i.penalties, with())
	s.shadow = newHistogram(i.shadows, with())
	return s
}

// A counter is an instrument with fixed attributes.
type counter struct {
	of      metric.Int64Counter // nil for a kind of events that is counted elsewhere
	options []metric.AddOption
}

// newCounter returns a counter that exists with 0 from the next collection on, so that a rate sees the first event.
func (i *instruments) newCounter(of metric.Int64Counter, set attribute.Set) counter {
	c := counter{of, []metric.AddOption{metric.WithAttributeSet(set)}}

	i.mu.Lock()
	defer i.mu.Unlock()
	i.fresh = append(i.fresh, c)
	return c
}

// addZeros creates the new counters with 0. It runs at a collection, because a global provider that
// the program sets later has not seen earlier values.
func (i *instruments) addZeros(ctx context.Context) {
	// Take the list under the mutex, and call the instruments without it.
	i.mu.Lock()
	fresh := i.fresh
	i.fresh = nil
	i.mu.Unlock()

	for _, c := range fresh {
		c.of.Add(ctx, 0, c.options...)
	}
}

// add adds 1.
func (c *counter) add(ctx context.Context) {
	if c.of != nil {
		c.of.Add(ctx, 1, c.options...)
	}
}

// A histogram is an instrument with fixed attributes.
type histogram struct {
	of      metric.Float64Histogram
	options []metric.RecordOption
}

// newHistogram returns a histogram with attributes.
func newHistogram(of metric.Float64Histogram, set attribute.Set) histogram {
	return histogram{of, []metric.RecordOption{metric.WithAttributeSet(set)}}
}

// record records a length of time, in seconds.
func (h *histogram) record(ctx context.Context, d time.Duration) {
	h.of.Record(ctx, d.Seconds(), h.options...)
}
