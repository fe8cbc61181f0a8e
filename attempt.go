package throttle

import (
	"context"
	"hash/maphash"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// A roundTrip is one attempt to get a request through a [Transport]: price it,
// acquire its start, send it, apply the response. Most requests need one.
type roundTrip struct {
	*quotedAcquisition // nil when nobody needs it any more: see recycle

	t   *Transport
	req *http.Request

	reqBody io.ReadCloser // the request's body
	rewound io.ReadCloser // the request's body for the next attempt
	dials   *dialPlace    // estimates for connections to the host

	// The base or the caller gets pointers to the fields from sent to respBody. They lie here so
	// that one allocation serves all of them. Each attempt has its own, because a base may keep
	// them for longer than the response.
	sent        http.Request
	sentContext sentContext
	sentURL     url.URL        // of sent: abort makes it unwritable
	revocable   *revocableBody // the body that the base gets, if the body can be taken away from the base, or nil
	respBody    responseBody
	handedAt    time.Duration // when the base got the request
	detached    bool          // an earlier attempt gave its connection back
	toBeTold    bool          // the store is told of the response, or of the end of its body, after RoundTrip has returned

	// The base calls the hooks of a trace from goroutines of its own. The observer is never called, and
	// nobody waits for a start, while mu is held.
	mu            sync.Mutex
	checking      bool          // the pre-write check runs, and nobody else may use the acquisition
	wrote         bool          // the headers were written under the present grant
	arrived       bool          // the check stopped the request, and the base may have written it all the same
	connSeen      bool          // the base has called gotConn
	connClosed    bool          // the connection was closed before anything was written
	baseRetried   bool          // the base sends a request again after it has written it
	ended         bool          // the response is over, or there is none
	checked       chan struct{} // closed when the pre-write check ends. It is nil while nobody waits for the end.
	stopErr       error         // why the pre-write check stopped the request
	stopAfterFunc func() bool   // ends the watch over the request's context
}

// newRoundTrip returns the first attempt of a request.
func (t *Transport) newRoundTrip(req *http.Request) *roundTrip {
	r := &roundTrip{quotedAcquisition: t.newQuotedAcquisition(), t: t, req: req, reqBody: req.Body, dials: t.dials.place(req.URL.Host)}

	o := optionsOf(req.Context())
	r.Priority = o.priority
	r.MaxWait, r.ByDefault = o.maxWaitOr(req.Context(), t.defaultMaxWait)
	return r
}

// recycle frees the acquisition for the next request, when RoundTrip returns. The attempt
// keeps the acquisition if slots must be given back when the response is over, or the store
// is still being told of the response, or the pre-write check has the acquisition.
func (r *roundTrip) recycle() {
	var unused *quotedAcquisition
	r.mu.Lock()
	inUse := r.checking || r.toBeTold || r.Concurrent() && !r.ended
	if !inUse {
		unused, r.quotedAcquisition = r.quotedAcquisition, nil
	}
	r.mu.Unlock()

	if unused != nil {
		unused.recycle()
	}
}

// priceRequest prices the request under the policies at the positions in matched.
func (r *roundTrip) priceRequest(s *policySet, matched []int32) error {
	return r.useQuote(r.req.Context(), r.newQuote(s).priceRequest(s, matched, r.req))
}

// acquireUntilSend holds the request until it may be handed to the base: until its
// start, or a little before if a connection will probably be dialled first. If the policies are
// replaced meanwhile, the request is priced again, and goes on if no policy holds it any more.
func (r *roundTrip) acquireUntilSend() error {
	r.Lead = r.dialLead()
	return r.acquireStart(r.req.Context(), func() error {
		var matchBuf [fewPolicies]int32
		s := r.t.policies.Load()
		return r.priceRequest(s, s.index.Match(matchBuf[:0], r.req))
	})
}

// dialLead returns how long before its start the request is handed to the base: as long as
// the base usually takes to get a connection to the host, or as long as the last attempt's
// dial took, if that took longer. It is 0 if usualDial is 0.
func (r *roundTrip) dialLead() time.Duration {
	usual := r.dials.usualDial(r.req.URL.Host)
	if usual == 0 {
		return 0
	}
	return max(usual, r.dialTook)
}

// elapsed returns how long ago the request started: it started when it was handed to the base,
// or at its booked start if that was later.
func (r *roundTrip) elapsed() time.Duration { return max(0, now()-max(r.handedAt, r.StartAt())) }

// maxReport bounds how long the report of a penalty is tried: after a longer outage the next response tells the
// store of a penalty that still lasts.
const maxReport = 30 * time.Second

// reportContext returns the context of a report to the store. It has the values of the
// caller's context but not its end. It ends after worth, when the report has become useless,
// but not before [acquire.ReportWait] and not after maxReport.
func (r *roundTrip) reportContext(worth time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.req.Context()), min(max(worth, acquire.ReportWait), maxReport))
}

// A sentContext is the context of the request that the base gets: the caller's context, with
// the hooks of an attempt, and with an end that the attempt can cause. Most bases never ask for
// either, so both are made when the base asks. The zero sentContext can only be ended.
type sentContext struct {
	context.Context            // the caller's
	attempt         *roundTrip // has the hooks

	mu      sync.Mutex
	trace   *httptrace.ClientTrace  // calls the hooks, then the caller's hooks. It is nil until the base asks for it.
	endable context.Context         // derived from the caller's, and ends with cancel. It is nil until the base asks for it.
	cancel  context.CancelCauseFunc // of endable
	cause   error                   // the argument of end
	ended   bool                    // end was called
}

// traceOnly is a context with a value for the key of traces alone. Package httptrace does
// not export the key, so a key is recognized by asking traceOnly for its value.
var traceOnly = httptrace.WithClientTrace(context.Background(), new(httptrace.ClientTrace))

// end ends the context, for a cause that may be nil, unless the context was ended before.
func (c *sentContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.cause = true, cause
	if c.endable != nil {
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
	if traceOnly.Value(key) != nil {
		return c.withHooks()
	}
	return c.current().Value(key)
}

// current returns the caller's context until somebody calls Done or end, and the endable
// context from then on. Value asks the current context for all keys except the key of traces.
// One of these keys is private to package context, which finds the endable context by it: so a
// context that is derived from a sentContext needs no goroutine to end with it.
func (c *sentContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endable == nil && !c.ended {
		return c.Context
	}
	return c.withEnd()
}

// withEnd returns the endable context, and makes it at the first call. The caller holds the mutex.
func (c *sentContext) withEnd() context.Context {
	if c.endable == nil {
		c.endable, c.cancel = context.WithCancelCause(c.Context)
		if c.ended {
			c.cancel(c.cause)
		}
	}
	return c.endable
}

// withHooks returns a trace that calls the hooks of the attempt, and then the hooks of the
// caller's trace if there is one.
func (c *sentContext) withHooks() *httptrace.ClientTrace {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trace == nil {
		c.trace = &httptrace.ClientTrace{GotConn: c.attempt.gotConn, WroteHeaders: c.attempt.wroteHeaders}
		if httptrace.ContextClientTrace(c.Context) != nil {
			httptrace.WithClientTrace(c.Context, c.trace) // adds the caller's hooks to c.trace
		}
	}
	return c.trace
}

// A revocableBody is the body that the base gets if the request has no GetBody, so that there
// is one body for all attempts. An attempt that gives its connection back takes the body away
// from the base, and the next attempt gets it.
type revocableBody struct {
	io.ReadCloser

	mu      sync.Mutex
	read    bool // Read was called
	closed  bool // Close was called
	revoked bool // the next attempt has the body
}

// revoke takes the body away from the base and returns true, unless the base has read or closed
// the body.
func (b *revocableBody) revoke() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked = !b.read && !b.closed
	return b.revoked
}

// Read implements [io.Reader]. After revoke it fails, because the next attempt reads the body.
func (b *revocableBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.read = true
	revoked := b.revoked
	b.mu.Unlock()
	if revoked {
		return 0, acquire.ErrDetach
	}
	return b.ReadCloser.Read(p)
}

// Close implements [io.Closer]. After revoke it leaves the body open for the next attempt.
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

// A responseBody ends its attempt when the response is over: when a read of the body reaches its
// end or fails, or when the body is closed.
type responseBody struct {
	io.ReadCloser
	attempt *roundTrip
}

// A droppableBody is a responseBody that the garbage collector may find before the response is over.
type droppableBody struct {
	responseBody
	dropped runtime.Cleanup // calls drop, unless Close stops it
}

// An upgradedBody is the body of an upgraded connection. It ends its attempt when it is closed.
type upgradedBody struct {
	io.ReadWriteCloser
	attempt *roundTrip
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.attempt.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.attempt.end()
	return err
}

// Close implements io.Closer.
func (b *droppableBody) Close() error {
	b.dropped.Stop()
	return b.responseBody.Close()
}

// Close implements io.Closer.
func (b *upgradedBody) Close() error {
	err := b.ReadWriteCloser.Close()
	b.attempt.end()
	return err
}

// now is the time since the process began.
func now() time.Duration { return acquire.Now() }

// A decayingMax is roughly the longest of the durations that were added lately. Many goroutines
// may update it at once: of two updates at one moment one may be lost.
type decayingMax struct{ nanos atomic.Int64 }

// get returns the maximum, or 0 before the first add.
func (m *decayingMax) get() time.Duration { return time.Duration(m.nanos.Load()) }

// add sets the maximum to d if d is longer, and otherwise shortens it by a 256th, but not below
// d. A maximum below a millisecond becomes 0, because it is not worth keeping.
func (m *decayingMax) add(d time.Duration) {
	old := m.get()
	next := max(d, old-old/256)
	if next < time.Millisecond {
		next = 0
	}
	if next != old {
		m.nanos.Store(int64(next))
	}
}

// A dialEstimator estimates how long requests to each host take to get a connection,
// so that the base can be handed a request that long before its start. The estimate
// only saves quota: the pre-write check keeps the limit, however long a dial takes.
type dialEstimator struct {
	hosts [64]dialPlace
}

// A dialPlace is the place of all hosts with the same hash. It has the estimate for the one
// that was dialled last, or nil.
type dialPlace struct{ atomic.Pointer[hostDials] }

// A hostDials is the estimate for one host.
type hostDials struct {
	host   string
	dial   decayingMax // how long a dial took
	silent atomic.Bool // the base does not call the hooks of httptrace
}

// maxDial bounds how long before its start a request is handed to the base, which holds a
// connection for the request from then on.
const maxDial = time.Second

var dialSeed = maphash.MakeSeed()

// place returns the place of a host.
func (e *dialEstimator) place(host string) *dialPlace {
	return &e.hosts[maphash.String(dialSeed, host)%uint64(len(e.hosts))]
}

// usualDial returns how long before its start a request to host should be handed to the
// base. It is 0 if the base usually has an idle connection, if the host is unknown, or if
// the base calls no hooks.
func (p *dialPlace) usualDial(host string) time.Duration {
	t := p.Load()
	if t == nil || t.host != host || t.silent.Load() {
		return 0
	}
	return t.dial.get()
}

// add notes how long the base took to get a connection to host. A reused connection counts
// as 0: it needed no dialling, and a request that was handed over early would keep it from
// other requests.
func (p *dialPlace) add(host string, took time.Duration, reused bool) {
	t := p.Load()
	if t == nil || t.host != host {
		t = &hostDials{host: host}
		p.Store(t)
	}
	if reused {
		took = 0
	}
	t.dial.add(min(took, maxDial))
}

// markSilent notes that the base got an answer from host without a call of gotConn. No pre-write
// check would stop a request that is handed to such a base early, so usualDial is 0 then.
func (p *dialPlace) markSilent(host string) {
	if t := p.Load(); t != nil && t.host == host {
		t.silent.Store(true)
	}
}
