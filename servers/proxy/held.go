package proxy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// places is the queue of requests that wait.
type places struct {
	most, mostPerBudget int

	mu       sync.Mutex
	held     map[*place]bool
	byBudget map[string]int // number of waiting requests by budget
	stopBy   time.Time      // deadline for starts while the handler stops, zero while it runs
}

// A place is one waiting request. The mutex of places guards it.
type place struct {
	all      *places
	refuse   context.CancelCauseFunc // ends the wait
	budget   string                  // budget that holds the request, "" if unknown
	startsAt time.Time               // expected start, zero if unknown
}

func newPlaces(most, mostPerBudget int) *places {
	return &places{most: most, mostPerBudget: mostPerBudget, held: make(map[*place]bool), byBudget: make(map[string]int)}
}

// soon is the Retry-After of a request that found no room.
const soon = time.Second

// enter gives a request a place, or returns the refusal. refuse ends the wait with a cause.
func (a *places) enter(refuse context.CancelCauseFunc) (*place, *problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.stopBy.IsZero():
		return nil, stops()
	case len(a.held) >= a.most:
		return nil, newProblem(http.StatusServiceUnavailable, "too many requests wait in this proxy").after(soon)
	}
	p := &place{all: a, refuse: refuse}
	a.held[p] = true
	return p, nil
}

// stops returns the answer of a handler that stops.
func stops() *problem {
	return newProblem(http.StatusServiceUnavailable, "this proxy ends").because(stopping).after(soon)
}

// leave gives the place back. Further calls do nothing.
func (p *place) leave() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if p.all.held[p] {
		delete(p.all.held, p)
		p.leaveBudget()
	}
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

// holdAt notes which budget holds the request, "" if unknown, and for how long, 0 if unknown. It refuses the
// request if too many wait for the budget, or if the handler stops before the start. A request that lost its
// start while it connected gets its place back even when the queue is full.
func (p *place) holdAt(budget, policy string, wait time.Duration) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()

	// The place was given back when the start came. The request has lost its start, and waits again.
	again := !p.all.held[p]
	p.all.held[p] = true
	p.leaveBudget()
	p.startsAt = time.Time{}
	if wait > 0 {
		p.startsAt = time.Now().Add(wait)
	}

	if budget != "" && p.all.byBudget[budget] >= p.all.mostPerBudget && !again {
		full := newProblem(http.StatusServiceUnavailable, "too many requests wait in this proxy for the same budget").after(max(soon, wait))
		full.Policy = policy
		p.refuse(full)
		return
	}

	p.budget = budget
	if budget != "" {
		p.all.byBudget[budget]++
	}

	p.endIfLate()
}

// endIfLate refuses a request whose start is after the stop deadline. The mutex is held.
func (p *place) endIfLate() {
	if by := p.all.stopBy; !by.IsZero() && p.startsAt.After(by) {
		p.refuse(stops())
	}
}

// stop closes the queue. It refuses requests that are known to start after the deadline now, and all
// remaining requests at the deadline.
func (a *places) stop(by time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.stopBy = by
	for p := range a.held {
		p.endIfLate()
	}

	time.AfterFunc(time.Until(by), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for p := range a.held {
			p.refuse(stops())
		}
	})
}

// count returns the number of waiting requests.
func (a *places) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held)
}

// A call is one request on its way.
type call struct {
	to     *route
	begun  time.Time // begin of the wait
	cut    func()    // ends an upgraded request
	tunnel *tunnel   // the upgraded connection, or nil

	place  *place  // its place in the queue
	upload *upload // body that is not read to its end yet, or nil
	left   bool    // the caller left before the answer

	sending *stall // limits the wait for the body; nil means no limit
	taking  *stall // limits the wait for the caller to take the answer

	mu   sync.Mutex
	sent time.Time // when the base was asked for a connection, zero before
}

// callKey is the context key of a *call.
type callKey struct{}

// callOf returns the call of a context, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// trace returns a context whose trace tells the call that its request has a start. The transport hands the
// request to the base only with a start, and the base then asks for a connection. The transport's own GotConn
// hook runs first and replaces a start that is too old.
func (c *call) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.start() },
		GotConn: func(httptrace.GotConnInfo) { c.endWait() },
	})
}

// start notes that the request has a start. A start that becomes too old is replaced, and start runs again.
func (c *call) start() {
	c.endWait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = time.Now()
}

// endWait notes that the request no longer waits.
func (c *call) endWait() { c.place.leave() }

// Observe tells the [Handler] of a request which budget holds the request, for
// [Config.HeldPerBudget] and [Handler.Stop]. Set it as
// [throttle.Config.Observe] of the handler's transport, or call it there with
// the same context. Safe for concurrent use.
func Observe(ctx context.Context, e throttle.Event) {
	c := callOf(ctx)
	switch {
	case c == nil:
	case e.Kind == throttle.EventWaiting:
		c.place.holdAt(e.Budget, e.Policy, e.Duration)
	case e.Kind == throttle.EventStillWaiting:
		c.place.holdAt(e.Budget, e.Policy, e.Left)
	}
}

// timing returns the Server-Timing value: the time that the request was held, in milliseconds.
func (c *call) timing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.sent
	if end.IsZero() {
		end = time.Now()
	}
	held := float64(end.Sub(c.begun).Microseconds()) / 1000
	return "throttle;dur=" + strconv.FormatFloat(held, 'f', -1, 64)
}

// enterTunnel notes that the connection is upgraded. It returns false while the handler shuts down.
func (c *call) enterTunnel(all *tunnels) (ok bool) {
	c.tunnel, ok = all.add(c.cut, c.cut)
	return ok
}

// leaveTunnel notes that an upgraded connection has ended.
func (c *call) leaveTunnel() {
	if c.tunnel != nil {
		c.tunnel.leave()
	}
}
