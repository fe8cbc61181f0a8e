package promthrottle

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/telemetry"
)

// Other is the label of policies that are not in the table, and None that of requests that
// no policy held.
const (
	Other = telemetry.Other
	None  = ""
)

// Metrics are what happens to requests. They are a [prometheus.Collector], and safe for
// concurrent use.
type Metrics struct {
	requests *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	events   *prometheus.CounterVec
	shadows  *prometheus.HistogramVec
	closed   *prometheus.GaugeVec
	failures *prometheus.CounterVec
	away     *prometheus.Desc

	all     telemetry.Table[series]
	causes  [len(telemetry.Causes)]prometheus.Counter
	outages telemetry.Outages
}

// New returns metrics for a table of policies.
func New(policies []throttle.Policy) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "throttle_requests_total",
			Help: "Requests by what became of them, and by the policy that held them last; none if none did.",
		}, []string{"policy", "result"}),
		waits: prometheus.NewHistogramVec(histogram("throttle_wait_seconds",
			"How long requests were held, whatever became of them."), []string{"policy"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "throttle_events_total",
			Help: "Other events, by kind and policy.",
		}, []string{"policy", "kind"}),
		shadows: prometheus.NewHistogramVec(histogram("throttle_shadow_wait_seconds",
			"How much longer requests would have been held by policies in shadow mode."), []string{"policy"}),
		closed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "throttle_closed_until_timestamp_seconds",
			Help: "When the last penalty or pause that this program has met ends, or was ended early, since 1970; 0 if there was none.",
		}, []string{"policy"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "throttle_store_failures_total",
			Help: "Events that say that the store did not do what it was asked, by cause.",
		}, []string{"cause"}),
		away: prometheus.NewDesc("throttle_store_away_seconds",
			"For how long the store has not answered this program, 0 if it answers.", nil, nil),
	}
	for i, cause := range telemetry.Causes {
		m.causes[i] = m.failures.WithLabelValues(cause)
	}
	m.SetPolicies(policies)
	return m
}

// histogram returns the options of a histogram of waits, which has classic buckets and is native, too.
func histogram(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets:                         telemetry.Buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// SetPolicies makes the series of a new table. Those of policies that are gone stay, as
// long as the program runs.
func (m *Metrics) SetPolicies(policies []throttle.Policy) { m.all.Add(policies, m.newSeries) }

// A series is all that belongs to one policy, bound beforehand: events come on the
// request's way.
type series struct {
	started, refused, gaveUp prometheus.Counter
	wait, shadow             prometheus.Observer
	events                   [len(telemetry.Kinds)]prometheus.Counter // by kind; nil for those of requests
	closed                   closed
}

// labelOf returns the label of a policy. The label of requests that no policy held is not empty,
// because an empty label is no label to Prometheus.
func labelOf(policy string) string {
	if policy == None {
		return "none"
	}
	return policy
}

func (m *Metrics) newSeries(policy string) *series {
	label := labelOf(policy)
	s := &series{
		started: m.requests.WithLabelValues(label, "started"),
		refused: m.requests.WithLabelValues(label, "refused"),
		gaveUp:  m.requests.WithLabelValues(label, "gave_up"),
		wait:    m.waits.WithLabelValues(label),
		shadow:  m.shadows.WithLabelValues(label),
		closed:  closed{gauge: m.closed.WithLabelValues(label)},
	}
	for kind, name := range telemetry.Kinds {
		if name != "" {
			s.events[kind] = m.events.WithLabelValues(label, name)
		}
	}
	return s
}

// Observe counts an event. It is meant for [throttle.Config.Observe], and allocates
// nothing. The context must be the one that throttle gave: by it the store is asked, at a scrape
// after a failure, whether it answers.
func (m *Metrics) Observe(ctx context.Context, e throttle.Event) {
	if cause, failed := telemetry.CauseOf(&e); failed {
		m.causes[cause].Inc()
		m.outages.Note(ctx)
	}
	s := m.all.Of(e.Policy)
	switch e.Kind {
	case throttle.EventStarted:
		s.started.Inc()
		s.wait.Observe(e.Duration.Seconds())
	case throttle.EventRefused:
		s.refused.Inc()
		s.wait.Observe(e.Duration.Seconds())
	case throttle.EventGaveUp:
		s.gaveUp.Inc()
		s.wait.Observe(e.Duration.Seconds())
	default:
		s.other(&e)
	}
}

// other counts an event that is not what became of a request.
func (s *series) other(e *throttle.Event) {
	if int(e.Kind) >= len(s.events) || s.events[e.Kind] == nil {
		return // an event of a later version of throttle
	}
	s.events[e.Kind].Inc()
	switch e.Kind {
	case throttle.EventShadowed:
		s.shadow.Observe(e.Duration.Seconds())
	case throttle.EventPenalized, throttle.EventClosed:
		s.closed.close(e.Budget, time.Now().Add(e.Duration))
	case throttle.EventOpened:
		s.closed.open(e.Budget)
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	to <- m.away
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
	away := m.outages.Longest(context.Background())
	to <- prometheus.MustNewConstMetric(m.away, prometheus.GaugeValue, away.Seconds())
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.waits, m.events, m.shadows, m.closed, m.failures}
}
