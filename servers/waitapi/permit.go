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

// A permitState says what a permit holds, and what it may become:
//
//	state      the permit holds     and becomes
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

// An acquired is the answer to a caller that has its permit.
type acquired struct {
	Permit   string  `json:"permit"`
	Waited   float64 `json:"waited"`           // in seconds
	Policy   string  `json:"policy,omitempty"` // what held the caller last
	Lifetime float64 `json:"lifetime"`         // in seconds
}

// A permit is what a caller acquires, from its first request on. The mutex of the table guards it.
type permit struct {
	key     digest // zero: the caller named none
	body    digest // of what was asked for
	budgets []budget

	state   permitState
	callers int                // callers that wait for the permit, or whose answers are written
	ready   chan struct{}      // closed when the permit is not acquiring any more
	leave   context.CancelFunc // ends the wait
	err     error              // why it is gone

	name     string // "": it was not held yet
	inner    *throttle.Permit
	lifetime time.Duration
	expiry   time.Time
	timer    *time.Timer
	answered bool          // an answer may have arrived, since the permit was acquired last
	begun    bool          // the caller has said something about the work
	released bool          // the caller has said that the work is over
	change   chan struct{} // has an element while inner is settled or penalized
}

// A table has the permits of a handler.
//
// No method asks the store, which may take its time, while mu is held: the others would wait for it. A
// method takes a permit out of the table under mu, and gives back what the permit holds afterwards. That
// is safe because a permit that is gone stays gone, so one method alone gives it back.
type table struct {
	c       Config
	waiting chan struct{} // has an element for each caller that waits
	bodies  bodies
	names   *namer

	ctx   context.Context // of all waits
	stop  context.CancelCauseFunc
	waits sync.WaitGroup

	mu     sync.Mutex
	closed bool
	count  int // of permits that are acquiring or held
	byName map[string]*permit
	byKey  map[digest]*permit
}

func newTable(c Config) *table {
	t := &table{c: c, waiting: make(chan struct{}, c.Held), bodies: make(bodies, mostBodies), names: newNamer(), byName: make(map[string]*permit), byKey: make(map[digest]*permit)}
	t.ctx, t.stop = context.WithCancelCause(context.Background())
	return t
}

// releasesAtOnce is how many permits close releases at once.
const releasesAtOnce = 64

// close is [Handler.Close].
func (t *table) close(ctx context.Context) error {
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

// closeForAll closes the table, takes all permits that are held out of it, and begins to release them.
// What is not released when ctx ends stays as it is.
func (t *table) closeForAll(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.closed = true
	permits := make(chan *permit, len(t.byName))
	for _, p := range t.byName {
		if p.state == held {
			t.drop(p, errClosed)
			permits <- p
		}
	}

	close(permits)

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

// join has a caller wait for a permit: for that of its key, or for another one.
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
		if t.count++; q.key != (digest{}) {
			t.byKey[q.key] = p
		}

		t.acquirePermit(p, q, func(ctx context.Context) (*throttle.Permit, error) {
			if q.aside {
				return q.reserve(ctx, t.c.Limiters)
			}
			return t.c.Limiters.Acquire(ctx, q.demands...)
		})

	case p.body != q.body:
		return nil, problem.New(http.StatusUnprocessableEntity, "the Idempotency-Key was used with another body: use another key")
	case p.begun:
		return nil, problem.New(http.StatusConflict, "the work of this Idempotency-Key has begun: use another key")
	case p.state == held:
		// The caller has had no answer. An answer now must be for a start that is now.
		t.acquirePermit(p, q, func(ctx context.Context) (*throttle.Permit, error) { return p.inner, p.inner.Renew(ctx) })
	}

	p.callers++
	return p, nil
}

// acquirePermit has a permit acquire its start. Its context bounds the wait alone: a permit
// ends with its lifetime, also if its caller has vanished. t.mu is held.
func (t *table) acquirePermit(p *permit, q *acquireRequest, acquire func(context.Context) (*throttle.Permit, error)) {
	var ctx context.Context
	ctx, p.leave = context.WithCancel(throttle.WithWaitOnly(throttle.WithPriority(throttle.WithMaxWait(t.ctx, q.wait), q.priority)))
	p.state, p.answered, p.ready = acquiring, false, make(chan struct{})
	t.waits.Go(func() {
		inner, err := acquire(ctx)
		p.leave()
		t.endWait(p, inner, err)
	})
}

// endWait notes how the wait for a permit has ended.
func (t *table) endWait(p *permit, inner *throttle.Permit, err error) {
	if giveBack := t.noteEnd(p, inner, err); giveBack != nil {
		giveBack()
	}
}

// noteEnd is endWait without asking the store: it returns how to give back what nobody wants. Nil means
// that there is nothing to give back.
func (t *table) noteEnd(p *permit, inner *throttle.Permit, err error) (giveBack func()) {
	t.mu.Lock()
	defer t.mu.Unlock()

	defer close(p.ready)
	switch {
	case p.state == gone && err != nil: // nobody waits for the permit, and it has no start
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
	if t.byKey[p.key] == p {
		delete(t.byKey, p.key)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
}

// expire releases a permit whose time is over.
func (t *table) expire(p *permit) {
	t.mu.Lock()
	over := p.state == held && !time.Now().Before(p.expiry)
	if over {
		t.drop(p, errGone)
	}
	t.mu.Unlock()

	if over {
		p.inner.Release()
	}
}

// left notes that a caller waits no more. With answered it has an answer, or may have one. If
// none has, and no other waits, the permit gives back what it holds, unless its work has begun: an answer
// before has arrived then.
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
		p.leave() // endWait gives back what the wait may have come to
	}
}

// outcome returns what a caller of a permit is answered: that it is held, or why it is gone. Until
// then it returns a channel to wait for.
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

// find returns the permit of a name that is held.
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

// The parts of a permit's name, in bytes.
const (
	nameRandom = 16
	nameExpiry = 8 // when the permit expires unless it is acquired again, in nanoseconds since the handler was made
	nameMAC    = 16
)

// A namer makes the names of permits: nobody can guess one. A name says itself whether this handler
// made it, so that nothing has to be kept of a permit that is gone.
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

// knows reports whether the handler made a name, and whether the permit's first lifetime is over.
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
