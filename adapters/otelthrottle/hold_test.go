package otelthrottle_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/otelthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/hotpath"
	"github.com/fleetthrottle/throttle/internal/lab/reference"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// latency is how long the upstream takes.
const latency = 200 * time.Millisecond

// traced returns a transport whose requests are traced, with otelhttp inside.
func traced(t *testing.T) (transport *throttle.Transport, tracer oteltrace.Tracer, spans *tracetest.InMemoryExporter, reader *metric.ManualReader) {
	spans, reader = tracetest.NewInMemoryExporter(), metric.NewManualReader()
	tracers := trace.NewTracerProvider(trace.WithSyncer(spans))
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	o, err := otelthrottle.New(otelthrottle.Config{MeterProvider: meters, TracerProvider: tracers})
	require.NoError(t, err)
	transport = throttle.Must(throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   memstore.New(), Policies: table, Observe: o.Observe,
		Base: otelhttp.NewTransport(fake{latency}, otelhttp.WithTracerProvider(tracers), otelhttp.WithMeterProvider(meters)),
	}))
	return transport, tracers.Tracer("test"), spans, reader
}

// TestHold: a request that was held has a span for it, beside that of otelhttp, which is of the
// upstream's own time; and so is otelhttp's metric.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, tracer, spans, reader := traced(t)
		for range 2 {
			require.NoError(t, get(transport, t.Context(), ""))
		}
		spans.Reset()
		ctx, parent := tracer.Start(t.Context(), "parent")
		begin := time.Now()
		require.NoError(t, get(transport, ctx, ""))
		parent.End()

		all := spans.GetSpans()
		require.Len(t, all, 3)
		hold, client := all[0], all[1]
		require.Equal(t, "throttle.hold", hold.Name)
		require.Equal(t, parent.SpanContext().SpanID(), hold.Parent.SpanID())
		require.Equal(t, parent.SpanContext().SpanID(), client.Parent.SpanID())
		require.Equal(t, begin, hold.StartTime)
		require.Equal(t, time.Minute-2*latency+time.Microsecond, hold.EndTime.Sub(hold.StartTime))
		require.Equal(t, hold.EndTime, client.StartTime, "the wait, then the upstream")
		require.Equal(t, latency, client.EndTime.Sub(client.StartTime))
		require.Empty(t, hold.Events)
		require.Equal(t, codes.Unset, hold.Status.Code)
		said := make(map[string]any)
		for _, a := range hold.Attributes {
			said[string(a.Key)] = a.Value.AsInterface()
		}
		budget := transport.Explain(request())[0].Budget.String()
		require.Equal(t, map[string]any{
			"throttle.result": "started", "throttle.policy": "calls", "throttle.paused": false, "throttle.limit": "2/m", "throttle.budget": budget,
		}, said)

		var told metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &told))
		longest := 0.0
		for _, scope := range told.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name == "http.client.request.duration" {
					longest, _ = m.Data.(metricdata.Histogram[float64]).DataPoints[0].Max.Value()
				}
			}
		}
		require.InDelta(t, latency.Seconds(), longest, 0.001)
	})
}

// TestNoSpan: requests that pass at once, or that nobody traces, have none.
func TestNoSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		for _, sampler := range []trace.Sampler{trace.AlwaysSample(), trace.NeverSample()} {
			tracers := trace.NewTracerProvider(trace.WithSyncer(spans), trace.WithSampler(sampler))
			o, err := otelthrottle.New(otelthrottle.Config{TracerProvider: tracers})
			require.NoError(t, err)
			ctx, parent := tracers.Tracer("test").Start(t.Context(), "parent")
			o.Observe(ctx, throttle.Event{Kind: throttle.EventStarted, Policy: "calls", Duration: time.Millisecond})
			o.Observe(t.Context(), throttle.Event{Kind: throttle.EventStarted, Policy: "calls", Duration: time.Hour})
			if sampler == trace.NeverSample() {
				o.Observe(ctx, throttle.Event{Kind: throttle.EventStarted, Policy: "calls", Duration: time.Hour})
			}
			parent.End()
		}
		require.Len(t, spans.GetSpans(), 1, "the parent that is sampled")
	})
}

// TestHeldInVain: the span of a request that was not sent says so, and nothing that the program
// says of itself.
func TestHeldInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, tracer, spans, _ := traced(t)
		for range 2 {
			require.NoError(t, get(transport, t.Context(), ""))
		}
		spans.Reset()
		ctx, parent := tracer.Start(t.Context(), "parent")
		leaves, cancel := context.WithCancelCause(ctx)
		go func() { time.Sleep(time.Second); cancel(context.DeadlineExceeded) }()
		require.Error(t, get(transport, leaves, ""))
		parent.End()
		hold := spans.GetSpans()[0]
		require.Equal(t, "throttle.hold", hold.Name)
		require.Equal(t, trace.Status{Code: codes.Error, Description: "the caller gave up"}, hold.Status)
		require.Equal(t, time.Second, hold.EndTime.Sub(hold.StartTime))
	})
}

// BenchmarkObserve is what metrics add to a request that nothing holds.
func BenchmarkObserve(b *testing.B) {
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	o, err := otelthrottle.New(otelthrottle.Config{MeterProvider: meters})
	require.NoError(b, err)
	hotpath.Benchmark(b, o.Observe)
}

// A waitingShare is a source with one budget: a share waits for it, and an answer told its limit.
type waitingShare struct{}

func (waitingShare) Policies() []throttle.Policy { return []throttle.Policy{{Name: "calls"}} }

func (waitingShare) Statuses(context.Context) (map[throttle.Budget]throttle.Status, error) {
	return map[throttle.Budget]throttle.Status{store.BudgetOf("calls", ""): {
		Limit: throttle.Told(), Told: throttle.PerSecond(2), ToldAgo: time.Second, Used: 1, Shares: []store.ShareStatus{{Waiting: 1}},
	}}, nil
}

// TestReference: docs/reference/metrics.md has each instrument as it is described. $UPDATE writes the section.
func TestReference(t *testing.T) {
	s := newStage(t)
	_, err := otelthrottle.Budgets(s.meters, waitingShare{})
	require.NoError(t, err)

	for _, kind := range []throttle.EventKind{throttle.EventStarted, throttle.EventShadowed} {
		s.Observe(t.Context(), throttle.Event{Kind: kind, Policy: "calls"})
	}

	all := s.collect()
	require.Len(t, all, 19)
	page := new(reference.Page)
	page.Section("OpenTelemetry")
	page.Text("Those of budgets and of shares, `throttle.store.up`, `throttle.queued_requests`, `throttle.waiting_callers` and `throttle.penalty.remaining` need `otelthrottle.Budgets`.")
	page.Table("instrument", "type", "unit", "attributes", "meaning")

	values := make(map[string]map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		kind, sets := instrument(t, m)

		attributes := make(map[string]bool)
		for _, set := range sets {
			for _, a := range set.ToSlice() {
				attributes[reference.Code(string(a.Key))] = true
				if values[string(a.Key)] == nil {
					values[string(a.Key)] = make(map[string]bool)
				}
				values[string(a.Key)][reference.Code(a.Value.AsString())] = true
			}
		}

		page.Row(reference.Code(name), kind, reference.Code(m.Unit), strings.Join(slices.Sorted(maps.Keys(attributes)), ", "), m.Description)
	}

	page.Text("### Values of attributes")
	page.Table("attribute", "values")
	page.Row("`throttle.policy`", "the names of policies; left out if no policy held the request")

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != "throttle.policy" && key != "throttle.share" {
			page.Row(reference.Code(key), strings.Join(slices.Sorted(maps.Keys(values[key])), ", "))
		}
	}

	page.Row("`throttle.share`", "as `share` in Prometheus")
	page.CompareSection(t, "../..", "metrics")
}

// instrument returns the type of an instrument, and the attributes of its values.
func instrument(t *testing.T, m metricdata.Metrics) (kind string, sets []attribute.Set) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = "up-down counter"
		if data.IsMonotonic {
			kind = "counter"
		}
		return kind, attributesOf(data.DataPoints)

	case metricdata.Gauge[int64]:
		return "gauge", attributesOf(data.DataPoints)
	case metricdata.Gauge[float64]:
		return "gauge", attributesOf(data.DataPoints)
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
		return "histogram", sets
	}

	require.Fail(t, fmt.Sprintf("%s has data of type %T", m.Name, m.Data))
	return "", nil
}

func attributesOf[N int64 | float64](points []metricdata.DataPoint[N]) (sets []attribute.Set) {
	for _, p := range points {
		sets = append(sets, p.Attributes)
	}
	return sets
}
