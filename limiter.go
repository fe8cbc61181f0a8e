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
	store    Store
	charge   Charge
	reserves reserves
	lag      recent
	holds    sync.Pool
}

// NewLimiter returns a limiter for the policy's limit. Of the policy it uses
// Name, Limit, Jitter, Headroom, Shadow and Scope: the key and the cost are arguments of
// [Limiter.Acquire], and there is no request to match and no answer to learn
// from. It reports every mistake at once.
func NewLimiter(s Store, p Policy) (*Limiter, error) {
	r, err := newRule(p, 0)
	if s == nil {
		err = errors.Join(&ConfigError{"", "Store", errors.New("is required")}, err)
	}
	if err != nil {
		return nil, err
	}
	l := &Limiter{store: s, charge: r.charge, reserves: r.reserves}
	l.charge.Budget.Group = p.Name
	if p.Match != "" {
		l.charge.Budget.Group = r.pattern.group()
	}
	l.holds.New = func() any {
		return &hold{store: s, lag: &l.lag, booking: Booking{Charges: make([]Charge, 1)}}
	}
	return l, nil
}

// Acquire waits until the budget of key has room for cost and returns a permit.
// It waits as long as ctx and [WithMaxWait] allow and returns at once, with a
// *[LimitError], if that is not long enough. If ctx ends during the wait, the
// place is given back and the error is the context's.
func (l *Limiter) Acquire(ctx context.Context, key string, cost int) (*Permit, error) {
	if err := l.acquire(ctx, key, cost, maxWait(ctx, 0)); err != nil {
		return nil, err
	}
	return &Permit{}, nil
}

// TryAcquire is Acquire for callers that never wait for room.
func (l *Limiter) TryAcquire(ctx context.Context, key string, cost int) (*Permit, error) {
	if err := l.acquire(ctx, key, cost, -1); err != nil {
		return nil, err
	}
	return &Permit{}, nil
}

func (l *Limiter) acquire(ctx context.Context, key string, cost int, wait time.Duration) error {
	h := l.holds.Get().(*hold)
	defer l.holds.Put(h)
	// The rest is set anew by each booking.
	h.maxWait, h.came, h.grant = wait, time.Time{}, Grant{Held: -1}
	c := &h.booking.Charges[0]
	l.price(c, key, cost)
	c.Reserve = l.reserves.of(priority(ctx))
	switch {
	case cost < 0:
		return &ConfigError{l.charge.Budget.Policy, "cost", errors.New("is negative; 0 is the least")}
	case cost == 0:
		return nil
	}
	if err := payable(h.booking.Charges); err != nil {
		return err
	}
	return h.take(ctx, waiting{parts: handOn})
}

// price sets c to the charge of one call.
func (l *Limiter) price(c *Charge, key string, cost int) {
	*c = l.charge
	c.Cost = cost
	if key != "" {
		c.Budget.Key = budgetKey(c.Budget.Policy, key)
	}
}

// Pause closes the budget of key for d, for the whole fleet: no start granted
// from now on lies before the end. Of several pauses the latest end counts, and
// none is longer than [MaxPenalty].
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration) error {
	var c Charge
	l.price(&c, key, 1)
	if err := l.store.Pause(ctx, c, min(d, MaxPenalty)); err != nil {
		return &StoreError{err}
	}
	return nil
}

// Status describes the budget of key and changes nothing.
func (l *Limiter) Status(ctx context.Context, key string) (Status, error) {
	var c Charge
	l.price(&c, key, 1)
	st, err := l.store.Status(ctx, c)
	if err != nil {
		return st, &StoreError{err}
	}
	return st, nil
}

// A Permit is leave to start one piece of work now.
type Permit struct{}

// Release says that the work is done. It does nothing for the limits that
// count starts, and may be called more than once.
func (p *Permit) Release() {}
