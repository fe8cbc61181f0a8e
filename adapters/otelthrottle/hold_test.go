package otelthrottle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/otelthrottle"
	"github.com/fleetthrottle/throttle/memstore"
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
