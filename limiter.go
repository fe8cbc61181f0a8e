package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// A Limiter is the engine of [Transport] for work that is not an HTTP request: gRPC, SQL, a
// queue consumer. It is safe for concurrent use and has nothing to close.
type Limiter struct {
	*engine
	policy    *compiledPolicy
	charge    store.Charge // of the policy
	headrooms headrooms
	pool      sync.Pool
}

// NewLimiter returns a limiter for the policy's limit. A policy with Keyed has a budget for
// each key that [Limiter.Acquire] is called with, and a policy without has one budget.
// Fields that only requests and answers need are mistakes: a limiter has no request to
// match, and learns from [Permit.Tell] alone. NewLimiter reports every mistake at once.
//
// For several policies, with Observe and MaxWait, there is [NewLimiters]. For the policies
// of a [Transport] there is [Transport.Limiter].
func NewLimiter(s Store, p Policy) (*Limiter, error) {
	c, err := compile(p, 0, names)
	e := new(engine)
	if err := errors.Join(e.configure(Config{Store: s}), err); err != nil {
		return nil, err
	}

	// Each booking is in one budget of this policy alone, so the policy is a group of its own.
	c.charge.Budget.Group = p.Name
	return newLimiter(e, &c), nil
}

// Limiter returns a limiter for the budgets of one of the transport's policies: to close
// and open them by hand, to look at them, or for work outside HTTP that counts against the
// same limit. The key of a budget is the result of the policy's Key for its requests, and
// "" for a policy without a Key. A missing key, and a key for a policy without a Key, is a
// *[ConfigError]. The limiter has the transport's MaxWait and Observe.
//
// The limiter keeps the policies of this moment: after [Transport.SetPolicies] ask for a
// new limiter.
func (t *Transport) Limiter(policy string) (*Limiter, error) {
	p, err := t.policies.Load().policyNamed(policy, "the transport has")
	if err != nil {
		return nil, err
	}
	return newLimiter(&t.engine, p), nil
}

// newLimiter returns a limiter for the budgets of a policy, with an engine that it may share.
func newLimiter(e *engine, p *compiledPolicy) *Limiter {
	l := &Limiter{engine: e, policy: p, charge: p.charge, headrooms: p.headrooms}
	l.pool.New = func() any {
		a := new(acquisition)
		a.init(e)
		a.SetCharges([]store.Charge{l.charge})
		return a
	}
	return l
}

// Acquire waits until the budget of key has room for cost and returns a permit. It waits as
// long as ctx, [WithMaxWait] and MaxWait allow, or for a minute if none of them bounds the
// wait. If that is not long enough it returns a *[LimitError] at once. If ctx ends during
// the wait, the place is given back and the error is the context's. A key for a policy
// without keys, and no key for a policy with keys, is a *[ConfigError].
//
// The cost is 1 or more. A cost of 0 means 1. Work of cost [Free] takes nothing.
//
// A limit of [Concurrency] counts the work as in flight until [Permit.Release], or until
// ctx ends. For a context that bounds only the wait, and not the work, use [WithWaitOnly],
// or [WithMaxWait]. The permits of every other limit may be dropped without Release.
func (l *Limiter) Acquire(ctx context.Context, key string, cost int) (*Permit, error) {
	// Acquire is so small that it is inlined. So a permit that does not leave the function of
	// its caller is not allocated.
	return l.acquire(ctx, new(Permit), key, cost)
}

// acquire fills in p, the permit of a caller with a key and a cost, and returns it. The permit of Free work holds
// nothing. After an error acquire returns nil.
func (l *Limiter) acquire(ctx context.Context, p *Permit, key string, cost int) (*Permit, error) {
	wrongKey := l.checkKey(key)
	if l.policy == nil {
		return nil, wrongKey // the error of a zero Limiter
	}

	// Free work needs no store.
	p.engine, p.first.policy = l.engine, l.policy
	if cost == Free && wrongKey == nil {
		p.state.Store(permitFree)
		p.first.key, p.first.cost = l.key(key), 1 // for Tell: a charge costs at least 1
		return p, nil
	}

	// The pooled acquisition has the charge of the policy: only the key, the cost and KeepFree differ.
	a, o := l.pool.Get().(*acquisition), optionsOf(ctx)
	a.Priority = o.priority
	a.MaxWait, a.ByDefault = o.maxWaitOr(ctx, l.defaultMaxWait)
	c := &a.Booking.Charges[0]
	c.Budget.Key, c.Cost = l.key(key), cmp.Or(cost, 1)
	if l.headrooms != (headrooms{}) {
		c.KeepFree = l.headrooms.forPriority(a.Priority)
	}

	// While throttle is off no mistake refuses the caller.
	err := cmp.Or(wrongKey, a.checkCost())
	if err != nil && l.callers.IsOff() {
		a.passDespite(ctx, err)
		err = nil
	}

	// Most callers are granted by Book, and wait for nothing.
	if err == nil {
		err = a.Book(ctx)
	}
	if err == nil && !a.Granted() {
		err = a.awaitStart(ctx)
	}

	if err != nil {
		a.reportEnd(ctx, err)
		p = nil
	} else {
		// The permit gets copies, because the acquisition goes back to the pool.
		p.first.key, p.first.cost, p.first.keepFree = c.Budget.Key, c.Cost, c.KeepFree
		p.start.Set(&a.Caller)

		if a.Uncounted() {
			p.state.Store(permitFree)
		} else if a.Concurrent() {
			p.tieSlots(ctx, p.acquisition())
		}

		// Without an observer tell does nothing for a caller that started at once and that no policy held.
		if a.observe != nil || !a.Immediate() || a.Hold.Policy != "" {
			p.tell(ctx, a)
		}
	}

	if isReusable := a.Reuse(); isReusable {
		l.pool.Put(a)
	}

	return p, err
}

// checkKey returns the error of a zero Limiter, of a key for a policy without keys, and of a missing key.
func (l *Limiter) checkKey(key string) error {
	if l.policy == nil {
		return errNotMade()
	}
	return l.policy.checkKey(key)
}

// checkCost returns the error of a cost that is negative, or above the limit. It lowers a cost above the
// limit of a shadow policy instead.
func (a *acquisition) checkCost() error {
	if c := &a.Booking.Charges[0]; c.Cost < 0 {
		return negativeCost(c.Budget.Policy)
	}
	return checkCosts(a.Booking.Charges)
}

// awaitStart waits for the start that is booked, and ends the watch over it.
func (a *acquisition) awaitStart(ctx context.Context) error {
	defer a.StopWatch()
	return a.Acquire(ctx, acquire.Wait{})
}

// key returns the hashed key of the budget that a key of the program names. The key "" names the
// budget of a policy without a Key.
func (l *Limiter) key(key string) [16]byte {
	if key == "" {
		return l.charge.Budget.Key
	}
	return store.BudgetOf(l.charge.Budget.Policy, key).Key
}

// unitCharge returns a charge of cost 1 for the budget of key.
func (l *Limiter) unitCharge(key string) store.Charge {
	c := l.charge
	c.Budget.Key = l.key(key)
	return c
}

// Pause closes the budget of key for d, for the whole fleet: nothing starts before the end,
// whenever its start was booked. Of several pauses the latest end counts, and none is
// longer than [MaxPenalty]. [Limiter.Resume] ends a pause early. Pause asks a store that is
// away again until ctx ends, and for a minute if ctx has no deadline. The same holds for
// Resume, Status and the reports of a permit.
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration) error {
	if err := l.checkKey(key); err != nil {
		return err
	}
	if d <= 0 {
		return &ConfigError{l.policy.Name, "Pause", fmt.Errorf("%v closes nothing: say for how long, or end a pause with Resume", d)}
	}
	ctx, cancel := boundCall(ctx)
	defer cancel()
	if err := l.store.Pause(ctx, l.unitCharge(key), min(d, MaxPenalty)); err != nil {
		return &StoreError{err}
	}
	return nil
}

// Resume opens the budget of key again, for the whole fleet, before its pauses
// end: waiters may start at once.
func (l *Limiter) Resume(ctx context.Context, key string) error {
	if err := l.checkKey(key); err != nil {
		return err
	}
	ctx, cancel := boundCall(ctx)
	defer cancel()
	if err := l.store.Resume(ctx, l.unitCharge(key)); err != nil {
		return &StoreError{err}
	}
	return nil
}

// Status describes the budget of key and changes nothing.
func (l *Limiter) Status(ctx context.Context, key string) (Status, error) {
	if err := l.checkKey(key); err != nil {
		return Status{}, err
	}
	ctx, cancel := boundCall(ctx)
	defer cancel()
	st, err := l.store.Status(ctx, l.unitCharge(key))
	if err != nil {
		return st, &StoreError{err}
	}
	return st, nil
}
