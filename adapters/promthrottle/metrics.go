package promthrottle

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
)

// The labels of events without a policy of a table.
const (
	None  = telemetry.None  // requests that no policy held
	Other = telemetry.Other // policies that are not in a table
)

// A Source has a table of policies, and knows what their budgets are like: a
// [throttle.Transport] or [throttle.Limiters].
type Source = telemetry.Source

// Metrics count events. They are a [prometheus.Collector], and safe for concurrent use. One serves
// all transports and limiters of a program. The zero Metrics equal New().
type Metrics struct {
	made     sync.Once
	requests *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	events   *prometheus.CounterVec
	shadows  *prometheus.HistogramVec
	closed   *prometheus.GaugeVec
	failures *prometheus.CounterVec
	away     *prometheus.Desc

	all     *telemetry.Table[series]
	causes  []prometheus.Counter // failures of the store, by the cause
	outages telemetry.Outages
}

// New returns metrics. Give their Observe to the transports and limiters of a
// program, and pass the transports and limiters to [Metrics.Follow].
func New() *Metrics {
	m := new(Metrics)
	m.made.Do(m.make)
	return m
}

// make makes the metrics, and the table that makes the series of each policy.
func (m *Metrics) make() {
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "throttle_requests_total",
		Help: "Requests that were started, refused or gave up, by the policy that held the request last; none if no policy did.",
	}, []string{"policy", "result"})

	m.waits = prometheus.NewHistogramVec(histogram("throttle_wait_seconds",
		"How long requests were held, whatever became of them, without the time of the upstream."), []string{"policy"})
	m.events = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "throttle_events_total",
		Help: "Events of all other kinds.",
	}, []string{"policy", "kind"})

	m.shadows = prometheus.NewHistogramVec(histogram("throttle_shadow_wait_seconds",
		"How much longer shadow policies would have held requests."), []string{"policy"})
	m.closed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "throttle_closed_until_timestamp_seconds",
		Help: "The end of the last penalty or pause that this program has met, since 1970; 0 if it met none. It falls to now when a caller starts because the budget was opened early.",
	}, []string{"policy"})

	m.failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "throttle_store_failures_total",
		Help: "Failures of the store. away: it did not answer, or was not ready. denied: a right or a password is missing. failed: it answered with an error. One request may cause two.",
	}, []string{"cause"})

	m.away = prometheus.NewDesc("throttle_store_away_seconds",
		"For how long the store has not answered this program, 0 if it answers.", nil, nil)

	// Make the series now, with 0, so that rate() sees the first failure.
	for _, cause := range telemetry.Causes() {
		m.causes = append(m.causes, m.failures.WithLabelValues(cause))
	}

	m.all = telemetry.NewTable(m.newSeries)
}

// histogram returns the options of a histogram of waits, with classic and with native buckets.
func histogram(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets:                         telemetry.Buckets(),
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// Follow creates the series of all policies of the sources, with 0, and later the series of
// policies that SetPolicies adds. Series of removed policies stay until the program ends. Without
// Follow a policy has its series from its first event on.
func (m *Metrics) Follow(sources ...Source) {
	m.made.Do(m.make)
	m.all.Follow(sources...)
}

// A series has the metrics of one policy, with their labels. It is made beforehand, so that an event does not delay its request.
type series struct {
	started, refused, gaveUp prometheus.Counter
	wait, shadow             prometheus.Observer
	events                   []prometheus.Counter // by kind. It is nil for the kinds that say what became of a request.
	closed                   closed
}

// labelOf returns the label of a policy: its name, or None for "", because an empty label is no label to Prometheus.
func labelOf(policy string) string {
	if policy == "" {
		return None
	}
	return policy
}

// newSeries creates the series of a policy, so that an event of the policy allocates nothing.
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

	for _, kind := range telemetry.Kinds() {
		var counter prometheus.Counter

		// The results of requests have counters of their own.
		if kind != "" {
			counter = m.events.WithLabelValues(label, kind)
		}
		s.events = append(s.events, counter)
	}

	return s
}

// Observe counts an event. It is meant for [throttle.Config.Observe], and allocates nothing. ctx
// must be the context that throttle passed: after a failure the next scrape asks the context's
// store whether it answers.
func (m *Metrics) Observe(ctx context.Context, e throttle.Event) {
	m.made.Do(m.make)
	if cause, failed := telemetry.CauseOf(&e); failed {
		m.causes[cause].Inc()
		m.outages.Note(ctx)
	}

	s := m.all.Of(&e)
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

// other counts an event that does not say what became of a request. Of some kinds it also notes the wait, or that a budget is closed or open.
// It ignores kinds of a later version of throttle.
func (s *series) other(e *throttle.Event) {
	if int(e.Kind) >= len(s.events) || s.events[e.Kind] == nil {
		return
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
	m.made.Do(m.make)
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	to <- m.away
}

// Collect implements [prometheus.Collector]. It asks stores that have failed whether they answer again.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.made.Do(m.make)

	// New policies have their series before the first event.
	m.all.Refresh()

	for _, c := range m.collectors() {
		c.Collect(to)
	}
	away := m.outages.Longest(context.Background())
	to <- prometheus.MustNewConstMetric(m.away, prometheus.GaugeValue, away.Seconds())
}

// collectors are all metrics of events. The metric away is made at each scrape.
func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.waits, m.events, m.shadows, m.closed, m.failures}
}
