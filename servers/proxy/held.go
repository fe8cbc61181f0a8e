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

// places are the requests that wait.
type places struct {
	most, mostPerBudget int

	mu       sync.Mutex
	held     map[*place]bool
	byBudget map[string]int // how many of them each budget holds
	stopBy   time.Time      // when those must have started, and no other may enter; zero: the handler goes on
}

// A place is one request that waits. Its fields belong to the mutex of all.
type place struct {
	all      *places
	refuse   context.CancelCauseFunc // ends the wait
	budget   string                  // that holds the request; "": none does, as far as known
	startsAt time.Time               // when it may start; zero: unknown
}

func newPlaces(most, mostPerBudget int) *places {
	return &places{most: most, mostPerBudget: mostPerBudget, held: make(map[*place]bool), byBudget: make(map[string]int)}
}

// soon is the Retry-After of a request for which there is no place.
const soon = time.Second

// enter returns a place for a request, or why there is none. refuse ends its wait with a cause.
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

// stops returns the answer of a handler that ends.
func stops() *problem {
	return newProblem(http.StatusServiceUnavailable, "this proxy ends").because(stopping).after(soon)
}

// leave gives the place up. It may be called again.
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
	if p.all.byBudget[p.budget]--; p.all.byBudget[p.budget] == 0 {
		delete(p.all.byBudget, p.budget)
	}
	p.budget = ""
}

// holdAt notes which budget holds the request, "" for none that is known, and for how long it will
// do so; 0: that is unknown. It ends the wait if that budget holds too many, or if the wait is
// longer than the handler goes on. A request that waits again, because it lost its start while it
// connected, has a place again, also if there is none for others.
func (p *place) holdAt(budget, policy string, wait time.Duration) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()

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

	if p.budget = budget; budget != "" {
		p.all.byBudget[budget]++
	}

	p.endIfLate()
}

// endIfLate ends the wait of a request that starts too late for a handler that ends. The mutex is
// held.
func (p *place) endIfLate() {
	if by := p.all.stopBy; !by.IsZero() && p.startsAt.After(by) {
		p.refuse(stops())
	}
}

// stop lets no request enter any more. Those that wait must have started at a time: what is known
// to start later is refused now, and the rest then.
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

// count returns how many requests wait.
func (a *places) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held)
}

// A call is one request on its way.
type call struct {
	to     *route
	begun  time.Time // when its wait began
	cut    func()    // ends a request that asks for an upgrade
	tunnel *tunnel   // of the upgraded connection; nil: there is none

	place  *place  // among those that wait
	upload *upload // its body, of which something is still to come; nil: nothing is
	left   bool    // the caller has left before there was an answer

	sending *stall // while the body is awaited of the caller; nil: for ever
	taking  *stall // while the caller takes the answer

	mu   sync.Mutex
	sent time.Time // when the base was asked for a connection; zero: not yet
}

// callKey is the context key of a *call.
type callKey struct{}

// callOf returns the call of a context; nil: there is none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// trace returns a context that tells the call when its request has its start: the base, which
// gets the request then, asks for a connection. A start that is too old then is replaced before the
// hook of the connection is called here.
func (c *call) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.start() },
		GotConn: func(httptrace.GotConnInfo) { c.endWait() },
	})
}

// start notes that the request has its start. It may lose the start and get another.
func (c *call) start() {
	c.endWait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = time.Now()
}

// endWait notes that the request waits no more.
func (c *call) endWait() { c.place.leave() }

// Observe tells a [Handler] what holds its requests, for [Config.HeldPerBudget] and for
// [Handler.Stop]. The [throttle.Config.Observe] of the handler's transport must be this function,
// or call it with the context that it got.
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

// timing returns a value of Server-Timing: how long the request was held, in milliseconds.
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

// enterTunnel notes that the connection is upgraded; false: the handler ends.
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
