package storetest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// An oracle is a store made of a ledger: the definition, and nothing else. Its
// marks are numbers in the order of the grants.
type oracle struct {
	store.Minimal
	mu     sync.Mutex
	ledger *ledger
	booked map[int64]entry
	lines  *lines
	queued map[int64]*wait // those in line, by their marks
	clock  func() int64
	before map[[16]byte]penalty // for mutants: what a Resume should forget
	watches
}

// An entry is one grant that was not given back.
type entry struct {
	booking store.Booking
	at      int64
}

func newOracle() *oracle {
	return &oracle{
		ledger: newLedger(), booked: make(map[int64]entry),
		lines: newLines(), queued: make(map[int64]*wait),
		clock:  func() int64 { return time.Now().UnixMicro() },
		before: make(map[[16]byte]penalty),
	}
}

// Book implements store.Store.
func (o *oracle) Book(_ context.Context, b *store.Booking) (store.Grant, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.lines.call()
	o.giveBack(b.Instead)
	before := o.leave(b.Instead)
	now := o.clock()
	at := o.ledger.earliest(*b, now)
	g := store.Grant{Wait: time.Duration(at-now) * tick, HeldBy: -1}
	if at > soonest(*b, now) {
		g.HeldBy, g.Paused = o.holder(b, now, at-1)
	}
	if b.MaxWait >= 0 && g.Wait > b.MaxWait {
		return g, nil
	}
	if at == now {
		if lacking := o.lines.lacking(*b, before); lacking != nil {
			return o.lineUp(b, lacking[0], before), nil
		}
		o.lines.hold(*b)
	}
	for i := range b.Charges {
		if c := &b.Charges[i]; c.Shadow {
			alone := *c
			alone.Shadow = false
			k := store.Booking{Charges: []store.Charge{alone}, Spread: b.Spread}
			if g.Over == nil {
				g.Over = make([]time.Duration, len(b.Charges))
			}
			g.Over[i] = time.Duration(o.ledger.earliest(k, at)-at) * tick
		}
	}
	g.OK, g.Handle.Start = true, int64(len(o.booked)+1)
	o.booked[g.Handle.Start] = entry{*b, at}
	o.ledger.add(*b, at)
	return g, nil
}

// holder returns the charge that does not allow a request of the moment now to
// start at t, and whether that is because of a penalty.
func (o *oracle) holder(b *store.Booking, now, t int64) (int, bool) {
	for i, c := range b.Charges {
		if !c.Shadow && !o.ledger.ask(c, *b, now).allows(t) {
			return i, o.ledger.closed[c.Budget.Key] > soonest(*b, now)
		}
	}
	return -1, false
}

// lineUp is the answer to a booking for which one charge has no room now.
func (o *oracle) lineUp(b *store.Booking, held int, before *wait) store.Grant {
	g := store.Grant{HeldBy: held}
	if b.MaxWait != 0 {
		w := o.lines.join(b.Charges[held], before)
		g.Ready, g.Handle.Place = w.ready, w.arrival
		o.queued[g.Handle.Place] = w
	}
	return g
}

// leave ends the place in line that the handle names, if any.
func (o *oracle) leave(h store.Handle) *wait {
	w := o.queued[h.Place]
	if w != nil {
		o.lines.leave(w)
		delete(o.queued, h.Place)
	}
	return w
}

// giveBack removes a grant; its name stays used up.
func (o *oracle) giveBack(h store.Handle) {
	if e, ok := o.booked[h.Start]; ok {
		o.ledger.remove(e.booking, e.at, o.clock())
		o.booked[h.Start] = entry{}
	}
}

// Cancel implements store.Store.
func (o *oracle) Cancel(b *store.Booking, g store.Grant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leave(g.Handle)
	o.giveBack(g.Handle)
	if g.OK && g.Wait == 0 {
		o.lines.release(*b)
	}
	o.lines.call()
}

// Pause implements store.Store.
func (o *oracle) Pause(_ context.Context, c store.Charge, d time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.shut(c, o.clock(), d, 0)
	o.news(c, false)
	return nil
}

// Refuse implements store.Store.
func (o *oracle) Refuse(_ context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.booked[r.Start.Handle.Start]; ok {
		from, to = o.ledger.learn(c, e.at, o.clock())
	}
	o.ledger.shutLate(c, o.clock(), r.Length, max(tick, r.Ago), cmp.Or(r.Took, r.Ago))
	o.news(c, false)
	return from, to, nil
}

// Status implements store.Store.
func (o *oracle) Status(_ context.Context, c store.Charge) (store.Status, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.ledger.status(c, o.clock())
	if inFlight(c) {
		st.Used, st.Waiting, st.Callers = o.lines.at(c).status()
	}
	return st, nil
}

// Release implements store.Store.
func (o *oracle) Release(b *store.Booking, g store.Grant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.OK && g.Wait == 0 {
		o.lines.release(*b)
		o.lines.call()
	}
}

// Settle implements store.Store.
func (o *oracle) Settle(_ context.Context, _ *store.Booking, g store.Grant, costs []int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.booked[g.Handle.Start]; ok {
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
		o.recost(g.Handle.Start, costs)
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

// Reconcile implements store.Store.
func (o *oracle) Reconcile(_ context.Context, c store.Charge, q store.Quota) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, until := o.ledger.reconcile(c, q, o.clock())
	o.tellBetween(c, from, until)
	return nil
}

// tellBetween tells the watches of all starts from a time on, before another, that
// they no longer fit.
func (o *oracle) tellBetween(c store.Charge, from, until int64) {
	for _, v := range o.watched {
		if counts(v.b, c) && from <= v.at && v.at < until {
			v.tell(true)
		}
	}
}
