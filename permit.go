package throttle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A meter is what a limiter and its permits share.
type meter struct {
	store  Store
	charge Charge // without key, cost and reserve
}

// A Permit is leave to do one piece of work, which may start now.
type Permit struct {
	meter    *meter // nil: the work was free
	key      [16]byte
	cost     int // as it was settled last
	reserve  int
	spread   time.Duration
	mark     int64
	node     int64
	wait     time.Duration
	released atomic.Bool
}

// fill makes the permit that of an acquisition that has its start.
func (p *Permit) fill(m *meter, a *acquisition) {
	c := &a.booking.Charges[0]
	p.meter, p.key, p.cost, p.reserve = m, c.Budget.Key, c.Cost, c.Reserve
	g := &a.grant
	if a.slots != nil {
		g = &a.slots.grant // the only charge is Concurrency
	}
	p.spread, p.mark, p.node, p.wait = a.booking.Spread, g.Mark, g.Node, g.Wait
}

// grant returns the grant of the start.
func (p *Permit) grant() Grant {
	return Grant{OK: true, Wait: p.wait, Mark: p.mark, Node: p.node, Held: -1}
}

// booking returns the booking of the start.
func (p *Permit) booking() *Booking {
	c := p.meter.charge
	c.Budget.Key, c.Cost, c.Reserve = p.key, p.cost, p.reserve
	return &Booking{Charges: []Charge{c}, Spread: p.spread}
}

// Release says that the work is done. It ends what a limit of [Concurrency]
// counts as in flight and does nothing for the limits that count starts. It may
// be called more than once, by several goroutines.
func (p *Permit) Release() {
	if p.meter == nil || p.released.Swap(true) {
		return
	}
	if p.meter.charge.Limit.kind == KindConcurrency {
		p.meter.store.Release(p.booking(), p.grant())
	}
}

// Settle changes the cost to what the work turned out to have cost, as often as
// that becomes known better: the difference is charged, at the work's own start
// and even above the limit, or given back. Work that was acquired at no cost
// stays free, and what is in flight keeps its cost. After Release it does
// nothing. It is not for use by several goroutines at once.
func (p *Permit) Settle(ctx context.Context, cost int) error {
	if p.meter == nil || p.released.Load() || !p.meter.charge.Limit.counts() {
		return nil
	}
	if cost < 0 {
		return &ConfigError{p.meter.charge.Budget.Policy, "cost", errors.New("is negative: use 0 or more")}
	}
	b, before := p.booking(), p.cost
	if cost = min(cost, mostSettled(&b.Charges[0])); cost == before {
		return nil
	}
	p.cost = cost
	if err := p.meter.store.Settle(ctx, b, p.grant(), []int{cost}); err != nil {
		// It is unknown which of the two is booked. The lesser one counts: giving
		// back too much would give back another's.
		p.cost = min(before, cost)
		return &StoreError{err}
	}
	return nil
}
