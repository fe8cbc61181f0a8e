package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// An oracle is a store made of a ledger: the definition, and nothing else. Its
// marks are numbers in the order of the grants.
type oracle struct {
	mu     sync.Mutex
	ledger *ledger
	booked map[int64]entry
	clock  func() int64
}

// An entry is one grant that was not given back.
type entry struct {
	booking throttle.Booking
	at      int64
}

func newOracle() *oracle {
	return &oracle{
		ledger: newLedger(), booked: make(map[int64]entry),
		clock: func() int64 { return time.Now().UnixMicro() },
	}
}

// Book implements throttle.Store.
func (o *oracle) Book(_ context.Context, b *throttle.Booking) (throttle.Grant, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.giveBack(b.Instead)
	now := o.clock()
	at := o.ledger.earliest(*b, now)
	g := throttle.Grant{Wait: time.Duration(at-now) * tick, Held: -1}
	if at > soonest(*b, now) {
		g.Held, g.Paused = o.holder(b, now, at-1)
	}
	if b.MaxWait >= 0 && g.Wait > b.MaxWait {
		return g, nil
	}
	for i := range b.Charges {
		if c := &b.Charges[i]; c.Shadow {
			alone := *c
			alone.Shadow = false
			k := throttle.Booking{Charges: []throttle.Charge{alone}, Spread: b.Spread}
			c.Over = time.Duration(o.ledger.earliest(k, at)-at) * tick
		}
	}
	g.OK, g.Mark = true, int64(len(o.booked)+1)
	o.booked[g.Mark] = entry{*b, at}
	o.ledger.add(*b, at)
	return g, nil
}

// holder returns the charge that does not allow a request of the moment now to
// start at t, and whether that is because of a penalty.
func (o *oracle) holder(b *throttle.Booking, now, t int64) (int, bool) {
	for i, c := range b.Charges {
		if !c.Shadow && !o.ledger.ask(c, *b, now).allows(t) {
			return i, t < o.ledger.closed[c.Budget.Key]
		}
	}
	return -1, false
}

// giveBack removes a grant; the mark stays used up.
func (o *oracle) giveBack(mark int64) {
	if e, ok := o.booked[mark]; ok {
		o.ledger.remove(e.booking, e.at, o.clock())
		o.booked[mark] = entry{}
	}
}

// Cancel implements throttle.Store.
func (o *oracle) Cancel(_ *throttle.Booking, g throttle.Grant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.giveBack(g.Mark)
}

// Pause implements throttle.Store.
func (o *oracle) Pause(_ context.Context, c throttle.Charge, d time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.pause(c, o.clock()+micros(d))
	return nil
}

// Status implements throttle.Store.
func (o *oracle) Status(_ context.Context, c throttle.Charge) (throttle.Status, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.status(c, o.clock()), nil
}

// Release implements throttle.Store.
func (o *oracle) Release(*throttle.Booking, throttle.Grant) {}

// Settle implements throttle.Store.
func (o *oracle) Settle(_ context.Context, _ *throttle.Booking, g throttle.Grant, costs []int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.booked[g.Mark]; ok {
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
		o.recost(g.Mark, costs)
	}
	return nil
}

// recost remembers what a grant turned out to cost.
func (o *oracle) recost(mark int64, costs []int) {
	e := o.booked[mark]
	e.booking.Charges = slices.Clone(e.booking.Charges)
	for i := range e.booking.Charges {
		e.booking.Charges[i].Cost = costs[i]
	}
	o.booked[mark] = e
}
