package throttle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// ErrLimited is matched, through [errors.Is] and through *url.Error, by every error of a
// request that was not sent because of a limit. The error itself is a *[LimitError]. Use
// ErrLimited where it is enough to know that the request can be sent later.
var ErrLimited = errors.New("throttle: not sent, because of a limit")

// A LimitError says which policy kept a request from being sent, because its wait would
// not have fitted [Config.MaxWait] and the deadline of the context, or because one start
// costs more than the whole limit. Nothing was spent on any budget. A LimitError matches
// [ErrLimited]. Send the request again after RetryAfter, let callers wait longer, or send
// fewer requests.
type LimitError struct {
	Policy string // the policy whose budget had no room in time
	Limit  Limit  // the limit of Policy

	// RetryAfter is how long it would have taken until the budget has room. Zero means that
	// the time is unknown, as for Concurrency. Never means that no wait helps.
	RetryAfter time.Duration

	// Paused says that a penalty or a pause closes the budget. Otherwise the budget is full.
	Paused bool

	// Shares is set if the line has no place for the caller's share, because callers of
	// Shares other shares wait, as many as the store tells apart. Otherwise Shares is 0.
	Shares int

	// Note is the note of the operator who paused the budget. It is zero if a penalty closes
	// the budget, or if nothing is known of the pause.
	Note store.PauseNote

	cost      int           // the request's cost, if the cost is above the limit, or 0
	couldWait time.Duration // how long the caller could still have waited when it was refused
	boundedBy acquire.Bound // what bounded couldWait
}

// Error implements error. It names the policy and the limit, says how long the caller would have
// had to wait and what bounded its wait, and holds no key and no URL.
func (e *LimitError) Error() string {
	head := fmt.Sprintf("throttle: policy %q (%v): ", e.Policy, e.Limit)
	switch {
	case e.cost > 0:
		return head + fmt.Sprintf("a cost of %d can never fit", e.cost)
	case e.RetryAfter == Never:
		return head + "the next window is too far away to book a start in"
	case e.Shares > 0:
		return head + fmt.Sprintf("callers of %d other shares wait, and the store tells no more apart", e.Shares)
	}

	// The bound is shorter than the wait.
	return head + e.wait() + e.bound()
}

// wait says why the caller would have had to wait, and for how long.
func (e *LimitError) wait() string {
	wait := "would wait " + brief(e.RetryAfter)
	switch {
	case e.RetryAfter == 0:
		return "no room yet"
	case e.Paused && e.Note != (store.PauseNote{}):
		return e.Note.String() + ", " + wait
	case e.Paused:
		return "closed by a penalty, " + wait
	}
	return wait
}

// bound says what bounded the caller's wait. It is "" if nothing did.
func (e *LimitError) bound() string {
	switch {
	case e.boundedBy == acquire.BoundNone:
		return ""
	case e.boundedBy == acquire.BoundDefaultOver:
		return ", but waited the default of one minute; set MaxWait"
	case e.boundedBy == acquire.BoundDefault:
		return ", but waits at most the default of one minute; set MaxWait"
	case e.boundedBy == acquire.BoundMaxWaitOver:
		return ", but MaxWait is over"
	// MaxWait is negative, or the deadline has come.
	case e.couldWait <= 0:
		return ", but may not wait at all"
	case e.boundedBy == acquire.BoundDeadline:
		return ", but the deadline is in " + brief(e.couldWait)
	}
	return ", but MaxWait is " + brief(e.couldWait)
}

// Is reports whether target is [ErrLimited].
func (e *LimitError) Is(target error) bool { return target == ErrLimited }

// A StoreError says that the store did not answer, so it is unknown whether there was room.
// The request was not sent. A caller whose context ended while the store was away gets an
// error that matches both, by [errors.As] and [errors.Is]. The text names the server and the
// cause. Callers go on by themselves once the store answers; a missing right or a wrong
// password must be corrected.
type StoreError struct {
	Err error // the error of the store itself
}

// Error implements error.
func (e *StoreError) Error() string {
	return "throttle: the store could not be asked: " + strings.TrimPrefix(e.Err.Error(), "throttle: ")
}

// Unwrap returns the store's error.
func (e *StoreError) Unwrap() error { return e.Err }

// An UnmatchedError says that no policy matches a request, and that [Config.Unmatched] refuses
// such requests. The request was not sent. Correct the Match of the policy, or add a policy
// for these requests.
type UnmatchedError struct {
	Method string // of the request
	Host   string // of the request, as [Host] has it
}

// Error implements error.
func (e *UnmatchedError) Error() string {
	return fmt.Sprintf("throttle: no policy matches a %s request to %q: correct the policy's Match, or add a policy for these requests", e.Method, e.Host)
}

// A ConfigError is one mistake in a configuration, or in a call, such as a key for a policy
// without keys. [New], [NewLimiter], [NewLimiters] and [Transport.SetPolicies] report all
// mistakes at once, joined with [errors.Join]; use [errors.As] to look at the first. A request
// for which a function of a policy failed gets a ConfigError, too, and is not sent. The text
// suggests a remedy.
type ConfigError struct {
	Policy string // the policy's name, or its place in the slice ("#3") while it has none. It is "" for Config itself.
	Field  string // the field of Policy or Config
	Err    error  // the mistake, and a remedy
}

// Error implements error.
func (e *ConfigError) Error() string {
	if e.Policy == "" {
		return fmt.Sprintf("throttle: %s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("throttle: policy %q: %s: %v", e.Policy, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// A gaveUpError is the error of a caller whose own context ended while it waited. It matches the
// context's error and the cause, and implements net.Error.
type gaveUpError struct {
	policy string
	waited time.Duration
	note   store.PauseNote // of the pause that held the caller
	cause  error           // context.Cause
	err    error           // ctx.Err(), so that errors.Is finds it whatever the cause
	store  error           // why the store did not answer. It is nil if the limit held the caller.
}

// Error says for how long the caller waited, for what, and why it gave up.
func (e *gaveUpError) Error() string {
	text := "throttle: the caller gave up after "
	if e.policy == "" {
		text += fmt.Sprintf("%s: %v", brief(e.waited), e.cause)
	} else {
		text += fmt.Sprintf("waiting %s for policy %q", brief(e.waited), e.policy)
		if (e.note != store.PauseNote{}) {
			text += ", " + e.note.String()
		}
		text += fmt.Sprintf(": %v", e.cause)
	}

	if e.store != nil {
		text += "; " + strings.TrimPrefix(e.store.Error(), "throttle: ")
	}

	return text
}

func (e *gaveUpError) Unwrap() []error {
	if e.store == nil {
		return []error{e.cause, e.err}
	}
	return []error{e.cause, e.err, e.store}
}

// Timeout implements net.Error: it reports whether the context ended because of its deadline.
func (e *gaveUpError) Timeout() bool { return errors.Is(e.err, context.DeadlineExceeded) }

// Temporary implements net.Error, which leaves its meaning open.
func (e *gaveUpError) Temporary() bool { return e.Timeout() }

// callerErrors makes the errors of callers. It implements [acquire.Errors].
type callerErrors struct{}

// Refused implements [acquire.Errors].
func (callerErrors) Refused(r acquire.Refusal) error {
	e := &LimitError{
		RetryAfter: r.Wait, Paused: r.Paused, Shares: r.Shares, Note: r.Note,
		couldWait: r.CouldWait, boundedBy: r.By,
	}
	if r.Charge != nil {
		e.Policy, e.Limit = r.Charge.Budget.Policy, r.Charge.Limit
	}
	return e
}

// StoreFailed implements [acquire.Errors].
func (callerErrors) StoreFailed(err error) error { return &StoreError{err} }

// GaveUp implements [acquire.Errors].
func (callerErrors) GaveUp(d acquire.Departure) error {
	e := &gaveUpError{waited: d.Waited, note: d.Note, cause: d.Cause, err: d.Err, store: d.Store}
	if d.Charge != nil {
		e.policy = d.Charge.Budget.Policy
	}
	return e
}

// brief prints a duration with about three digits, which are enough for a message.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.String()
}

// negativeCost returns the error of work with a cost below 0.
func negativeCost(policy string) error {
	return &ConfigError{policy, "cost", errors.New("is negative: use 1 or more, or throttle.Free")}
}
