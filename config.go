package throttle

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// Config is the configuration of [New] and [NewLimiters]. The zero value of every field
// except Store is useful. The page on [events] lists the events that Observe gets, and the
// page on [the line] says how good the estimates of waits are.
//
// [events]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/metrics.md#events
// [the line]: https://github.com/fleetthrottle/throttle/blob/main/docs/internals/line.md
type Config struct {
	// Store keeps the budgets: memstore.New() for one process,
	// redisstore.New(client, redisstore.Options{}) for a fleet. Required, because that is the
	// question a limit raises. The store has the switch that turns throttle off, if there is
	// one: see [store.Switch].
	Store Store

	// Policies are the limits. They can be replaced later: see
	// [Transport.SetPolicies]. Without any, requests are refused until SetPolicies is called.
	Policies []Policy

	// Base sends the requests of a [Transport]. Defaults to an [http.Transport] of its own:
	// a copy of [http.DefaultTransport] at the time of [New], but with up to 256 idle
	// connections to a host, because with the 2 of http.DefaultTransport each of many
	// workers dials for each request. If the program has set MaxIdleConnsPerHost in
	// http.DefaultTransport, its number stays. Registered protocols are not copied. If
	// http.DefaultTransport is not an *http.Transport any longer, it is the Base itself.
	Base http.RoundTripper

	// Unmatched says whether a request that no policy matches is sent: Match may have a
	// typo, or the request a wrong base URL. Defaults to [UnmatchedPass].
	Unmatched Unmatched

	// MaxWait bounds how long a caller is held, and [WithMaxWait] does so for one request.
	// If the wait cannot fit MaxWait and the deadline of the context, the request is
	// refused at once and spends nothing. http.Client.Timeout is a deadline, too. The
	// refusal relies on an estimate: the page on the line says how good it is. If the
	// context ends during the wait, the place is given back.
	//
	// A store that cannot be reached is asked again for as long as MaxWait and the context
	// allow, and nothing is sent meanwhile. redisstore.Options has other ways to go on.
	//
	// MaxWait holds for each attempt of a retrier: five attempts wait for five times
	// MaxWait at most. A deadline of the context holds for all attempts together.
	//
	// [NoWait], or any negative value, refuses a request that would have to wait. [Forever]
	// holds it for as long as its context allows. Zero means that the deadline of the
	// context bounds the wait, or a minute if the context has no deadline.
	MaxWait time.Duration

	// Observe is told of each event of a request: why it waits, which policy holds it, that
	// a budget was closed elsewhere and is open again, that the store does not answer. The
	// page on events lists all events. Observe is called on the request's way, by many
	// goroutines, and must not block. throttle recovers a panic of Observe and tells
	// Observe of it by an [EventFunctionFailed]. [Observers] combines several functions
	// into one, and package slogthrottle has an Observe that logs. Defaults to nil: nobody
	// hears of events.
	Observe func(context.Context, Event)

	// LongWait is how long a caller is held before Observe gets an [EventStillWaiting].
	// Observe gets the next after twice as long, and so on. A negative LongWait turns these
	// events off. Without Observe LongWait has no effect. Defaults to 10 s.
	LongWait time.Duration
}

// Unmatched says whether a request that no policy matches is sent. Observe is told of each
// such request by an [EventUnmatched].
type Unmatched uint8

// The values of [Config.Unmatched].
const (
	UnmatchedPass   Unmatched = iota // the request is sent, and nothing holds it
	UnmatchedRefuse                  // the request is not sent, and fails with an *[UnmatchedError]
)

// defaultLongWait is the LongWait of a Config that does not set one.
const defaultLongWait = 10 * time.Second

// defaultMaxWait bounds the wait of a caller without a bound: without Config.MaxWait,
// WithMaxWait, and a deadline of its context.
const defaultMaxWait = time.Minute

// Special values of [Config.MaxWait] and [WithMaxWait].
const (
	// NoWait refuses a caller that would have to wait.
	NoWait time.Duration = -1

	// Forever holds a caller for as long as its context allows.
	Forever time.Duration = math.MaxInt64
)

// Free is the cost of work that takes nothing of a budget, as an argument of
// [Limiter.Acquire] or in a [Demand], where 0 is the default of 1. Free work can still
// close the budget: see [Permit.Tell]. Free is a number to which no computation comes by
// mistake. A cost of -1, such as an unknown length, is refused.
const Free = math.MinInt

// WithMaxWait returns a context whose requests are held for at most d, in place of
// [Config.MaxWait]. Zero, [NoWait] and [Forever] mean the same as in Config.MaxWait: 0 is
// the default of a minute, and not the MaxWait of the Config. The context also bounds
// [Limiter.Acquire], [Limiters.Acquire] and [Permit.Renew].
func WithMaxWait(ctx context.Context, d time.Duration) context.Context {
	o := optionsOf(ctx)
	o.maxWait, o.setMaxWait = d, true
	return o.addTo(ctx)
}

// WithWaitOnly returns a context that bounds only the wait of [Limiter.Acquire], and not
// the work after it. Without WithWaitOnly the work ends with the context, too: slots under
// [Concurrency] are given back when the context ends, as [Permit.Release] does. The same
// holds for every Acquire method of [Limiters]. A [Transport] takes no notice of it.
func WithWaitOnly(ctx context.Context) context.Context {
	o := optionsOf(ctx)
	o.waitOnly = true
	return o.addTo(ctx)
}

// WithPriority returns a context whose requests have priority p. In the line for a start
// High goes before Normal, and Normal before Low. Requests of a priority for which a policy
// has [Policy.Headroom] leave that share of its limit free, also when nobody waits. A
// booked start, which is at most a horizon away, is never taken away by a request of higher
// priority. A p above High is High, and a p below Low is Low.
func WithPriority(ctx context.Context, p Priority) context.Context {
	o := optionsOf(ctx)
	o.priority = max(PriorityLow, min(p, PriorityHigh))
	return o.addTo(ctx)
}

// contextOptions are the options that a context carries for the calls made with it: see
// [WithMaxWait], [WithWaitOnly] and [WithPriority]. They lie together, so that a call asks its context
// once.
type contextOptions struct {
	priority   Priority
	maxWait    time.Duration
	setMaxWait bool // maxWait counts, and not Config.MaxWait
	waitOnly   bool // the context ends no permit
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

// addTo returns a context with the options.
func (o contextOptions) addTo(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextOptionsKey{}, &o)
}

// maxWaitOr returns for how long a caller with the context and its options may be held
// where its configuration says d: a negative result means not at all, and 0 as long as the
// context allows. byDefault says that neither the options nor the configuration set a
// bound.
func (o *contextOptions) maxWaitOr(ctx context.Context, d time.Duration) (maxWait time.Duration, byDefault bool) {
	if o.setMaxWait {
		d = o.maxWait
	}

	switch {
	case d == Forever:
		return 0, false
	case d != 0:
		return d, false
	}

	if _, bounded := ctx.Deadline(); bounded {
		return 0, true
	}

	return defaultMaxWait, true
}

// boundCall returns the context of a program's call that asks or tells the store: where
// neither a deadline nor [WithMaxWait] bounds the call, defaultMaxWait does.
func boundCall(ctx context.Context) (context.Context, context.CancelFunc) {
	o := optionsOf(ctx)
	maxWait, byDefault := o.maxWaitOr(ctx, 0)
	switch {
	case maxWait == 0:
		return ctx, func() {}
	case maxWait < 0: // a call cannot do without an answer of the store
		maxWait, byDefault = defaultMaxWait, true
	}

	over := acquire.ErrWaitOver
	if byDefault {
		over = acquire.ErrDefaultWaitOver
	}

	return context.WithTimeoutCause(ctx, maxWait, over)
}
