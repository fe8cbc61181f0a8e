package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// An EventKind says what has happened.
type EventKind uint8

// The kinds of events. A request that passes at once causes one [EventStarted]. A request
// that is held causes an [EventWaiting] first. If the store does not answer, the request
// causes an [EventStoreFailed], so that events explain every long silence.
const (
	EventWaiting EventKind = iota + 1 // Policy holds the caller
	EventStarted                      // the request goes to the base of the Transport, or Acquire returns
	EventRefused                      // the request is not sent: Err says why, as a *LimitError, *StoreError, *ConfigError or *UnmatchedError
	EventGaveUp                       // the context of the caller ended while the caller was held: Err says so
	EventStale                        // the start was too old when the request could be sent, and a new start is booked
	EventLate                         // the request was written later than Jitter allows, so the API may count one request too many

	// An answer to this program, or [Permit.Tell], closed the budget. A repeated ban closes the budget for longer than
	// Duration, as an EventClosed will tell.
	EventPenalized

	EventShadowed // a shadow policy would have held the caller

	// The store does not answer, once for each caller and outage; or the store did not take a penalty, a quota or a cost:
	// Err says why, and where.
	EventStoreFailed

	EventFunctionFailed // a function of the program panicked or returned an impossible value, and the caller went on: Err names the function
	EventIllegible      // an answer has a coding that throttle cannot read, such as br or zstd, once for each policy: Err names the coding
	EventLowered        // a refusal although the budget had room lowered the ceiling of an Adaptive policy: From and To say how far
	EventStillWaiting   // the caller has been held for [Config.LongWait], and again after twice, four times as long, and so on

	// A caller met a budget that was closed by an answer to a different program, by hand, or for longer than the
	// EventPenalized said, once per closing. Note has the operator and the reason of a pause. Without a Note an answer
	// closed the budget, or the pause has no note.
	EventClosed

	EventOpened // the first start after an EventPenalized or EventClosed: the budget is open

	// No policy matches the request. Nothing holds the request, unless [Config.Unmatched] refuses it, or there were no
	// policies yet, as Err then says. Host says where the request goes.
	EventUnmatched

	// The program dropped a permit of a [Concurrency] limit without [Permit.Release], under a context that never ends, or
	// an answer whose body the program neither read to the end nor closed, under a context without a deadline. The garbage
	// collector gave the slots back.
	EventDropped

	// Throttle is off, and the caller starts under Policy without a limit: Note says who turned throttle off, Err what
	// would have refused the caller. Without a Policy a constructor found the variable THROTTLE_OFF.
	EventOff
)

// String returns the kind's name in lower case.
func (k EventKind) String() string {
	names := [...]string{"", "waiting", "started", "refused", "gave up", "stale", "late", "penalized", "shadowed", "store failed", "function failed", "illegible", "lowered", "still waiting", "closed", "opened", "unmatched", "dropped", "off"}
	if int(k) < len(names) && k > 0 {
		return names[k]
	}
	return "unknown"
}

// An Event tells [Config.Observe] what happened to one request. throttle puts no URL, no
// token and no raw key into an Event, so it can be logged. A program that ends a context
// with a cause of its own, see [context.WithCancelCause], finds the cause in the Err of an
// [EventGaveUp].
type Event struct {
	Kind   EventKind // what happened
	Policy string    // the policy that decided, or "" if no policy decided
	Budget string    // the budget of Policy, its key hashed, or ""
	Limit  Limit     // the limit of Policy, or zero if Err is a *ConfigError, which does not know it
	Paused bool      // the budget is closed, by a penalty or by hand; otherwise the budget is full
	Err    error     // as Kind says, or nil

	Host    string          // EventUnmatched: the host of the request, as [Host] has it
	Note    store.PauseNote // EventClosed, EventOff and events of a paused budget: the operator's note, or zero
	Callers int             // EventWaiting, EventStillWaiting: how many callers of this program Policy holds, this caller included
	Left    time.Duration   // EventStillWaiting: how long the caller will still be held. Zero means that nobody knows, as behind Concurrency.

	// Duration is a length of time that depends on Kind:
	//
	//	EventWaiting                 how long the caller will be held, or 0 if nobody knows
	//	EventStarted, EventRefused   how long the caller was held
	//	EventGaveUp, EventOff        how long the caller was held
	//	EventStale                   how long ago the start was
	//	EventLate                    how much later than Jitter allows the request was written
	//	EventPenalized, EventClosed  for how long the budget is closed
	//	EventStillWaiting            how long the caller has been held
	//	EventOpened                  how long ago this program learned that the budget was closed
	//	EventShadowed                how much later the start would have been
	//	EventStoreFailed             how long the caller has been held; the length of a penalty, or
	//	                             the reset of a quota, that the store did not take
	//	others                       0
	Duration time.Duration

	From float64 // EventLowered: the ceiling before, in units of Limit.N
	To   float64 // EventLowered: the ceiling after, in units of Limit.N
}

// eventOf returns an event about the budget of a charge.
func eventOf(k EventKind, c *store.Charge, d time.Duration, err error) Event {
	return Event{Kind: k, Policy: c.Budget.Policy, Budget: c.Budget.String(), Limit: c.Limit, Duration: d, Err: err}
}

// kindOf returns the kind of an event of a caller's way to its start.
func kindOf(k acquire.EventKind) EventKind {
	kinds := [...]EventKind{
		acquire.EventWaiting:      EventWaiting,
		acquire.EventStillWaiting: EventStillWaiting,
		acquire.EventStarted:      EventStarted,
		acquire.EventRefused:      EventRefused,
		acquire.EventGaveUp:       EventGaveUp,
		acquire.EventStale:        EventStale,
		acquire.EventLate:         EventLate,
		acquire.EventShadowed:     EventShadowed,
		acquire.EventStoreFailed:  EventStoreFailed,
		acquire.EventClosed:       EventClosed,
		acquire.EventOpened:       EventOpened,
		acquire.EventOff:          EventOff,
	}

	return kinds[k]
}

// tell tells the observer of an event of a caller.
func (e *engine) tell(ctx context.Context, told acquire.Event) { e.observe(e.event(ctx, told)) }

// event returns the Event that the observer gets for an event of a caller, and its context: ctx or,
// if the event has an error of the store, the context of withQuestion. If no budget decided, the
// Event has the policy and the limit that decidedBy finds in the error.
func (e *engine) event(ctx context.Context, told acquire.Event) (context.Context, Event) {
	ev := Event{
		Kind: kindOf(told.Kind), Err: told.Err, Paused: told.Paused, Note: told.Note,
		Duration: told.Duration, Callers: told.Callers, Left: told.Left,
	}

	switch c := told.Charge; {
	case c != nil:
		ev.Policy, ev.Budget, ev.Limit = c.Budget.Policy, c.Budget.String(), c.Limit
	case told.Err != nil:
		ev.Policy, ev.Limit = decidedBy(told.Err)
	}

	// After an error of the store the observer may ask whether the store answers again.
	if told.Err != nil {
		ctx = e.withQuestion(ctx, told.Err, told.Charges)
	}

	return ctx, ev
}

// endOf returns the kind of event for a caller that does not start: EventGaveUp if err says
// that its context ended, and otherwise EventRefused.
func endOf(err error) acquire.EventKind {
	var gone *gaveUpError
	if errors.As(err, &gone) {
		return acquire.EventGaveUp
	}
	return acquire.EventRefused
}

// decidedBy returns the policy and the limit of a *LimitError, or the policy of a *ConfigError and no limit, because the
// error does not know it. For every other error both are zero.
func decidedBy(err error) (policy string, l Limit) {
	var limited *LimitError
	var wrong *ConfigError
	if errors.As(err, &limited) {
		return limited.Policy, limited.Limit
	}
	if errors.As(err, &wrong) {
		return wrong.Policy, Limit{}
	}

	return "", Limit{}
}
