package proxy

import (
	"context"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
)

// A call is one request on its way.
type call struct {
	to     *route
	begun  time.Time // begin of the wait
	cut    func()    // ends an upgraded request
	tunnel *tunnel   // the upgraded connection, or nil

	place  *inbound.Place // its place in the queue
	upload *upload        // body that is not read to its end yet, or nil
	left   bool           // the caller left before the answer

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
func (c *call) endWait() { c.place.Leave() }

// Observe tells the [Handler] of a request which budget holds the request, for
// [Config.HeldPerBudget] and [Handler.Stop]. Set it as
// [throttle.Config.Observe] of the handler's transport, or call it there with
// the same context. Safe for concurrent use.
func Observe(ctx context.Context, e throttle.Event) { inbound.Observe(ctx, e) }

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
