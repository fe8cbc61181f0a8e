package envoy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// places is the queue of requests and calls that wait.
type places struct {
	most, mostPerBudget int

	mu       sync.Mutex
	held     map[*place]bool
	byBudget map[string]int // number of waiting requests by budget
	stopBy   time.Time      // deadline for starts while the server stops, zero while it runs
}

// A place is one waiting request. The mutex of places guards its fields below the blank line.
type place struct {
	all *places
	end context.CancelCauseFunc // ends the wait

	budget   string    // budget that holds the request, "" if unknown
	startsAt time.Time // expected start, zero if unknown
}

// A placeError says that a request has no place: the queue is full, or the server stops.
type placeError struct {
	text   string
	after  time.Duration // when to come again
	policy string        // whose budget has too many callers, or ""
	reason reason
}

// Error implements error.
func (e *placeError) Error() string { return e.text }

// soon is the Retry-After of a request without a place.
const soon = time.Second

// errStopping ends the wait of a request whose start is too late for a server that stops.
var errStopping = &placeError{text: "this server ends", after: soon, reason: stopping}

func newPlaces(most, mostPerBudget int) *places {
	return &places{most: most, mostPerBudget: mostPerBudget, held: make(map[*place]bool), byBudget: make(map[string]int)}
}

// enter gives a request a place, or returns a *placeError. end ends the wait with a cause.
func (a *places) enter(end context.CancelCauseFunc) (*place, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.stopBy.IsZero():
		return nil, errStopping
	case len(a.held) >= a.most:
		return nil, &placeError{text: "too many requests wait in this server", after: soon, reason: heldFull}
	}

	p := &place{all: a, end: end}
	a.held[p] = true
	return p, nil
}

// leave gives the place back. Further calls do nothing.
func (p *place) leave() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	delete(p.all.held, p)
	p.leaveBudget()
}

// leaveBudget notes that no budget holds the request. The mutex is held.
func (p *place) leaveBudget() {
	if p.budget == "" {
		return
	}
	p.all.byBudget[p.budget]--
	if p.all.byBudget[p.budget] == 0 {
		delete(p.all.byBudget, p.budget)
	}
	p.budget = ""
}

// holdAt notes which budget holds the request, "" if unknown, and for how long, 0 if unknown. It ends the wait if too
// many requests wait for the budget.
func (p *place) holdAt(budget, policy string, wait time.Duration) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()

	if !p.all.held[p] {
		return // the request has left
	}

	p.leaveBudget()
	p.startsAt = time.Time{}
	if wait > 0 {
		p.startsAt = time.Now().Add(wait)
	}

	if budget != "" {
		if p.all.byBudget[budget] >= p.all.mostPerBudget {
			p.end(&placeError{text: "too many requests wait in this server for the same budget", after: max(soon, wait), policy: policy, reason: heldFull})
			return
		}
		p.budget = budget
		p.all.byBudget[budget]++
	}
}

// stop closes the queue. It ends waits that are known to be longer than the deadline now, and all remaining waits at the
// deadline.
func (a *places) stop(by time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.stopBy = by
	for p := range a.held {
		if p.startsAt.After(by) {
			p.end(errStopping)
		}
	}

	time.AfterFunc(time.Until(by), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for p := range a.held {
			p.end(errStopping)
		}
	})
}

// stops reports whether stop was called.
func (a *places) stops() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.stopBy.IsZero()
}

// count returns the number of waiting requests.
func (a *places) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held)
}

// placeKey is the context key of a *place.
type placeKey struct{}

// Observe tells the [Server] of a request which budget holds the request, for [Config.HeldPerBudget] and [Server.Stop].
// Set it as [throttle.Config.Observe] of the server's transport and limiters, or call it there with the same context.
// Safe for concurrent use.
func Observe(ctx context.Context, e throttle.Event) {
	p, _ := ctx.Value(placeKey{}).(*place)
	switch {
	case p == nil:
	case e.Kind == throttle.EventWaiting:
		p.holdAt(e.Budget, e.Policy, e.Duration)
	case e.Kind == throttle.EventStillWaiting:
		p.holdAt(e.Budget, e.Policy, e.Left)
	}
}

// hold returns the context of a request that waits, with a place, and with the wait and the priority of its
// caller. The place is given back when the request has its start or is refused.
func (s *Server) hold(ctx context.Context, end context.CancelCauseFunc, maxWait time.Duration, priority throttle.Priority) (context.Context, *place, error) {
	p, err := s.places.enter(end)
	if err != nil {
		return nil, nil, err
	}
	ctx = context.WithValue(ctx, placeKey{}, p)
	return throttle.WithPriority(throttle.WithMaxWait(ctx, maxWait), priority), p, nil
}

// asPlaceError returns the *placeError that ended a wait, if one did.
func asPlaceError(ctx context.Context, err error) (e *placeError, ok bool) {
	if errors.As(err, &e) {
		return e, true
	}
	ok = errors.As(context.Cause(ctx), &e)
	return e, ok
}
