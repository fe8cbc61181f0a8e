package proxy

import (
	"context"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

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
