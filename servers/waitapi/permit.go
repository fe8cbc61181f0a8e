package waitapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/problem"
	"github.com/fleetthrottle/throttle/store"
)

// acquire serves /v1/acquire. It waits until the caller's permit has its start, and answers 200, or 202 with a place. It
// returns the problem of a refusal, and panics with [http.ErrAbortHandler] if the caller has left.
func (t *table) acquire(w http.ResponseWriter, r *http.Request) *problem.Problem {
	q, bad := readAcquire(w, r, &t.c, t.bodies)
	if bad != nil {
		return bad
	}

	select {
	case t.waiting <- struct{}{}:
		defer func() { <-t.waiting }()
	default:
		return refuse("too many callers wait in this process")
	}

	p, bad := t.join(q)
	if bad != nil {
		return bad
	}

	for {
		answer, ready, err := t.outcome(p)
		switch {
		// Look at the caller first: a caller that has left must not keep its start.
		case r.Context().Err() != nil:
			t.left(p, false)

			// The caller has gone, so the connection ends without an answer.
			panic(http.ErrAbortHandler)
		case err != nil:
			t.left(p, false)
			if later := new(placed); errors.As(err, &later) {
				writePlaced(w, later)
				return nil
			}

			return problemOf(err)

		case answer != nil:
			t.left(p, writeAnswer(w, r, answer))
			return nil
		}

		select {
		case <-ready:
		case <-r.Context().Done():
		}
	}
}

// writeAnswer sends an answer and reports whether the caller may have it. Over HTTP/1 a failed write means
// that the answer is incomplete. Over HTTP/2 the caller may have the answer even then. A writer that cannot flush has not
// failed.
func writeAnswer(w http.ResponseWriter, r *http.Request, a *acquired) bool {
	text, _ := json.Marshal(a) // never fails
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	_, err := w.Write(text)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	return err == nil || errors.Is(err, http.ErrNotSupported) || r.ProtoMajor != 1
}

// errOtherBudget reports a policy and key that are not among the permit's
// budgets.
var errOtherBudget = errors.New("the permit is not one of this policy and key")

// storeTime limits a change of a permit's budgets.
const storeTime = 10 * time.Second

// release serves /v1/release. Releasing twice is fine: the first answer may have been lost.
func (t *table) release(w http.ResponseWriter, r *http.Request) *problem.Problem {
	name, bad := t.readChange(w, r, new(reader), nil)
	if bad != nil {
		return bad
	}
	if bad := t.end(name); bad != nil {
		return bad
	}
	done(w)
	return nil
}

// end removes the permit of a name from the table, as take does, and releases it.
func (t *table) end(name string) *problem.Problem {
	p, bad := t.take(name)
	if p != nil {
		p.inner.Release()
		p.leave() // ends a wait to acquire it again
	}
	return bad
}

// take removes the permit of a name from the table, as released, and returns it, or a problem. It returns neither if the
// permit is gone and its first lifetime is not over: the first answer to a release may have been lost.
func (t *table) take(name string) (*permit, *problem.Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byName[name]; p != nil {
		p.released = true
		t.drop(p, errGone)
		return p, nil
	}

	// The name is genuine and its first lifetime is not over, so the permit was released, or given back for want of a caller.
	if known, over := t.names.knows(name); known && !over {
		return nil, nil
	}
	_, bad := t.find(name)
	return nil, bad
}

// settle serves /v1/settle. It lowers a cost that is above mostCost to mostCost.
func (t *table) settle(w http.ResponseWriter, r *http.Request) *problem.Problem {
	var d reader
	var policy, key string
	var cost int
	name, bad := t.readChange(w, r, &d, map[string]field{
		"cost":   d.number(&cost, 0),
		"policy": d.text(&policy),
		"key":    d.text(&key),
	}, "cost")
	if bad != nil {
		return bad
	}

	return t.changePermit(w, r, name, func(ctx context.Context, p *permit) error {
		most, ok := p.mostCost(policy, key)
		switch {
		case !ok:
			return &throttle.ConfigError{Policy: policy, Field: "Key", Err: errOtherBudget}
		case policy == "" && key == "":
			return p.inner.Tell(ctx, throttle.Answer{}.WithCost(min(cost, most)))
		}

		return p.inner.TellBudget(ctx, policy, key, throttle.Answer{}.WithCost(min(cost, most)))
	})
}

// mostCost returns the highest cost that a caller may settle, so that one number cannot fill many windows: the
// whole limit of the budget or, without a policy and a key, the highest limit of the permit's budgets. It is 0 if
// these limits count no starts. ok is false if the permit has no such budget.
func (p *permit) mostCost(policy, key string) (most int, ok bool) {
	unnamed := policy == "" && key == ""
	hash := budgetHash(policy, key)
	for _, b := range p.budgets {
		if unnamed || b.hash == hash {
			most, ok = max(most, b.most), true
		}
	}
	return most, ok
}

// penalize serves /v1/penalize. It shortens a penalty that is longer than [Config.MaxPenalty]: a request that
// is refused would leave the budget open.
func (t *table) penalize(w http.ResponseWriter, r *http.Request) *problem.Problem {
	if t.c.MaxPenalty < 0 {
		return problem.New(http.StatusForbidden, "callers of this process may not close budgets")
	}

	var d reader
	var policies []string
	var duration time.Duration
	name, bad := t.readChange(w, r, &d, map[string]field{
		"duration": d.seconds(&duration, time.Millisecond, throttle.MaxPenalty),
		"policies": d.list(mostDemands, func(raw json.RawMessage, at string) {
			var policy string
			d.text(&policy)(raw, at)
			policies = append(policies, policy)
		}),
	}, "duration")
	if bad != nil {
		return bad
	}

	return t.changePermit(w, r, name, func(ctx context.Context, p *permit) error {
		return p.inner.Tell(ctx, throttle.Refused(min(duration, t.c.MaxPenalty)), policies...)
	})
}

// readChange reads the body of a request about a permit: these fields, and the permit's name, which it returns.
func (t *table) readChange(w http.ResponseWriter, r *http.Request, d *reader, fields map[string]field, required ...string) (name string, bad *problem.Problem) {
	body, bad := t.bodies.read(w, r)
	if bad != nil {
		return "", bad
	}
	all := map[string]field{"permit": d.text(&name)}
	maps.Copy(all, fields)
	d.read(body, all, append(required, "permit")...)
	return name, d.problem()
}

// changePermit changes the budgets of the permit of a name, one change at a time, and answers 204, or returns the problem.
// The permit's work has begun from then on. The change goes on if the caller leaves, because a higher cost must be
// charged, but no longer than storeTime.
func (t *table) changePermit(w http.ResponseWriter, r *http.Request, name string, change func(context.Context, *permit) error) *problem.Problem {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTime)
	defer cancel()

	p, bad := t.begin(name)
	if bad != nil {
		return bad
	}

	select {
	case p.change <- struct{}{}:
		defer func() { <-p.change }()
	case <-ctx.Done():
		return problemOf(&throttle.StoreError{Err: ctx.Err()})
	}

	if err := change(ctx, p); err != nil {
		return problemOf(err)
	}

	// A change of a permit that has gone did nothing: tell the caller.
	if _, bad := t.begin(name); bad != nil {
		return bad
	}

	done(w)
	return nil
}

// begin returns the held permit of a name, and notes that its work has begun, or returns a problem.
func (t *table) begin(name string) (*permit, *problem.Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, bad := t.find(name)
	if bad == nil {
		p.begun = true
	}
	return p, bad
}

// done answers 204.
func done(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// soon is the Retry-After for lack of room in this process.
const soon = time.Second

// refuse returns a 503 with Retry-After.
func refuse(detail string) *problem.Problem {
	p := problem.New(http.StatusServiceUnavailable, detail)
	p.RetryAfter = soon
	return p
}

// errClosed reports that the handler was closed.
var errClosed = errors.New("waitapi: the handler was closed")

// errGone reports a permit that was released, or that expired, before its
// caller got an answer.
var errGone = errors.New("waitapi: the permit is gone")

// problemOf returns the answer for an error of the limiters or of the table.
func problemOf(err error) *problem.Problem {
	var full *throttle.LimitError
	var mistake *throttle.ConfigError
	switch {
	case errors.Is(err, errClosed):
		return refuse("this process ends")
	case errors.As(err, &mistake):
		p := problem.New(http.StatusBadRequest, mistake.Error())
		p.Policy = mistake.Policy
		return p
	}

	if p := problemOfPlace(err); p != nil {
		return p
	}

	p := problem.Of(err)

	// The remaining error is errGone: the permit was released while a caller waited for its start.
	if p == nil {
		return problem.New(http.StatusGone, "the permit is gone: it was released meanwhile")
	}

	// Under Concurrency nobody knows when a slot is free, but the caller needs a time to come back.
	if errors.As(err, &full) && full.RetryAfter == 0 {
		p.RetryAfter = soon
	}

	return p
}

// problemOfPlace returns the answer for a place that cannot be redeemed, or nil for other errors.
func problemOfPlace(err error) *problem.Problem {
	var wrong *store.PlaceError
	if !errors.As(err, &wrong) {
		return nil
	}
	switch wrong.Problem {
	case store.PlaceExpired, store.PlaceRedeemed:
		return problem.New(http.StatusGone, strings.TrimPrefix(wrong.Error(), "throttle: ")+": send an empty place for a new one")
	}
	return problem.New(http.StatusBadRequest, strings.TrimPrefix(wrong.Error(), "throttle: ")+": send an empty place for a new one")
}

// A permitState says what a permit holds, and its transitions:
//
//	state      the permit holds     becomes
//	acquiring  a place in line      held, when its start has come;
//	                                gone, if it is refused or released, or the last caller that waits for it leaves
//	held       a start, and slots   gone, if it is released or expires, the handler closes, or no caller could be answered;
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
	t.beginClose(ctx)
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

// beginClose closes the table to new callers, removes all held permits, and starts goroutines that release them. Permits
// that are not released when ctx ends keep their slots until the leases in the store expire.
func (t *table) beginClose(ctx context.Context) {
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

// join adds a caller to the permit of its key, or to a new permit. If the permit is new or held, join begins to acquire it.
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

	// The permit of the key is there already. Only a request with the same body may share it, and only before the work begins.
	case p.body != q.body:
		return nil, problem.New(http.StatusUnprocessableEntity, "the Idempotency-Key was used with another body: use another key")
	case p.begun:
		return nil, problem.New(http.StatusConflict, "the work of this Idempotency-Key has begun: use another key")
	case p.state == held:
		// The caller repeats its request because an answer was lost. The new answer needs a start for now.
		t.acquirePermit(p, q, func(ctx context.Context) (*throttle.Permit, error) { return p.inner, p.inner.Renew(ctx) })
	}

	p.callers++
	return p, nil
}

// acquirePermit starts a goroutine that acquires a permit by acquire and then calls endWait. The context of acquire limits
// only the wait: the permit itself ends with its lifetime, even if its caller has vanished. t.mu is held.
func (t *table) acquirePermit(p *permit, q *acquireRequest, acquire func(context.Context) (*throttle.Permit, error)) {
	ctx := throttle.WithPriority(throttle.WithMaxWait(t.ctx, q.wait), q.priority)
	ctx, p.leave = context.WithCancel(throttle.WithWaitOnly(ctx))
	p.state, p.answered, p.ready = acquiring, false, make(chan struct{})
	t.waits.Go(func() {
		inner, err := acquire(ctx)

		// Only the wait needed the context.
		p.leave()
		t.endWait(p, inner, err)
	})
}

// endWait notes the end of the wait for a permit: its start, or an error. It gives back a start that nobody wants.
func (t *table) endWait(p *permit, inner *throttle.Permit, err error) {
	if giveBack := t.noteEnd(p, inner, err); giveBack != nil {
		giveBack()
	}
}

// noteEnd is the part of endWait under the mutex. It returns the function that gives back a start that nobody
// wants, or nil.
func (t *table) noteEnd(p *permit, inner *throttle.Permit, err error) (giveBack func()) {
	t.mu.Lock()
	defer t.mu.Unlock()

	// Wake the callers whatever happened: each reads its outcome from the state.
	defer close(p.ready)
	switch {
	// The permit has no start to give back.
	case p.state == gone && err != nil:

	// The start of a released permit stays charged. A permit whose callers have left gives its start back.
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

// hold notes that a permit has its start, and begins its lifetime. t.mu is held.
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

// drop forgets a permit, whose callers get the error why, and stops its timer. t.mu is held.
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

	// After the timer fired, the permit may have gone, or be acquired again now, or have a later expiry by being acquired again.
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
// waits, and none may have an answer, the permit gives back its start and slots, unless its work has begun:
// the answer to an earlier request has arrived then.
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

	// Call the store without the mutex.
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

// find returns the held permit of a name, or the problem of a name that has none. t.mu is held.
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
	nameExpiry = 8 // end of the first lifetime, in nanoseconds since the namer was created
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
