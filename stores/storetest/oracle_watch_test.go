package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Watches are all of an oracle.
type watches struct {
	watched []*oracleWatch
	lifted  map[int64]bool // the marks of grants for which a pause was lifted since
}

// An oracleWatch is the oracle's watch over one start.
type oracleWatch struct {
	o      *oracle
	b      store.Booking
	at     int64
	news   chan<- struct{}
	lifted bool
}

// Watch implements store.Store.
func (o *oracle) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := &oracleWatch{o: o, b: *b, at: o.booked[g.Handle.Start].at, news: news, lifted: o.lifted[g.Handle.Start]}
	o.watched = append(o.watched, v)
	v.tell(false)
	return v
}

// Confirm implements store.Watch.
func (v *oracleWatch) Confirm(context.Context, time.Duration) (bool, error) {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	return !v.lifted && !v.closed(), nil
}

// Stop implements store.Watch.
func (v *oracleWatch) Stop() {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	v.news = nil
}

// closed reports whether a penalty closes a budget at the start.
func (v *oracleWatch) closed() bool {
	for _, c := range v.b.Charges {
		if !c.Shadow && v.o.ledger.closed[c.Budget.Key] > v.at {
			return true
		}
	}
	return false
}

// tell tells the caller, if there is news.
func (v *oracleWatch) tell(lifted bool) {
	if v.lifted = v.lifted || lifted; v.lifted || v.closed() {
		select {
		case v.news <- struct{}{}:
		default:
		}
	}
}

// news tells all watches of a budget.
func (o *oracle) news(c store.Charge, lifted bool) {
	for _, v := range o.watched {
		if counts(v.b, c) {
			v.tell(lifted)
		}
	}
}

// Resume implements store.Store.
func (o *oracle) Resume(_ context.Context, c store.Charge) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	lifted := o.ledger.closed[c.Budget.Key] > o.clock()
	o.ledger.resume(c)
	if lifted {
		o.lift(c)
	}
	o.news(c, lifted)
	return nil
}

// lift notes for which grants a pause is lifted.
func (o *oracle) lift(c store.Charge) {
	if o.lifted == nil {
		o.lifted = make(map[int64]bool)
	}
	for mark, e := range o.booked {
		if counts(e.booking, c) {
			o.lifted[mark] = true
		}
	}
}

// counts reports whether the budget of a charge is one that holds the booking.
func counts(b store.Booking, c store.Charge) bool {
	return slices.ContainsFunc(b.Charges, func(own store.Charge) bool {
		return !own.Shadow && own.Budget.Key == c.Budget.Key
	})
}
