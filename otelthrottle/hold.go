package otelthrottle

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fleetthrottle/throttle"
)

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
