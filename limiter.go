package throttle

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Limiter is the engine of [Transport] for work that is not an HTTP request:
// gRPC, SQL, a queue consumer. It is safe for concurrent use and has nothing to
// close.
type Limiter struct {
	meter
	reserves reserves
	rtt      rttEstimator
	pool     sync.Pool
}

// NewLimiter returns a limiter for the policy's limit. Of the policy it uses
// Name, Limit, Jitter, Headroom, Shadow, Scope and Adaptive (it obeys what a [Transport]
// learned, and learns nothing itself): the key and the cost are
// arguments of [Limiter.Acquire], and there is no request to match and no answer
// to learn from. In a cluster Match says where the budgets lie. For those of a
// [Transport] there is [Transport.Limiter]. It reports every mistake at once.
func NewLimiter(s Store, p Policy) (*Limiter, error) {
	r, err := compile(p, 0)
	if s == nil {
		err = errors.Join(&ConfigError{"", "Store", errors.New("is required")}, err)
	}
	if err != nil {
		return nil, err
	}
	r.charge.Budget.Group = p.Name
	if p.Match != "" {
		r.charge.Budget.Group, _ = r.pattern.Group()
	}
	return limiterOf(s, &r), nil
}

// Limiter returns a limiter for the budgets of one of the transport's policies:
// to close and open them by hand, to look at them, or for other work that counts
// against the same limit. The key of a budget is what the policy's Key returns for
// its requests, and "" for a policy without a Key.
//
// It has the policies as they are now: after [Transport.SetPolicies] ask for another.
func (t *Transport) Limiter(policy string) (*Limiter, error) {
	rules := t.policies.Load().policies
	for i := range rules {
		if r := &rules[i]; r.Name == policy {
			return limiterOf(t.store, r), nil
		}
	}
	return nil, &ConfigError{policy, "Name", errors.New("the transport has no policy of this name")}
}

// limiterOf returns a limiter for the policy's budgets.
func limiterOf(s Store, r *compiledPolicy) *Limiter {
	l := &Limiter{meter: meter{s, r.charge}, reserves: r.reserves}
	l.pool.New = func() any {
		a := &acquisition{store: s, rtt: &l.rtt, booking: Booking{Charges: []Charge{l.charge}}}
		a.inspectCharges()
		return a
	}
	return l
}

// Acquire waits until the budget of key has room for cost and returns a permit.
// It waits as long as ctx and [WithMaxWait] allow and returns at once, with a
// *[LimitError], if that is not long enough. If ctx ends during the wait, the
// place is given back and the error is the context's.
//
// A limit of [Concurrency] counts the work as in flight until [Permit.Release].
// The permits of other limits may be dropped.
func (l *Limiter) Acquire(ctx context.Context, key string, cost int) (*Permit, error) {
	// Made here, and so little else that this is inlined: a permit that does
	// not leave the caller's function is not allocated.
	return l.acquire(ctx, new(Permit), key, cost)
}

// TryAcquire is Acquire for callers that never wait for room.
func (l *Limiter) TryAcquire(ctx context.Context, key string, cost int) (*Permit, error) {
	return l.acquireWithin(ctx, new(Permit), key, cost, -1)
}

func (l *Limiter) acquire(ctx context.Context, p *Permit, key string, cost int) (*Permit, error) {
	return l.acquireWithin(ctx, p, key, cost, maxWait(ctx, 0))
}

// acquireWithin fills in and returns p.
func (l *Limiter) acquireWithin(ctx context.Context, p *Permit, key string, cost int, wait time.Duration) (*Permit, error) {
	a := l.pool.Get().(*acquisition)
	defer l.pool.Put(a)
	// The rest is set anew by each booking.
	a.maxWait, a.arrivedAt, a.grant, a.slots, a.staleStreak = wait, 0, Grant{Held: -1}, nil, 0
	a.priority, a.returns, a.lead = priority(ctx), false, 0
	c := &a.booking.Charges[0]
	c.Budget.Key, c.Cost = l.key(key), cost
	if l.reserves != (reserves{}) {
		c.Reserve = l.reserves.of(a.priority)
	}
	switch {
	case cost < 0:
		return nil, &ConfigError{l.charge.Budget.Policy, "cost", errors.New("is negative: use 0 or more")}
	case cost == 0:
		return p, nil
	}
	if err := checkCosts(a.booking.Charges); err != nil {
		return nil, err
	}
	err := a.acquire(ctx, waitOptions{jitterShare: handoffShare})
	a.stopWatch()
	if err != nil {
		return nil, err
	}
	p.fill(&l.meter, a)
	return p, nil
}

// key returns the key of a budget.
func (l *Limiter) key(key string) [16]byte {
	if key == "" {
		return l.charge.Budget.Key
	}
	return budgetKey(l.charge.Budget.Policy, key)
}

// one returns a charge of cost 1.
func (l *Limiter) one(key string) Charge {
	c := l.charge
	c.Budget.Key = l.key(key)
	return c
}

// Pause closes the budget of key for d, for the whole fleet: nothing starts
// before the end, whenever its start was booked. Of several pauses the latest end
// counts, and none is longer than [MaxPenalty]. [Limiter.Resume] ends it early. A
// store that is away is asked again until ctx ends, so give it a deadline.
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration) error {
	if err := l.store.Pause(ctx, l.one(key), min(d, MaxPenalty)); err != nil {
		return &StoreError{err}
	}
	return nil
}

// Resume opens the budget of key again, for the whole fleet, before its pauses
// end: waiters may start at once.
func (l *Limiter) Resume(ctx context.Context, key string) error {
	if err := l.store.Resume(ctx, l.one(key)); err != nil {
		return &StoreError{err}
	}
	return nil
}

// Status describes the budget of key and changes nothing.
func (l *Limiter) Status(ctx context.Context, key string) (Status, error) {
	st, err := l.store.Status(ctx, l.one(key))
	if err != nil {
		return st, &StoreError{err}
	}
	return st, nil
}
