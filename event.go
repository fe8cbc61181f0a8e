package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// An EventKind says what an [Event] is about.
type EventKind uint8

// The kinds of events. A request that passes at once causes one [EventStarted]. A request
// that is held causes an [EventWaiting] first. If the store does not answer, it causes a
// [EventStoreFailed], so that events explain every long silence.
const (
	EventWaiting        EventKind = iota + 1 // the request is held: Policy says by which limit
	EventStarted                             // the request is handed on
	EventRefused                             // the request was not sent: Err says why
	EventGaveUp                              // the caller's context ended while the request was held
	EventStale                               // a grant was too old when it could be used, and the caller books again
	EventLate                                // the request was sent later than Jitter allows
	EventPenalized                           // an answer closed the budget; a repeated ban closes it for longer than Duration, as an EventClosed will tell
	EventShadowed                            // a shadow policy would have held the request
	EventStoreFailed                         // the store does not answer yet, or did not take a report: Err says why
	EventFunctionFailed                      // a function of the program panicked or returned nonsense, and the request went on: Err says which
	EventIllegible                           // an answer is in a coding that the policy cannot read, such as br or zstd; once for each policy: Err says which
	EventLowered                             // a refusal although the budget had room lowered the ceiling of an Adaptive policy: From and To say how far
	EventStillWaiting                        // the caller has been held for Config.LongWait, and again after twice as long, and so on
	EventClosed                              // a caller has met a budget that was closed elsewhere or by hand: Note has the operator's note, if any
	EventOpened                              // a caller starts under a budget that was EventPenalized or EventClosed: it is open again
	EventUnmatched                           // no policy matches the request: nothing holds it, unless Config.Unmatched refuses it; Host says where it goes
	EventDropped                             // the program dropped a permit without Release, or an answer's body without closing it, and its slots were given back: see [Permit.Release] and [Concurrency]
	EventOff                                 // throttle is off, and the request starts under Policy without a limit: Note says who turned it off, Err what would have refused it; without a Policy: New found the variable THROTTLE_OFF
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
	Kind   EventKind
	Policy string // the policy that decided, or ""
	Budget string // the budget of Policy, its key hashed, or ""
	Limit  Limit  // the limit of Policy
	Paused bool   // the budget is closed, by a penalty or by hand, and not full
	Err    error  // as Kind says, or nil

	Host    string          // EventUnmatched: the host of the request, as [Host] has it
	Note    store.PauseNote // the note of the operator who paused the budget or, in an EventOff, turned throttle off, or zero
	Callers int             // EventWaiting, EventStillWaiting: how many callers of this program Policy holds, including this caller
	Left    time.Duration   // EventStillWaiting: how long the caller will still be held, if known

	// Duration is a length of time that depends on Kind:
	//
	//	EventWaiting                 how long the request will be held, if known
	//	EventStarted                 how long it was held
	//	EventRefused, EventGaveUp    how long it was held
	//	EventOff                     how long it was held
	//	EventStale                   how long ago its start was
	//	EventLate                    how much later it was sent than Jitter allows
	//	EventPenalized, EventClosed  for how long the budget is closed
	//	EventStillWaiting            how long the caller has been held
	//	EventOpened                  how long ago this program learned that the budget was closed
	//	EventShadowed                how much later the request would have started
	//	EventStoreFailed             how long the request has been held; for a penalty or a quota
	//	                             that the store did not take: its length, its reset
	//	others                       0
	Duration time.Duration

	From, To float64 // EventLowered: the ceiling before and after, in units of Limit.N
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

// event returns the Event that the observer gets for an event of a caller. If no budget
// decided, the Event names the policy of the error, if there is one.
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

// decidedBy returns the policy that an error names, "" if it names none, and that policy's limit.
func decidedBy(err error) (policy string, l Limit) {
	var limited *LimitError
	var wrong *ConfigError
	if errors.As(err, &limited) {
		return limited.Policy, limited.Limit
	} else if errors.As(err, &wrong) {
		return wrong.Policy, Limit{}
	}
	return "", Limit{}
}
