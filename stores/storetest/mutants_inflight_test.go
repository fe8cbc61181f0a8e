package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Mutants of what is in flight, and of the line.
var inFlightMutants = []mutant{
	{"one too many in flight", "P1_InFlight", "", flying(func(c *store.Charge) {
		c.Limit = store.Concurrency(c.Limit.N() + 1)
	})},
	{"one too few in flight", "P1_InFlight", "", flying(func(c *store.Charge) {
		c.Limit = store.Concurrency(max(c.Cost+c.KeepFree, c.Limit.N()-1))
	})},
	{"reserve ignored in flight", "P5_InFlightReserve", "", unreserved(store.KindConcurrency)},
	{"costly ones are passed by", "P5_LineCostly", "", flying(func(c *store.Charge) {
		c.Limit, c.KeepFree = store.Concurrency(c.Limit.N()+100), c.KeepFree+100
	})},
	{"a reserve stops the line", "P5_LineReserve", "", flying(func(c *store.Charge) {
		c.Limit, c.KeepFree = store.Concurrency(c.Limit.N()-c.KeepFree), 0
	})},
	{"a shadow in flight does not count", "Store_InFlightShadow", "", flying(func(c *store.Charge) {
		if c.Shadow {
			c.Budget.Key = [16]byte{1}
		}
	})},
	{"a shadow waits in line", "Store_InFlightShadow", "", flying(func(c *store.Charge) { c.Shadow = false })},

	{"release frees nothing", "P1_InFlightUntil", "", broken{release: func(*oracle, *store.Booking, store.Grant) {}}},
	{"release of 1 only", "P1_InFlightCosts", "", broken{release: func(o *oracle, b *store.Booking, g store.Grant) {
		one := *b
		one.Charges = slices.Clone(b.Charges)
		for i := range one.Charges {
			one.Charges[i].Cost = 1
		}
		o.Release(&one, g)
	}}},
	{"release of the first budget only", "P6_InFlight", "", broken{release: func(o *oracle, b *store.Booking, g store.Grant) {
		first := *b
		first.Charges = b.Charges[:1]
		o.Release(&first, g)
	}}},
	{"release of what never began", "Store_InFlightReleaseOfNothing", "", broken{
		release: func(o *oracle, b *store.Booking, g store.Grant) {
			g.Wait = 0
			o.Release(b, g)
		}}},
	{"release gives back the start", "Store_InFlightReleaseKeeps", "", broken{
		release: func(o *oracle, b *store.Booking, g store.Grant) { o.Cancel(b, g) }}},
	{"release tells nobody", "P5_Line", "", broken{release: func(o *oracle, b *store.Booking, _ store.Grant) {
		o.lines.release(*b)
	}}},
	{"release tells everybody", "P5_Line", "", broken{release: func(o *oracle, b *store.Booking, g store.Grant) {
		o.Release(b, g)
		o.tell()
	}}},
	{"room is not set aside", "P5_Line", "", broken{release: func(o *oracle, b *store.Booking, g store.Grant) {
		o.Release(b, g)
		for _, l := range o.lines.of {
			l.waits = slices.DeleteFunc(l.waits, func(w *wait) bool { return w.called })
		}
	}}},
	{"a hold that is cancelled goes on", "P7_InFlightCancel", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		o.Cancel(b, g)
		if g.OK && g.Wait == 0 {
			o.lines.hold(*b)
		}
	}}},
	{"a place in line cannot be cancelled", "P7_Line", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		if g.OK {
			o.Cancel(b, g)
		}
	}}},
	{"a called waiter cannot cancel", "P7_LineCancelledPlace", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		if w := o.queued[g.Handle.Place]; w == nil || !w.called {
			o.Cancel(b, g)
		}
	}}},
	{"the waiter behind one that leaves is not called", "P7_LineWithout", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		if g.OK {
			o.Cancel(b, g)
		} else {
			o.leave(g.Handle)
		}
	}}},

	{"last come, first served", "P5_LineInOrder", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		if o.lines.arrived == 0 {
			o.lines.arrived = 1 << 40
		}
		o.lines.arrived -= 2
		return honest(o, b)
	}}},
	{"a waiter that comes too early goes to the end", "P5_LineKeeps", "", newArrival(true)},
	{"a called waiter that lines up again goes to the end", "P5_InFlightKeepsItsTurn", "", newArrival(false)},
	{"a called waiter stands in line again", "P5_InFlightCalled", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		if w := o.queued[b.Instead.Place]; w != nil {
			w.called = false
		}
		return honest(o, b)
	}}},
	{"a newcomer passes the line", "P5_LineCostly", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		if b.Instead == (store.Handle{}) && !slices.ContainsFunc(b.Charges, func(c store.Charge) bool {
			return inFlight(c) && !o.lines.at(c).fits(c)
		}) {
			o.lines.hold(*b)
			o.booked[int64(len(o.booked)+1)] = entry{*b, o.clock()}
			o.ledger.add(*b, o.clock())
			return store.Grant{OK: true, HeldBy: -1, Handle: store.Handle{Start: int64(len(o.booked))}}
		}
		return honest(o, b)
	}}},
	{"a caller that does not wait lines up", "P1_InFlight", "", asking(func(b *store.Booking) {
		if b.MaxWait == 0 && slices.ContainsFunc(b.Charges, inFlight) {
			b.MaxWait = ms
		}
	})},
	{"nobody lines up", "P5_Line", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if g.Ready != nil {
			o.leave(g.Handle)
			g.Ready = nil
		}
		return g
	}}},
	{"a place in line has a wait", "P5_Line", "", saying(func(g *store.Grant) {
		if g.Ready != nil {
			g.Wait = sec
		}
	})},
	{"in flight from the booking on", "P6_InFlightWithAWindow", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if g.OK && g.Wait > 0 {
			o.lines.hold(*b)
		}
		return g
	}}},
	{"windows are booked from the line", "P5_InFlightInANarrowLine", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if g.Ready != nil {
			o.ledger.add(*b, o.clock())
		}
		return g
	}}},
	{"taken one by one", "P6_InFlight", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if !g.OK {
			for _, c := range b.Charges {
				if inFlight(c) && o.lines.at(c).fits(c) {
					o.lines.at(c).held += c.Cost
				}
			}
		}
		return g
	}}},
	{"a window's wait stands in line", "P5_InFlightHeldByAWindow", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if i := slices.IndexFunc(b.Charges, inFlight); i >= 0 && g.OK && g.Wait > 0 {
			full := b.Charges[i]
			full.Cost = full.Limit.N()
			o.lines.at(full).held += full.Cost
		}
		return g
	}}},
	{"settle changes what is in flight", "Store_InFlightSettle", "", settling(func(o *oracle, e entry, costs []int) {
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
		for i, c := range e.booking.Charges {
			if inFlight(c) {
				o.lines.at(c).held += costs[i] - c.Cost
			}
		}
	})},
	{"what is in flight ends by itself", "P1_InFlightUntil", "nothing runs for so long there", broken{
		book: func(o *oracle, b *store.Booking) store.Grant {
			for mark, e := range o.booked {
				if len(e.booking.Charges) == 1 && inFlight(e.booking.Charges[0]) && e.at+micros(30*sec) < o.clock() {
					o.lines.release(e.booking)
					delete(o.booked, mark)
				}
			}
			return honest(o, b)
		}}},
	{"a pause does not close what is in flight", "P11_InFlight", "nothing is closed there", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if !inFlight(c) {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
}

// flying books with other charges for what is in flight. What is given back is
// what was booked.
func flying(change func(*store.Charge)) broken { return ofKind(store.KindConcurrency, change) }

// newArrival forgets when somebody in line came.
func newArrival(early bool) broken {
	return broken{book: func(o *oracle, b *store.Booking) store.Grant {
		if w := o.queued[b.Instead.Place]; w != nil && w.called != early {
			o.lines.arrived++
			w.arrival = o.lines.arrived
		}
		return honest(o, b)
	}}
}

// tell tells all that they are called, although they are not.
func (o *oracle) tell() {
	for _, l := range o.lines.of {
		for _, w := range l.waits {
			if !w.called {
				close(w.ready)
				w.ready = make(chan struct{})
			}
		}
	}
}
