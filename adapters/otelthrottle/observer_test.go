package otelthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	apimetric "go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/otelthrottle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// table has a limit that fills at once, and one that only counts.
var table = []throttle.Policy{
	{Name: "calls", Match: "example.com/", Limit: throttle.SlidingWindow(2, time.Minute), Jitter: -1},
	{Name: "trial", Match: "example.com/", Limit: throttle.SlidingWindow(1, time.Minute), Jitter: -1, Shadow: true},
	{Name: "apps", Match: "example.com/", Limit: throttle.PerSecond(100), Key: throttle.Host},
}

// closing returns the policies, which a 429 closes all.
func closing(policies []throttle.Policy) []throttle.Policy {
	policies = slices.Clone(policies)
	for i := range policies {
		policies[i].Answer = throttle.RetryAfter
	}
	return policies
}

// A fake answers after a while: 200, or what the request's header X-Answer says.
type fake struct{ latency time.Duration }

func (f fake) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(f.latency)
	w := httptest.NewRecorder()
	if req.Header.Get("X-Answer") == "429" {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// get sends a request.
func get(t *throttle.Transport, ctx context.Context, answer string) error {
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/", nil)
	req.Header.Set("X-Answer", answer)
	resp, err := t.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// A stage is an observer, and what it has told.
type stage struct {
	*testing.T
	*otelthrottle.Observer
	reader   *metric.ManualReader
	meters   *metric.MeterProvider
	limiters *throttle.Limiters // those that the observer follows, with the table
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, reader: metric.NewManualReader()}
	s.meters = metric.NewMeterProvider(metric.WithReader(s.reader))
	var err error
	s.Observer, err = otelthrottle.New(otelthrottle.Config{MeterProvider: s.meters})
	require.NoError(t, err)
	s.limiters, err = throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: table})
	require.NoError(t, err)
	s.Follow(s.limiters)
	return s
}

// collect returns all that was told, by the name of its instrument.
func (s *stage) collect() map[string]metricdata.Metrics {
	s.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(s, s.reader.Collect(context.Background(), &all))
	named := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			named[m.Name] = m
		}
	}
	return named
}

// sum returns the value of the counter with these attributes, and whether it exists.
func (s *stage) sum(name string, of ...attribute.KeyValue) (int64, bool) {
	s.Helper()
	sum, ok := s.collect()[name].Data.(metricdata.Sum[int64])
	require.True(s, ok, name)
	for _, p := range sum.DataPoints {
		if p.Attributes.Equals(new(attribute.NewSet(of...))) {
			return p.Value, true
		}
	}
	return 0, false
}

// waits returns the histogram with these attributes.
func (s *stage) waits(name string, of ...attribute.KeyValue) metricdata.HistogramDataPoint[float64] {
	s.Helper()
	h, ok := s.collect()[name].Data.(metricdata.Histogram[float64])
	require.True(s, ok, name)
	for _, p := range h.DataPoints {
		if p.Attributes.Equals(new(attribute.NewSet(of...))) {
			return p
		}
	}
	require.Fail(s, "no such histogram", "%s %v", name, of)
	return metricdata.HistogramDataPoint[float64]{}
}

func policy(name string) attribute.KeyValue  { return attribute.String("throttle.policy", name) }
func result(name string) attribute.KeyValue  { return attribute.String("throttle.result", name) }
func event(name string) attribute.KeyValue   { return attribute.String("throttle.event", name) }
func errorType(of string) attribute.KeyValue { return attribute.String("error.type", of) }

// TestMetrics: what becomes of requests is counted, by the policy that held them.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: closing(table), Base: fake{}, Observe: s.Observe}))
		for _, first := range []struct {
			name string
			of   []attribute.KeyValue
		}{
			{"throttle.requests", []attribute.KeyValue{policy("calls"), result("started")}},
			{"throttle.requests", []attribute.KeyValue{policy("calls"), result("refused"), errorType("limit")}},
			{"throttle.requests", []attribute.KeyValue{result("started")}},
			{"throttle.penalties", []attribute.KeyValue{policy("calls")}},
			{"throttle.events", []attribute.KeyValue{policy("trial"), event("shadowed")}},
		} {
			n, ok := s.sum(first.name, first.of...)
			require.True(t, ok, "%v has to exist from the start", first)
			require.Zero(t, n)
		}

		ctx := t.Context()
		require.NoError(t, get(transport, ctx, ""))
		require.NoError(t, get(transport, ctx, ""))
		require.ErrorIs(t, get(transport, throttle.WithMaxWait(ctx, -1), ""), throttle.ErrLimited)
		require.NoError(t, get(transport, ctx, "429")) // after a minute
		leaves, cancel := context.WithCancel(ctx)
		go func() { time.Sleep(time.Second); cancel() }()
		require.ErrorIs(t, get(transport, leaves, ""), context.Canceled)

		for _, c := range []struct {
			name string
			n    int64
			of   []attribute.KeyValue
		}{
			{"throttle.requests", 2, []attribute.KeyValue{result("started")}},
			{"throttle.requests", 1, []attribute.KeyValue{policy("calls"), result("started")}},
			{"throttle.requests", 1, []attribute.KeyValue{policy("calls"), result("refused"), errorType("limit")}},
			{"throttle.requests", 1, []attribute.KeyValue{policy("calls"), result("gave_up"), errorType("context")}},
			{"throttle.penalties", 1, []attribute.KeyValue{policy("calls")}},
		} {
			n, _ := s.sum(c.name, c.of...)
			require.Equal(t, c.n, n, "%v", c)
		}
		n, _ := s.sum("throttle.events", policy("trial"), event("shadowed"))
		require.Positive(t, n)

		held := s.waits("throttle.request.time_in_queue", policy("calls"), result("started"))
		require.Equal(t, uint64(1), held.Count)
		require.InDelta(t, 60, held.Sum, 0.001)
		require.InDelta(t, 600, slices.Max(held.Bounds), 0, "the boundaries that the SDK chooses end at ten seconds")
		require.InDelta(t, 1, s.waits("throttle.request.time_in_queue", policy("calls"), result("gave_up")).Sum, 0.001)
		require.Positive(t, s.waits("throttle.shadow.time_in_queue", policy("trial")).Count)
	})
}

// TestSeriesAreBounded: a policy that is not in the table is another one, and a new table
// adds its own.
func TestSeriesAreBounded(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{"made-up", "another"} {
		s.Observe(t.Context(), throttle.Event{Kind: throttle.EventStale, Policy: name})
	}
	s.Observe(t.Context(), throttle.Event{Kind: 200, Policy: "calls"})
	n, _ := s.sum("throttle.events", policy(otelthrottle.Other), event("stale"))
	require.Equal(t, int64(2), n)
	_, ok := s.sum("throttle.events", policy("fresh"), event("stale"))
	require.False(t, ok)
	require.NoError(t, s.limiters.SetPolicies([]throttle.Policy{{Name: "fresh", Limit: throttle.PerSecond(1)}}))
	zero, ok := s.sum("throttle.events", policy("fresh"), event("stale"))
	require.True(t, ok, "its series exist from the next collection on")
	require.Zero(t, zero)
	s.Observe(t.Context(), throttle.Event{Kind: throttle.EventStale, Policy: "fresh"})
	n, _ = s.sum("throttle.events", policy("fresh"), event("stale"))
	require.Equal(t, int64(1), n)
	n, _ = s.sum("throttle.events", policy(otelthrottle.Other), event("stale"))
	require.Equal(t, int64(2), n)
}

// TestKinds: each kind of event is counted somewhere, so a new one is not forgotten.
func TestKinds(t *testing.T) {
	for kind := throttle.EventKind(1); kind.String() != "unknown"; kind++ {
		s := newStage(t)
		before := s.total()
		s.Observe(t.Context(), throttle.Event{Kind: kind, Policy: "calls"})
		require.Equal(t, before+1, s.total(), "%v", kind)
	}
}

// total is the sum of all counters.
func (s *stage) total() (n int64) {
	for _, m := range s.collect() {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range sum.DataPoints {
				n += p.Value
			}
		}
	}
	return n
}

// TestReasons: an error is one of a few words.
func TestReasons(t *testing.T) {
	s := newStage(t)
	for _, err := range []error{&throttle.LimitError{}, &throttle.StoreError{Err: context.DeadlineExceeded}, &throttle.ConfigError{}, &throttle.UnmatchedError{}, os.ErrClosed} {
		s.Observe(t.Context(), throttle.Event{Kind: throttle.EventRefused, Policy: "calls", Err: err})
	}
	for _, word := range []string{"limit", "store", "config", "unmatched", "_OTHER"} {
		n, _ := s.sum("throttle.requests", policy("calls"), result("refused"), errorType(word))
		require.Equal(t, int64(1), n, word)
	}
	require.Equal(t, uint64(5), s.waits("throttle.request.time_in_queue", policy("calls"), result("refused")).Count)
}

// TestObserveAllocatesNothing, because it is on the way of each request.
func TestObserveAllocatesNothing(t *testing.T) {
	s := newStage(t)
	for _, e := range []throttle.Event{
		{Kind: throttle.EventStarted}, {Kind: throttle.EventStarted, Policy: "calls", Duration: time.Second},
		{Kind: throttle.EventWaiting, Policy: "calls"}, {Kind: throttle.EventStale, Policy: "trial"},
	} {
		s.Observe(t.Context(), e)
		require.Zero(t, testing.AllocsPerRun(100, func() { s.Observe(t.Context(), e) }), "%v", e.Kind)
	}
}

// inOwnProcess reports whether the test runs in a process of its own. If not, it runs the test in one. A test that sets
// the global providers needs that: what was made of them before follows the first provider that is set.
func inOwnProcess(t *testing.T) bool {
	const own = "THROTTLE_TEST_OWN_PROCESS"
	if os.Getenv(own) != "" {
		return true
	}

	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	program.Env = append(os.Environ(), own+"=1")
	said, err := program.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return false
}

// TestGlobalProviders: an observer without providers has its metrics from the global provider, also if the program sets
// that later, and its spans from the provider of the request's span, as otelhttp has.
func TestGlobalProviders(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	o, err := otelthrottle.New(otelthrottle.Config{})
	require.NoError(t, err)
	transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: closing(table), Base: fake{}, Observe: o.Observe}))
	o.Follow(transport)
	_, err = otelthrottle.Budgets(nil, transport)
	require.NoError(t, err)

	spans := tracetest.NewInMemoryExporter()
	tracers := trace.NewTracerProvider(trace.WithSyncer(spans))
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	otel.SetTracerProvider(tracers)
	ctx, parent := otel.Tracer("test").Start(t.Context(), "parent")
	o.Observe(ctx, throttle.Event{Kind: throttle.EventStarted, Policy: "calls", Duration: time.Second})
	parent.End()
	require.Equal(t, []string{"throttle.hold", "parent"}, []string{spans.GetSpans()[0].Name, spans.GetSpans()[1].Name})

	s := &stage{T: t, Observer: o, reader: reader}
	n, _ := s.sum("throttle.requests", policy("calls"), result("started"))
	require.Equal(t, int64(1), n)
	n, ok := s.sum("throttle.requests", policy("trial"), result("started"))
	require.True(t, ok, "series exist from the start")
	require.Zero(t, n)
	require.Equal(t, int64(1), s.value("throttle.store.up"))
}

// TestTheZeroObserver: an observer that New has not made has its metrics from the global provider, and a provider that
// makes no instruments is told of by the error handler.
func TestTheZeroObserver(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	zero := new(otelthrottle.Observer)
	zero.Observe(t.Context(), throttle.Event{Kind: throttle.EventStarted, Policy: "calls"})
	n, _ := (&stage{T: t, Observer: zero, reader: reader}).sum("throttle.requests", policy(otelthrottle.Other), result("started"))
	require.Equal(t, int64(1), n)

	var told []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { told = append(told, err) }))
	otel.SetMeterProvider(brokenProvider{})
	broken := new(otelthrottle.Observer)
	broken.Follow(throttle.Must(throttle.New(throttle.Config{Store: memstore.New()})))
	broken.Observe(t.Context(), throttle.Event{Kind: throttle.EventStoreFailed})
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], errBroken)
}

// A brokenProvider has a meter that makes nothing.
type brokenProvider struct{ metricnoop.MeterProvider }

func (brokenProvider) Meter(string, ...apimetric.MeterOption) apimetric.Meter { return brokenMeter{} }

type brokenMeter struct{ metricnoop.Meter }

var errBroken = errors.New("no instruments")

func (brokenMeter) Int64Counter(string, ...apimetric.Int64CounterOption) (apimetric.Int64Counter, error) {
	return nil, errBroken
}

// TestNoProviders: who wants no metrics or no spans says so.
func TestNoProviders(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	reader, spans := metric.NewManualReader(), tracetest.NewInMemoryExporter()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	tracers := trace.NewTracerProvider(trace.WithSyncer(spans))
	o, err := otelthrottle.New(otelthrottle.Config{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tracenoop.NewTracerProvider()})
	require.NoError(t, err)
	ctx, parent := tracers.Tracer("test").Start(t.Context(), "parent")
	o.Observe(ctx, throttle.Event{Kind: throttle.EventStarted, Duration: time.Second})
	parent.End()
	require.Len(t, spans.GetSpans(), 1)
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	require.Empty(t, all.ScopeMetrics)
}

// TestBudgets: a collection sees what budgets are like: full, closed, waited for.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: closing(table), Base: fake{}}))
		registration, err := otelthrottle.Budgets(s.meters, transport)
		require.NoError(t, err)
		require.Zero(t, s.value("throttle.budget.count", policy("apps")), "no key is used")
		require.NoError(t, get(transport, t.Context(), ""))
		require.NoError(t, get(transport, t.Context(), "429"))
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = get(transport, ctx, "") }()
		synctest.Wait()

		all := s.collect()
		for name, want := range map[string]float64{
			"throttle.budget.limit": 2, "throttle.budget.usage": 2, "throttle.budget.ceiling": 0, "throttle.penalty.remaining": 30,
		} {
			points := all[name].Data.(metricdata.Gauge[float64]).DataPoints
			require.Len(t, points, 3)
			i := slices.IndexFunc(points, func(p metricdata.DataPoint[float64]) bool {
				return p.Attributes.HasValue("throttle.policy") && p.Attributes.Equals(new(attribute.NewSet(policy("calls"))))
			})
			require.InDelta(t, want, points[i].Value, 0.1, name)
		}
		n, _ := s.sum("throttle.queued_requests", policy("calls"))
		require.Equal(t, int64(1), n)
		n, known := s.sum("throttle.budget.booked", policy("calls"))
		require.True(t, known)
		require.Zero(t, n, "its start is beyond what is booked ahead")
		require.Equal(t, int64(1), s.value("throttle.budget.count", policy("apps")))
		require.Equal(t, int64(1), s.value("throttle.store.up"))
		require.NoError(t, transport.SetPolicies(nil))
		require.NotContains(t, s.collect(), "throttle.budget.limit")
		require.Equal(t, int64(1), s.value("throttle.store.up"))
		stop()
		require.NoError(t, registration.Unregister())
		require.NotContains(t, s.collect(), "throttle.store.up")
	})
}

// TestBudgetsTellShares: what waits of each, and what it had.
func TestBudgetsTellShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		limiters, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
			{Name: "model", Limit: throttle.PerSecond(10), Jitter: -1},
		}})
		require.NoError(t, err)
		_, err = otelthrottle.Budgets(s.meters, limiters)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for range 100 {
			go func() { _, _ = limiters.Acquire(ctx, throttle.Demand{Policy: "model", Share: "acme"}) }()
		}
		synctest.Wait()
		of := []attribute.KeyValue{policy("model"), attribute.String("throttle.share", fmt.Sprintf("%014x", store.ShareOf("model", "acme")))}
		before, known := s.sum("throttle.share.queued_requests", of...)
		require.True(t, known)
		require.Positive(t, before)
		served := s.value("throttle.share.served_requests", of...)
		time.Sleep(2 * time.Second)
		after, _ := s.sum("throttle.share.queued_requests", of...)
		require.Less(t, after, before)
		require.Equal(t, before-after, s.value("throttle.share.served_requests", of...)-served)
	})
}

// value returns the integer gauge with these attributes; 0: there is none.
func (s *stage) value(name string, of ...attribute.KeyValue) int64 {
	s.Helper()
	gauge, _ := s.collect()[name].Data.(metricdata.Gauge[int64])
	for _, p := range gauge.DataPoints {
		if p.Attributes.Equals(new(attribute.NewSet(of...))) {
			return p.Value
		}
	}
	return 0
}

// A failingStore fails as it is told.
type failingStore struct {
	throttle.Store
	err error
}

func (s *failingStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if s.err != nil {
		return store.Grant{HeldBy: store.NotHeld}, s.err
	}
	return s.Store.Book(ctx, b)
}

func (s *failingStore) Status(ctx context.Context, c store.Charge) (throttle.Status, error) {
	if s.err != nil {
		return throttle.Status{}, s.err
	}
	return s.Store.Status(ctx, c)
}

// TestStore: a store that does not answer is seen for as long as that is so, and by its cause.
func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newStage(t), &failingStore{Store: memstore.New()}
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: closing(table), Base: fake{}, Observe: s.Observe}))
		_, err := otelthrottle.Budgets(s.meters, transport)
		require.NoError(t, err)
		away := func() float64 {
			return s.collect()["throttle.store.away"].Data.(metricdata.Gauge[float64]).DataPoints[0].Value
		}
		require.Zero(t, away())
		store.err = outage.Because(outage.Denied, os.ErrPermission)
		require.Error(t, get(transport, t.Context(), ""))
		require.Zero(t, away(), "it answers that it refuses")
		store.err = os.ErrDeadlineExceeded
		require.Error(t, get(transport, t.Context(), ""))
		time.Sleep(time.Hour)
		require.InDelta(t, 3600, away(), 0.001)
		require.Zero(t, s.value("throttle.store.up"))
		store.err = nil
		require.Zero(t, away())
		for cause, want := range map[string]int64{"away": 1, "denied": 1, "failed": 0} {
			n, ok := s.sum("throttle.store.failures", errorType(cause))
			require.True(t, ok)
			require.Equal(t, want, n, cause)
		}
	})
}
