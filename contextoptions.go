package throttle

import (
	"context"
	"time"
)

// WithMaxWait returns a context whose requests are held at most d instead of
// [Config.MaxWait], with the same meaning of 0 and of negative values. It also
// bounds [Limiter.Acquire].
func WithMaxWait(ctx context.Context, d time.Duration) context.Context {
	o := optionsOf(ctx)
	o.maxWait, o.setMaxWait = d, true
	return o.in(ctx)
}

// WithPriority returns a context whose requests have priority p. In the line
// for a start High goes before Normal, and Normal before Low. Requests of a
// priority for which a policy has [Policy.Headroom] leave that share of its limit free,
// also when nobody waits. A start that is booked, for the next second at most, is never
// taken away by a request that matters more.
func WithPriority(ctx context.Context, p Priority) context.Context {
	o := optionsOf(ctx)
	o.priority = p
	return o.in(ctx)
}

// The contextOptions are what a context says of the calls that are made with it: see
// [WithMaxWait] and [WithPriority]. They lie together, so that a call asks its context
// once.
type contextOptions struct {
	priority   Priority
	maxWait    time.Duration
	setMaxWait bool // else Config.MaxWait counts
}

// contextOptionsKey is the context key of a *contextOptions, which never changes.
type contextOptionsKey struct{}

// optionsOf returns the context's options.
func optionsOf(ctx context.Context) contextOptions {
	if o, ok := ctx.Value(contextOptionsKey{}).(*contextOptions); ok {
		return *o
	}
	return contextOptions{}
}

// in returns a context that has the options.
func (o contextOptions) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextOptionsKey{}, &o)
}

// maxWaitOr returns the bound of WithMaxWait or, if there is none, d.
func (o *contextOptions) maxWaitOr(d time.Duration) time.Duration {
	if o.setMaxWait {
		return o.maxWait
	}
	return d
}
