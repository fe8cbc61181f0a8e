package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// Config is the configuration of [New] and [NewLimiters]. The zero value of every field
// except Store is useful. The page on [events] lists the events that Observe gets, and the
// page on [the line] says how good the estimates of waits are.
//
// [events]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/metrics.md#events
// [the line]: https://github.com/fleetthrottle/throttle/blob/main/docs/internals/line.md
type Config struct {
	// Store keeps the budgets: memstore.New() for one process,
	// redisstore.New(client, redisstore.Options{}) for a fleet. Required, because only the
	// program knows who shares its limits. The store has the switch that turns throttle off,
	// if there is one: see [store.Switch].
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
	// is told of events.
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

// maxWaitOr returns for how long a caller with the context ctx, whose options are o, may be
// held. configured is the MaxWait of the configuration, which the options override. A negative
// result means not at all, and 0 means as long as ctx allows. byDefault says that neither the
// options nor the configuration set a MaxWait.
func (o *contextOptions) maxWaitOr(ctx context.Context, configured time.Duration) (maxWait time.Duration, byDefault bool) {
	maxWait = configured
	if o.setMaxWait {
		maxWait = o.maxWait
	}

	switch {
	case maxWait == Forever:
		return 0, false
	case maxWait != 0:
		return maxWait, false
	}

	if _, bounded := ctx.Deadline(); bounded {
		return 0, true
	}

	return defaultMaxWait, true
}

// boundCall returns the context of a program's call that asks or tells the store. The MaxWait
// of [WithMaxWait], if there is one, bounds the call beside the deadline of ctx. Without either,
// and with NoWait, defaultMaxWait bounds the call. Forever does not bound it.
func boundCall(ctx context.Context) (context.Context, context.CancelFunc) {
	o := optionsOf(ctx)
	maxWait, byDefault := o.maxWaitOr(ctx, 0)
	switch {
	case maxWait == 0:
		return ctx, func() {}
	case maxWait < 0: // a call cannot do without an answer of the store
		maxWait, byDefault = defaultMaxWait, true
	}

	cause := acquire.ErrWaitOver
	if byDefault {
		cause = acquire.ErrDefaultWaitOver
	}

	return context.WithTimeoutCause(ctx, maxWait, cause)
}

// An engine is what all callers of a [Transport], or of limiters that belong
// together, have in common.
type engine struct {
	store            Store
	traits           store.Traits                 // of the store
	inMemory         bool                         // no call of the store takes time
	refusesUnmatched bool                         // Config.Unmatched is UnmatchedRefuse
	defaultMaxWait   time.Duration                // as in Config
	observe          func(context.Context, Event) // nil if there is no observer
	callers          acquire.Engine               // what callers share on their way to a start
	idle             sync.Pool                    // of *quotedAcquisition: see newQuotedAcquisition
}

// configure sets the fields that come from a configuration, and turns throttle off if the
// environment says so. It returns the mistakes in Store and Unmatched. After an error the
// engine must not be used.
func (e *engine) configure(c Config) error {
	e.store, e.defaultMaxWait = c.Store, c.MaxWait
	e.observe = observer(c.Observe).guarded()

	var unknown error
	if c.Unmatched > UnmatchedRefuse {
		unknown = &ConfigError{"", "Unmatched", fmt.Errorf("%d is unknown: use UnmatchedPass or UnmatchedRefuse", c.Unmatched)}
	}
	if err := errors.Join(storeMistake(c.Store), unknown); err != nil {
		return err
	}

	// InMemory is the store whose methods take no time. A store that wraps it, and has its traits, takes time itself.
	e.traits = c.Store.Traits()
	e.inMemory = e.traits.InMemory == c.Store

	e.refusesUnmatched = c.Unmatched == UnmatchedRefuse
	e.callers.Store, e.callers.Traits, e.callers.Errors = e.store, e.traits, callerErrors{}

	// An environment that turns throttle off does so whatever the store's own switch says.
	e.callers.Switch = e.traits.Switch
	if off, ok := store.OffByEnvironment(); ok {
		e.turnOff(off)
	}

	// A negative LongWait turns its events off, as 0 does in the engine of callers.
	if e.observe != nil {
		e.callers.Observe = e.tell
		e.callers.LongWait = max(0, cmp.Or(c.LongWait, defaultLongWait))
	}

	return nil
}

// storeMistake returns what is wrong with Config.Store, or nil.
func storeMistake(s Store) error {
	if s == nil {
		return &ConfigError{"", "Store", errors.New("is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet")}
	}

	// A constructor that failed has returned a nil pointer, which is no nil Store.
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return &ConfigError{"", "Store", fmt.Errorf("a nil %T: check the error of its constructor", s)}
	}

	if err := s.Traits().Err; err != nil {
		return &ConfigError{"", "Store", err}
	}
	return nil
}

// turnOff turns throttle off for as long as the program runs, and tells the observer.
func (e *engine) turnOff(off store.Off) {
	e.callers.Switch = new(store.Switch)
	e.callers.Switch.TurnOff(off)
	if e.observe != nil {
		e.observe(context.Background(), Event{Kind: EventOff, Note: store.PauseNote{By: off.By, Reason: off.Reason}})
	}
}

// An acquisition is a caller of an engine that acquires a start.
type acquisition struct {
	acquire.Caller
	*engine
}

// init makes a zero acquisition ready for use.
func (a *acquisition) init(e *engine) {
	a.engine = e
	a.Caller.Init(&e.callers)
}

// report tells the observer of an event about the caller: of the kind k, with the duration d and
// the error err, if there is one.
func (a *acquisition) report(ctx context.Context, k acquire.EventKind, d time.Duration, err error) {
	if a.observe != nil {
		a.observe(a.event(ctx, k, d, err))
	}
}

// event returns what report tells the observer, for callers that hold a lock, and tell the observer afterwards.
func (a *acquisition) event(ctx context.Context, k acquire.EventKind, d time.Duration, err error) (context.Context, Event) {
	return a.engine.event(ctx, a.Caller.Event(k, d, err))
}

// reportEnd tells the observer of a caller that is not let start, because of err.
func (a *acquisition) reportEnd(ctx context.Context, err error) {
	a.report(ctx, endOf(err), a.Waited(), err)
}

// errNotMade is the error of a caller whose Transport, Limiters or Limiter no constructor has made.
func errNotMade() error {
	return &ConfigError{"", "Store", errors.New("is missing, because New, NewLimiters or NewLimiter has not made this value: make it with one of these")}
}

// noticeUnmatched tells the observer of a request that no policy of s matches. It returns an error if such requests are
// refused, or if the program has not named any policies yet: a program that forgets them would hold nothing, and not
// notice. While throttle is off nothing is refused. Without a store it returns errNotMade, and there is no observer.
func (e *engine) noticeUnmatched(s *policySet, r *http.Request) error {
	if e.store == nil {
		return errNotMade()
	}

	var err error
	switch {
	case s.awaitsPolicies:
		err = &ConfigError{"", "Policies", errors.New("are missing, so nothing would hold the request: name them in Config, or call SetPolicies first")}
	case e.refusesUnmatched:
		err = &UnmatchedError{Method: Method(r), Host: Host(r)}
	}

	// While throttle is off nothing is refused, and the event has no error.
	if err != nil && e.callers.IsOff() {
		err = nil
	}

	if e.observe != nil {
		e.observe(r.Context(), Event{Kind: EventUnmatched, Host: Host(r), Err: err})
	}

	return err
}

// A storeQuestion asks the store whether it answers for the budgets of a group.
type storeQuestion struct {
	*engine
	group string
}

// errUnanswered is the error of unansweredError.
var errUnanswered = errors.New("throttle: callers wait for the store's answer")

// Ask implements [outage.Question]. A store that can read but not write would answer the question,
// although it answers no caller, so Ask looks first whether callers wait for an answer.
func (q storeQuestion) Ask(ctx context.Context) error {
	if err := q.unansweredError(); err != nil {
		return err
	}
	_, err := q.statusOrAway(ctx, livenessCharge(q.group))
	return err
}

// livenessCharge returns a charge of a budget that nobody uses, in a group: the store is asked for
// its status to learn whether the server of the group answers.
func livenessCharge(group string) store.Charge {
	return store.Charge{Budget: Budget{Group: group}, Limit: PerSecond(1), Cost: 1}
}

// unansweredError returns errUnanswered while callers wait for a store after an
// EventStoreFailed, and otherwise nil.
func (e *engine) unansweredError() error {
	if e.callers.Unanswered() {
		return errUnanswered
	}
	return nil
}

// statusOrAway asks the store for the status of a budget. If the store is away and a second
// store answers in its place, the error says why the first store is away.
func (e *engine) statusOrAway(ctx context.Context, c store.Charge) (Status, error) {
	var away error
	st, err := e.store.Status(outage.WithObserver(ctx, func(err error) { away = err }), c)
	return st, cmp.Or(err, away)
}

// withQuestion returns the context of an event about charges. If err, the event's error, is a
// StoreError, and some of the charges are the fleet's, the context has a storeQuestion, by which an
// observer can ask whether the store answers again.
func (e *engine) withQuestion(ctx context.Context, err error, charges []store.Charge) context.Context {
	if _, failed := errors.AsType[*StoreError](err); !failed {
		return ctx
	}

	// Node charges are kept in this process: only the fleet's store can be away.
	i := slices.IndexFunc(charges, func(c store.Charge) bool { return !c.Node })
	if i < 0 {
		return ctx
	}

	return outage.WithQuestion(ctx, storeQuestion{e, charges[i].Budget.Group})
}

// A quotedAcquisition acquires a start under policies that may be replaced meanwhile.
type quotedAcquisition struct {
	acquisition
	policies *policySet
	quote    quote // its charges are the charges of the booking

	dialTook time.Duration // how long the base took to get a connection, in the request's last attempt that got one
	settled  settlement    // of the costs

	// The memory of the quote, so that a provider's table costs no allocation.
	chargeBuf   [fewPolicies]store.Charge
	policyBuf   [fewPolicies]*compiledPolicy
	zeroCostBuf [2]zeroCost
}

// newQuotedAcquisition returns an acquisition of the caller's own. It may have been used
// before: see recycle.
func (e *engine) newQuotedAcquisition() *quotedAcquisition {
	a, _ := e.idle.Get().(*quotedAcquisition)
	if a == nil {
		a = new(quotedAcquisition)
		a.init(e)
	}
	return a
}

// recycle frees the acquisition, whose caller does not need it any more, for the next caller. If the store may
// still use it, the garbage collector gets it instead.
//
// Invariant: only the caller of recycle has a pointer to the acquisition or to a charge of
// its quote. Stores keep neither when their methods have returned and the watch has ended,
// events are made of copies, and a permit copies everything that it holds.
func (a *quotedAcquisition) recycle() {
	a.StopWatch()
	reusable := a.Reuse()
	if reusable {
		a.policies, a.quote.unpriced, a.settled.booked = nil, nil, nil
		a.dialTook = 0
		a.engine.idle.Put(a)
	}
}

// newQuote notes the policies, and returns the caller's quote to be filled in under them.
func (a *quotedAcquisition) newQuote(s *policySet) *quote {
	a.policies = s
	if a.quote.charges == nil {
		a.quote = quote{charges: a.chargeBuf[:0], policies: a.policyBuf[:0], zeroCost: a.zeroCostBuf[:0]}
	}
	return &a.quote
}

// useQuote makes the charges of the quote the charges of the booking, tells the observer of the
// shadow policies that could not be priced, and checks the costs. failed is the error of the
// quote, or nil. useQuote returns failed, or the error of a cost. While throttle is off no mistake
// refuses the caller, and useQuote returns nil.
func (a *quotedAcquisition) useQuote(ctx context.Context, failed error) error {
	for i := range a.quote.unpriced {
		f := &a.quote.unpriced[i]
		a.functionFailed(ctx, f.policy, f.err)
	}

	// A caller that is refused has its charges, too: its events name the budgets.
	a.SetCharges(a.quote.charges)
	if failed == nil {
		failed = checkCosts(a.Booking.Charges)
	}

	if failed != nil && a.callers.IsOff() {
		a.passDespite(ctx, failed)
		return nil
	}

	return failed
}

// passDespite is for a caller that throttle would refuse with err if it were not off. It counts the
// caller, unless Book will, and tells the observer.
func (a *acquisition) passDespite(ctx context.Context, err error) {
	// Book counts a caller that has charges, so count here only a caller that never books.
	if len(a.Booking.Charges) == 0 {
		a.callers.Switch.Pass()
	}
	if a.observe != nil {
		e := Event{Kind: EventOff, Err: err}
		e.Policy, e.Limit = decidedBy(err)
		a.observe(ctx, e)
	}
}

// functionFailed tells the observer that a function of a policy failed, although the request, or
// its response, goes on.
func (a *acquisition) functionFailed(ctx context.Context, p *compiledPolicy, err error) {
	if a.observe != nil {
		a.observe(ctx, Event{Kind: EventFunctionFailed, Policy: p.Name, Limit: p.Limit, Err: err})
	}
}

// hasNoPolicy reports whether no policy holds the caller. The result may change while the
// caller waits, when the policies are replaced.
func (a *quotedAcquisition) hasNoPolicy() bool { return len(a.quote.policies) == 0 }

// policyCount returns how many policies the caller has, including those under which it costs
// nothing.
func (a *quotedAcquisition) policyCount() int { return len(a.quote.policies) + len(a.quote.zeroCost) }

// policy returns one of the caller's policies, with its charge: i is below policyCount, and the
// policies under which the caller costs nothing come last.
func (a *quotedAcquisition) policy(i int) (*compiledPolicy, *store.Charge) {
	if n := len(a.quote.policies); i >= n {
		z := &a.quote.zeroCost[i-n]
		return z.policy, &z.charge
	}
	return a.quote.policies[i], &a.Booking.Charges[i]
}

// acquireStart holds the caller until it may go on: until its start, or Lead before its start.
// reprice makes and uses a new quote; it is called when the policies were replaced. If no policy
// holds the caller then, it goes on without a start: see hasNoPolicy.
func (a *quotedAcquisition) acquireStart(ctx context.Context, reprice func() error) error {
	return a.acquireAs(ctx, acquire.Wait{}, reprice)
}

// acquireAs holds the caller as acquireStart does, and w says how it waits.
func (a *quotedAcquisition) acquireAs(ctx context.Context, w acquire.Wait, reprice func() error) error {
	// Each pass is a wait under one set of policies. SetPolicies ends it with ErrReplaced.
	for {
		w.Early, w.Replaced = a.Lead, a.policies.replaced
		err := a.Acquire(ctx, w)
		if err != acquire.ErrReplaced {
			return err
		}

		if err = a.Reprice(ctx, reprice); err != nil || a.hasNoPolicy() {
			return err
		}
	}
}

// checkCosts returns the error of a charge whose cost is above the part of the limit that the
// charge may use, so that no wait can make it fit. It lowers such a cost of a shadow charge
// instead.
func checkCosts(charges []store.Charge) error {
	for i := range charges {
		c := &charges[i]
		switch fits := c.Limit.Capacity() - c.KeepFree; {
		case c.Cost <= fits:
		case c.Shadow:
			c.Cost = fits // a shadow policy refuses nobody, so it counts as much as fits
		default:
			return &LimitError{Policy: c.Budget.Policy, Limit: c.Limit, RetryAfter: Never, cost: c.Cost}
		}
	}
	return nil
}
