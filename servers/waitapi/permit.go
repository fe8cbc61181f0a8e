package waitapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/problem"
)

// A permitState says what a permit holds, and its transitions:
//
//	state      the permit holds     becomes
//	acquiring  a place in line      held, when its start has come;
//	                                gone, if it is refused, or the last caller that waits for it leaves
//	held       a start, and slots   gone, if it is released or expires, or no caller could be answered;
//	                                acquiring, if its key is used again
//	gone       nothing
type permitState uint8

const (
	acquiring permitState = iota
	held
	gone
)

// An acquired is the answer to a caller with a permit.
type acquired struct {
	Permit   string  `json:"permit"`
	Waited   float64 `json:"waited"`           // in seconds
	Policy   string  `json:"policy,omitempty"` // the policy that held the caller last
	Lifetime float64 `json:"lifetime"`         // in seconds
}

// A permit exists from its caller's first request on. The mutex of the table guards it.
type permit struct {
	key     digest // zero without an Idempotency-Key
	body    digest // hash of demands and lifetime
	budgets []budget

	state   permitState
	callers int                // callers that wait for the permit, or whose answers are being written
	ready   chan struct{}      // closed when the permit leaves acquiring
	leave   context.CancelFunc // ends the wait
	err     error              // why it is gone

	name     string // "" before it was held
	inner    *throttle.Permit
	lifetime time.Duration
	expiry   time.Time
	timer    *time.Timer
	answered bool          // an answer may have arrived since the permit was acquired last
	begun    bool          // the caller has settled or penalized
	released bool          // the caller has released it
	change   chan struct{} // semaphore for settling and penalizing inner
}

// A table has the permits of a handler.
//
// No method calls the store while it holds mu, because a slow store would block all callers. A method removes
// a permit from the table under mu, and gives back its start and slots afterwards. A permit that is gone
// stays gone, so exactly one method gives it back.
type table struct {
	c       Config
	waiting chan struct{} // semaphore of waiting callers
	bodies  bodies
	names   *namer

	ctx   context.Context // of all waits
	stop  context.CancelCauseFunc
	waits sync.WaitGroup

	mu     sync.Mutex
	closed bool
	count  int // permits that are acquiring or held
	byName map[string]*permit
	byKey  map[digest]*permit
}

func newTable(c Config) *table {
	t := &table{c: c, waiting: make(chan struct{}, c.Held), bodies: make(bodies, mostBodies), names: newNamer(), byName: make(map[string]*permit), byKey: make(map[digest]*permit)}
	t.ctx, t.stop = context.WithCancelCause(context.Background())
	return t
}

// releasesAtOnce is how many permits close releases in parallel.
const releasesAtOnce = 64

// close implements [Handler.Close].
func (t *table) close(ctx context.Context) error {
	// Close the table first: a start that arrives meanwhile is then given back by noteEnd.
	t.closeForAll(ctx)
	t.stop(errClosed)

	ended := make(chan struct{})
	go func() {
		t.waits.Wait()
		close(ended)
	}()

	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeForAll closes the table, removes all held permits, and starts to release them. Permits not released
// when ctx ends stay charged.
func (t *table) closeForAll(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.closed = true
	permits := make(chan *permit, len(t.byName))
	for _, p := range t.byName {
		// A permit that is still being acquired ends with its context.
		if p.state == held {
			t.drop(p, errClosed)
			permits <- p
		}
	}

	close(permits)

	// Release in parallel, but bound the calls of the store.
	for range min(releasesAtOnce, len(permits)) {
		t.waits.Go(func() {
			for p := range permits {
				if ctx.Err() != nil {
					return
				}
				p.inner.Release()
			}
		})
	}
}

// join adds a caller to the permit of its key, or to a new permit.
func (t *table) join(q *acquireRequest) (*permit, *problem.Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		return nil, problemOf(errClosed)
	}

	p := t.byKey[q.key]
	switch {
	case q.key == digest{} || p == nil:
		if t.count == t.c.Permits {
			return nil, refuse("too many permits are neither released nor expired")
		}

		p = &permit{key: q.key, body: q.body, budgets: q.budgets, lifetime: q.lifetime, change: make(chan struct{}, 1)}
		t.count++
		if q.key != (digest{}) {
			t.byKey[q.key] = p
		}

		t.acquirePermit(p, q, func(ctx context.Context) (*throttle.Permit, error) {
			if q.aside {
				return q.reserve(ctx, t.c.Limiters)
			}
			return t.c.Limiters.Acquire(ctx, q.demands...)
		})

	// The permit of the key is there already. Only the same caller may share it, and before its work begins.
	case p.body != q.body:
		return nil, problem.New(http.StatusUnprocessableEntity, "the Idempotency-Key was used with another body: use another key")
	case p.begun:
		return nil, problem.New(http.StatusConflict, "the work of this Idempotency-Key has begun: use another key")
	case p.state == held:
		// The caller has had no answer yet. A repeated answer needs a start that is now.
		t.acquirePermit(p, q, func(ctx context.Context) (*throttle.Permit, error) { return p.inner, p.inner.Renew(ctx) })
	}

	p.callers++
	return p, nil
}

// acquirePermit starts to acquire a permit. Its context limits only the wait: the permit itself ends with its
// lifetime, even if its caller has vanished. t.mu is held.
func (t *table) acquirePermit(p *permit, q *acquireRequest, acquire func(context.Context) (*throttle.Permit, error)) {
	var ctx context.Context
	ctx, p.leave = context.WithCancel(throttle.WithWaitOnly(throttle.WithPriority(throttle.WithMaxWait(t.ctx, q.wait), q.priority)))
	p.state, p.answered, p.ready = acquiring, false, make(chan struct{})
	t.waits.Go(func() {
		inner, err := acquire(ctx)

		// Only the wait needed the context.
		p.leave()
		t.endWait(p, inner, err)
	})
}

// endWait handles the end of the wait for a permit.
func (t *table) endWait(p *permit, inner *throttle.Permit, err error) {
	if giveBack := t.noteEnd(p, inner, err); giveBack != nil {
		giveBack()
	}
}

// noteEnd is the part of endWait under the mutex. It returns the function that gives back a start nobody
// wants, or nil.
func (t *table) noteEnd(p *permit, inner *throttle.Permit, err error) (giveBack func()) {
	t.mu.Lock()
	defer t.mu.Unlock()

	// Wake the callers whatever happened: each reads its outcome from the state.
	defer close(p.ready)
	switch {
	// Nobody waits for the permit, and it has no start.
	case p.state == gone && err != nil:

	// A released permit keeps its start counted. A permit that nobody wanted gives the start back.
	case p.state == gone && p.released:
		return inner.Release
	case p.state == gone:
		return inner.Cancel
	case t.closed && err == nil:
		t.drop(p, errClosed)
		return inner.Cancel
	case err != nil:
		t.drop(p, err)
	default:
		t.hold(p, inner)
	}

	return nil
}

// hold notes that a permit has its start. t.mu is held.
func (t *table) hold(p *permit, inner *throttle.Permit) {
	p.state, p.inner = held, inner
	p.expiry = time.Now().Add(p.lifetime)

	// A permit that was acquired again keeps its name.
	if p.name != "" {
		p.timer.Reset(p.lifetime)
		return
	}

	p.name = t.names.name(p.expiry)
	t.byName[p.name] = p
	p.timer = time.AfterFunc(p.lifetime, func() { t.expire(p) })
}

// drop forgets a permit. t.mu is held.
func (t *table) drop(p *permit, why error) {
	p.state, p.err = gone, why
	t.count--
	delete(t.byName, p.name)

	// A later permit may have the key by now.
	if t.byKey[p.key] == p {
		delete(t.byKey, p.key)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
}

// expire releases a permit at the end of its lifetime.
func (t *table) expire(p *permit) {
	t.mu.Lock()

	// A renewal may have moved the expiry after the timer fired.
	over := p.state == held && !time.Now().Before(p.expiry)
	if over {
		t.drop(p, errGone)
	}

	// Call the store without the mutex.
	t.mu.Unlock()

	if over {
		p.inner.Release()
	}
}

// left notes that a caller no longer waits. answered means that the caller may have an answer. If no caller
// may have one, and none waits, the permit gives back its start and slots, unless its work has begun: an
// earlier answer has arrived then.
func (t *table) left(p *permit, answered bool) {
	t.mu.Lock()
	p.callers--
	p.answered = p.answered || answered
	unused := p.callers == 0 && !p.answered && !p.begun && p.state != gone
	wasHeld := p.state == held
	if unused {
		t.drop(p, errGone)
	}

	t.mu.Unlock()

	switch {
	case !unused:
	case wasHeld:
		p.inner.Cancel()
	default:
		p.leave() // endWait gives back a start that comes too late
	}
}

// outcome returns the answer for the callers of a permit, or why the permit is gone, or a channel to wait on
// while it is acquiring.
func (t *table) outcome(p *permit) (answer *acquired, ready <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch p.state {
	case acquiring:
		return nil, p.ready, nil
	case gone:
		return nil, nil, p.err
	}
	hold := p.inner.Held()
	return &acquired{Permit: p.name, Waited: brief(hold.Duration), Policy: hold.Policy, Lifetime: brief(time.Until(p.expiry))}, nil, nil
}

// brief returns a duration in seconds, with three decimals.
func brief(d time.Duration) float64 { return d.Truncate(time.Millisecond).Seconds() }

// find returns the held permit of a name.
func (t *table) find(name string) (*permit, *problem.Problem) {
	p := t.byName[name]
	switch known, over := t.names.knows(name); {
	case p != nil && p.state == held:
		return p, nil
	case p != nil:
		return nil, problem.New(http.StatusConflict, "the permit is being acquired again, under its Idempotency-Key")
	case !known:
		return nil, problem.New(http.StatusNotFound, "this process has made no permit of this name: it may have been started anew")
	case over:
		return nil, problem.New(http.StatusGone, "the permit has expired, or was released")
	}
	return nil, problem.New(http.StatusGone, "the permit was released")
}

// Parts of a permit's name, in bytes.
const (
	nameRandom = 16
	nameExpiry = 8 // when the first lifetime ends, in nanoseconds since the handler was created
	nameMAC    = 16
)

// A namer creates names of permits that nobody can guess. A name proves that this handler created it, so the
// handler remembers nothing of a permit that is gone.
type namer struct {
	secret [32]byte
	begun  time.Time
}

func newNamer() *namer {
	n := &namer{begun: time.Now()}
	rand.Read(n.secret[:]) // never fails
	return n
}

// name returns the name of a permit.
func (n *namer) name(expiry time.Time) string {
	b := make([]byte, nameRandom, nameRandom+nameExpiry+nameMAC)
	rand.Read(b)
	b = binary.BigEndian.AppendUint64(b, uint64(expiry.Sub(n.begun)))
	return base64.RawURLEncoding.EncodeToString(append(b, n.mac(b)...))
}

// knows reports whether the handler created a name, and whether the permit's first lifetime is over.
func (n *namer) knows(name string) (known, over bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(name)
	if err != nil || len(b) != nameRandom+nameExpiry+nameMAC {
		return false, false
	}
	b, mac := b[:nameRandom+nameExpiry], b[nameRandom+nameExpiry:]
	if !hmac.Equal(mac, n.mac(b)) {
		return false, false
	}
	return true, time.Since(n.begun) >= time.Duration(binary.BigEndian.Uint64(b[nameRandom:]))
}

func (n *namer) mac(b []byte) []byte {
	h := hmac.New(sha256.New, n.secret[:])
	h.Write(b)
	return h.Sum(nil)[:nameMAC]
}
