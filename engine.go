package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// An engine is what all callers of a [Transport], or of limiters that belong
// together, have in common.
type engine struct {
	store            Store
	traits           store.Traits                 // of the store
	inMemory         bool                         // no call of the store takes time
	refusesUnmatched bool                         // Config.Unmatched is UnmatchedRefuse
	defaultMaxWait   time.Duration                // as in Config
	observe          func(context.Context, Event) // nil if there is no observer
	callers          acquire.Engine               // of the way of each caller to its start
	idle             sync.Pool                    // of *quotedAcquisition: see newQuotedAcquisition
}

// configure sets the fields that come from a configuration. It returns the error of a
// missing or unfit Store, or of Unmatched.
func (e *engine) configure(c Config) error {
	e.store, e.defaultMaxWait, e.observe = c.Store, c.MaxWait, observer(c.Observe).guarded()
	if c.Store == nil {
		return &ConfigError{"", "Store", errors.New("is required: memstore.New() for one process, redisstore.New(client, redisstore.Options{}) for a fleet")}
	}

	// A constructor that failed has returned a nil pointer, which is no nil Store.
	if v := reflect.ValueOf(c.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		return &ConfigError{"", "Store", fmt.Errorf("a nil %T: check the error of its constructor", c.Store)}
	}

	traits := c.Store.Traits()
	if traits.Err != nil {
		return &ConfigError{"", "Store", traits.Err}
	}

	if c.Unmatched > UnmatchedRefuse {
		return &ConfigError{"", "Unmatched", fmt.Errorf("%d is unknown: use UnmatchedPass or UnmatchedRefuse", c.Unmatched)}
	}

	e.traits, e.inMemory, e.refusesUnmatched = traits, traits.InMemory == c.Store, c.Unmatched == UnmatchedRefuse

	e.callers.Store, e.callers.Traits, e.callers.Errors = e.store, e.traits, callerErrors{}
	if e.observe != nil {
		e.callers.Observe = e.tell
		e.callers.LongWait = max(0, cmp.Or(c.LongWait, defaultLongWait))
	}

	return nil
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

// report tells the observer of an event about the caller.
func (a *acquisition) report(ctx context.Context, k acquire.EventKind, d time.Duration, err error) {
	if a.observe != nil {
		a.observe(a.event(ctx, k, d, err))
	}
}

// event returns what report tells the observer, for callers that hold a lock: they tell it afterwards.
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

// noticeUnmatched tells the observer of a request that none of the policies matches. It returns an error if such requests are
// refused, or if there were no policies ever: a program that forgets them would hold nothing, and not notice.
func (e *engine) noticeUnmatched(s *policySet, r *http.Request) error {
	if e.store == nil {
		return errNotMade()
	}

	var err error
	switch {
	case s.isAwaited:
		err = &ConfigError{"", "Policies", errors.New("are missing, so nothing would hold the request: name them in Config, or call SetPolicies first")}
	case e.refusesUnmatched:
		err = &UnmatchedError{Method: Method(r), Host: Host(r)}
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

// Ask implements [outage.Question]. A store that cannot write answers a question but no caller, so
// Ask looks first whether callers wait for an answer.
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

// withQuestion returns the context of an event about charges. If the event's error is a StoreError,
// the context has a storeQuestion, by which an observer can ask whether the store answers again.
func (e *engine) withQuestion(ctx context.Context, err error, charges []store.Charge) context.Context {
	if _, failed := errors.AsType[*StoreError](err); !failed {
		return ctx
	}
	i := slices.IndexFunc(charges, func(c store.Charge) bool { return !c.Node })
	if i < 0 {
		return ctx
	}
	return outage.WithQuestion(ctx, storeQuestion{e, charges[i].Budget.Group})
}
