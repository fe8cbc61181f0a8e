package throttle

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// Config is what [New] and [NewLimiters] need. The zero value of every field but
// Store is useful. The page on [events] lists what Observe is told, and the page on
// [the line] says how good the estimates of waits are.
//
// [events]: https://github.com/fleetthrottle/throttle/blob/main/docs/events.md
// [the line]: https://github.com/fleetthrottle/throttle/blob/main/docs/internals/line.md
type Config struct {
	// Store keeps the budgets: memstore.New() for one process,
	// redisstore.New(client, redisstore.Options{}) for a fleet. Required, because that is the
	// question a limit raises.
	Store Store

	// Policies are the limits. They can be replaced later: see
	// [Transport.SetPolicies]. Without any, requests are refused until SetPolicies is called.
	Policies []Policy

	// Base sends the requests of a [Transport]. Defaults to an [http.Transport] of its
	// own: a copy of [http.DefaultTransport] at the time of [New], but with up to 256
	// idle connections to a host, because with the 2 of http.DefaultTransport each of
	// many workers dials for each request. A MaxIdleConnsPerHost that the program has
	// set there stays. Protocols that it has registered there are not copied. If the
	// program has replaced http.DefaultTransport by another type, that is the Base.
	Base http.RoundTripper

	// Unmatched says what becomes of a request that no policy matches, because of a typo in Match perhaps, or another
	// base URL. Defaults to [UnmatchedPass].
	Unmatched Unmatched

	// MaxWait bounds how long a caller is held, and [WithMaxWait] does so for one
	// request. If the wait cannot fit MaxWait and the deadline of the context, the
	// request is refused at once and spends nothing; http.Client.Timeout is a
	// deadline, too. That is decided by an estimate: the page on the line says how good it
	// is. If the context ends during the wait, the place is given back.
	//
	// A store that cannot be reached is asked again for as long as MaxWait and the
	// context allow, and nothing is sent meanwhile. redisstore.Options has other ways
	// to go on.
	//
	// MaxWait holds for each attempt of a retrier: five attempts wait for five times
	// MaxWait at most. A deadline of the context holds for all attempts together.
	//
	// [NoWait], or any negative value, refuses a request that would have to wait.
	// [Forever] holds it for as long as its context allows. Zero means that the
	// deadline of the context bounds the wait, and a minute does if the context has no
	// deadline.
	MaxWait time.Duration

	// Observe is told what happens to each request: why it waits, which policy
	// holds it, that a budget was closed elsewhere and is open again, that the
	// store does not answer. The page on events lists all. Observe is called on the
	// request's way, by many goroutines, and must not block. A panic ends
	// there, and Observe is told of it by an [EventFunctionFailed]. [Observers]
	// makes one of several, and package slogthrottle has one that logs. Defaults
	// to nil: nobody is told.
	Observe func(context.Context, Event)

	// LongWait is how long a caller is held before Observe gets an [EventStillWaiting]; it gets
	// another after twice as long, and so on. Negative: none. It is nothing without
	// Observe. Defaults to 10 s.
	LongWait time.Duration
}

// Unmatched is what becomes of a request that no policy matches. Observe is told of each such request by an
// [EventUnmatched].
type Unmatched uint8

const (
	UnmatchedPass   Unmatched = iota // the request is sent, and nothing holds it
	UnmatchedRefuse                  // the request is not sent, and fails with an *[UnmatchedError]
)

// defaultLongWait is the LongWait of a Config that does not set one.
const defaultLongWait = 10 * time.Second

// defaultMaxWait bounds the wait of a caller that nobody bounded: neither
// Config.MaxWait, nor WithMaxWait, nor a deadline of its context.
const defaultMaxWait = time.Minute

// How long a caller may be held, as [Config.MaxWait] and [WithMaxWait] say it.
const (
	// NoWait refuses a caller that would have to wait.
	NoWait time.Duration = -1

	// Forever holds a caller for as long as its context allows.
	Forever time.Duration = math.MaxInt64
)

// Free is the cost of work that takes nothing of a budget, as an argument of
// [Limiter.Acquire] or in a [Demand], where 0 is the default of 1. It can still close
// the budget: see [Permit.Tell]. It is no number that a computation comes to by
// mistake, such as the -1 of an unknown length, which is refused.
const Free = math.MinInt

// WithMaxWait returns a context whose requests are held at most d instead of
// [Config.MaxWait], with the same meaning of 0, [NoWait] and [Forever]: 0 is the
// default, and not the MaxWait of the Config. It also bounds [Limiter.Acquire],
// [Limiters.Acquire] and [Permit.Renew].
func WithMaxWait(ctx context.Context, d time.Duration) context.Context {
	o := optionsOf(ctx)
	o.maxWait, o.setMaxWait = d, true
	return o.addTo(ctx)
}

// WithWaitOnly returns a context that bounds the wait of [Limiter.Acquire] and the others
// alone. Without it the work ends with the context, too: what a limit of [Concurrency]
// counts as in flight is given back when the context ends, as [Permit.Release] does.
// A [Transport] takes no notice of it.
func WithWaitOnly(ctx context.Context) context.Context {
	o := optionsOf(ctx)
	o.waitOnly = true
	return o.addTo(ctx)
}

// WithPriority returns a context whose requests have priority p. In the line
// for a start High goes before Normal, and Normal before Low. Requests of a
// priority for which a policy has [Policy.Headroom] leave that share of its limit free,
// also when nobody waits. A start that is booked, for the next second at most, is never
// taken away by a request that matters more. A p above High is High, and one below Low
// is Low.
func WithPriority(ctx context.Context, p Priority) context.Context {
	o := optionsOf(ctx)
	o.priority = max(PriorityLow, min(p, PriorityHigh))
	return o.addTo(ctx)
}

// The contextOptions are what a context says of the calls that are made with it: see
// [WithMaxWait], [WithWaitOnly] and [WithPriority]. They lie together, so that a call asks its context
// once.
type contextOptions struct {
	priority   Priority
	maxWait    time.Duration
	setMaxWait bool // else Config.MaxWait counts
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

// maxWaitOr returns for how long a caller with the context and its options may be
// held where its configuration says d: less than 0 for not at all, and 0 for as
// long as the context allows. byDefault says that neither the options nor the
// configuration set a bound.
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

// boundCall returns the context of a call that a program makes to tell the store
// something, or to ask it: where neither a deadline nor [WithMaxWait] bounds the call,
// defaultMaxWait does.
func boundCall(ctx context.Context) (context.Context, context.CancelFunc) {
	o := optionsOf(ctx)
	most, byDefault := o.maxWaitOr(ctx, 0)
	switch {
	case most == 0:
		return ctx, func() {}
	case most < 0: // a call cannot do without an answer of the store
		most, byDefault = defaultMaxWait, true
	}

	over := acquire.ErrWaitOver
	if byDefault {
		over = acquire.ErrDefaultWaitOver
	}

	return context.WithTimeoutCause(ctx, most, over)
}
