package throttle

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"
)

// A roundTrip is one attempt to get a request through a [Transport]: price it,
// acquire its start, send it, apply the response. Most requests need one.
type roundTrip struct {
	quotedAcquisition
	t   *Transport
	req *http.Request

	reqBody  io.ReadCloser // the request's body
	rewound  io.ReadCloser // the same, for the next attempt
	detached bool          // an attempt before this one gave its connection back
	dials    *dialPlace    // what is known of the host's connections
	dialTook time.Duration // how long the base took to get a connection

	// What the base gets. It all lies here so that it is allocated at once. None of
	// it is used again, because a base may keep it for longer than the response.
	sent        http.Request
	sentContext sentContext
	sentURL     url.URL // see abort
	revocable   revocableBody
	respBody    responseBody
	handedAt    time.Duration // when the base got the request

	// The base calls the hooks of a trace from goroutines of its own.
	mu            sync.Mutex
	wrote         bool        // the headers have left under the present grant
	connSeen      bool        // the base has called gotConn
	connClosed    bool        // the connection was closed before anything was written
	baseRetried   bool        // the base sends again what it has written before
	ended         bool        // the response is over, or there is none
	stopErr       error       // why the pre-write check stopped the request
	stopAfterFunc func() bool // ends the watch over the request's context
}

// newRoundTrip returns the first attempt of a request.
func (t *Transport) newRoundTrip(req *http.Request) *roundTrip {
	r, o := &roundTrip{t: t, req: req, reqBody: req.Body, dials: t.dials.place(req.URL.Host)}, optionsOf(req.Context())
	r.engine, r.grant.Held = &t.engine, NotHeld
	r.maxWait, r.priority = o.maxWaitOr(t.defaultMaxWait), o.priority
	return r
}

// priceRequest sets what the request costs, under the policies at the positions in
// matched.
func (r *roundTrip) priceRequest(s *policySet, matched []int32) error {
	return r.useQuote(r.req.Context(), r.newQuote(s).priceRequest(s, matched, r.req))
}

// acquireUntilSend holds the request until it may be handed to the base: until its
// start, or a little before if a connection will probably be dialled first.
func (r *roundTrip) acquireUntilSend() error {
	r.lead = r.dialLead()
	return r.acquireStart(r.req.Context(), func() error {
		var few [fewPolicies]int32
		s := r.t.policies.Load()
		return r.priceRequest(s, s.index.Match(few[:0], r.req))
	})
}

// dialLead is how much before its start the request is handed to the base. If an
// attempt has dialled for longer than usual, the next one needs as long.
func (r *roundTrip) dialLead() time.Duration {
	usual := r.dials.usual(r.req.URL.Host)
	if usual == 0 {
		return 0
	}
	return max(usual, r.dialTook)
}

// elapsed is how long ago the request started: when it was handed to the base, or at
// its booked start if that was later.
func (r *roundTrip) elapsed() time.Duration { return max(0, now()-max(r.handedAt, r.startAt)) }

// reportWait bounds how long a response is kept from its caller while the store is told
// what it means. maxReport bounds how long the report is tried at all: after a longer
// outage the next response tells the store of a penalty that still lasts.
const (
	reportWait = time.Second
	maxReport  = 30 * time.Second
)

// reportContext returns the context for telling the store something: the caller's,
// without its end.
func (r *roundTrip) reportContext(worth time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.req.Context()), min(max(worth, reportWait), maxReport))
}

// A sentContext is the context of the request that the base gets: the caller's, with
// the hooks of an attempt and an end of its own. It lies in the attempt, and makes the
// rest when the base asks for it. The zero sentContext can only be ended.
type sentContext struct {
	context.Context // the caller's
	hooks           hooks

	mu     sync.Mutex
	trace  httptrace.ClientTrace
	traced bool            // trace is made
	own    context.Context // the caller's with another end; nil: nobody could tell it from the caller's
	cancel context.CancelCauseFunc
	ended  bool
	cause  error
}

// hooks are what the base calls on the way of a request.
type hooks interface {
	gotConn(httptrace.GotConnInfo)
	wroteHeaders()
}

// traced is a context that holds a trace and nothing else: so it tells the key of traces,
// which package httptrace keeps to itself, from others.
var traced = httptrace.WithClientTrace(context.Background(), new(httptrace.ClientTrace))

// end ends the context, unless it was ended before.
func (c *sentContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.cause = true, cause
	if c.own != nil {
		c.cancel(cause)
	}
}

// Done implements [context.Context].
func (c *sentContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withEnd().Done()
}

// Err implements [context.Context].
func (c *sentContext) Err() error { return c.current().Err() }

// Value implements [context.Context].
func (c *sentContext) Value(key any) any {
	if traced.Value(key) != nil {
		return c.withHooks()
	}
	return c.current().Value(key)
}

// current is the caller's context for as long as nobody can tell it from this one.
// Package context asks it for the key of its own contexts, too: so those that are derived
// from this one are linked to it without a goroutine.
func (c *sentContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil && !c.ended {
		return c.Context
	}
	return c.withEnd()
}

// withEnd returns the caller's context with an end of its own. The mutex is held.
func (c *sentContext) withEnd() context.Context {
	if c.own == nil {
		c.own, c.cancel = context.WithCancelCause(c.Context)
		if c.ended {
			c.cancel(c.cause)
		}
	}
	return c.own
}

// withHooks returns the hooks, with those of the caller behind them.
func (c *sentContext) withHooks() *httptrace.ClientTrace {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.traced {
		c.traced = true
		c.trace.GotConn, c.trace.WroteHeaders = c.hooks.gotConn, c.hooks.wroteHeaders
		if httptrace.ContextClientTrace(c.Context) != nil {
			httptrace.WithClientTrace(c.Context, &c.trace) // which adds the caller's
		}
	}
	return &c.trace
}

// A revocableBody is the body that the base gets if it can be had only once. When
// the attempt is abandoned the body is taken away from the base.
type revocableBody struct {
	io.ReadCloser

	mu      sync.Mutex
	read    bool
	closed  bool
	revoked bool
}

// revoke takes the body away and returns true, unless it was read or closed.
func (b *revocableBody) revoke() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked = !b.read && !b.closed
	return b.revoked
}

// Read implements [io.Reader].
func (b *revocableBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.read = true
	revoked := b.revoked
	b.mu.Unlock()
	if revoked {
		return 0, errDetach
	}
	return b.ReadCloser.Read(p)
}

// Close implements [io.Closer].
func (b *revocableBody) Close() error {
	b.mu.Lock()
	over := b.closed || b.revoked
	b.closed = true
	b.mu.Unlock()
	if over {
		return nil
	}
	return b.ReadCloser.Close()
}

// A responseBody tells its ender when the response is over: at its end, at an error,
// or when it is closed.
type responseBody struct {
	io.ReadCloser
	of ender
}

// An upgradedBody is the body of an upgraded connection.
type upgradedBody struct {
	io.ReadWriteCloser
	of ender
}

// An ender is told, perhaps more than once, that a response is over.
type ender interface{ end() }

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.of.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.of.end()
	return err
}

// Close implements io.Closer.
func (b *upgradedBody) Close() error {
	err := b.ReadWriteCloser.Close()
	b.of.end()
	return err
}
