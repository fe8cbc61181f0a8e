package proxy

import (
	"context"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"
)

// A call is one request on its way.
type call struct {
	to     *route
	begun  time.Time // when its wait began
	cut    func()    // ends a request that asks for an upgrade
	tunnel *tunnel   // of the upgraded connection; nil: there is none

	mu    sync.Mutex
	leave func()    // counts the request as one that waits no more; nil: it was called
	sent  time.Time // when the base was asked for a connection; zero: not yet
}

// callKey is the context key of a *call.
type callKey struct{}

// callOf returns the call of a context; nil: there is none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// trace returns a context that tells the call when its request has its start: the base, which
// gets the request then, asks for a connection.
func (c *call) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { c.start() }})
}

// start notes that the request has its start. It may lose the start and get another.
func (c *call) start() {
	c.endWait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = time.Now()
}

// endWait notes that the request waits no more.
func (c *call) endWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leave != nil {
		c.leave()
		c.leave = nil
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
