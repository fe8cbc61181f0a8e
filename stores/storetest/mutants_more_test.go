package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Mutants of what is said, given back, closed, and told.
var otherMutants = []mutant{
	{"no handle", "P1", "", saying(func(g *store.Grant) { g.Handle = store.Handle{} })},
	{"wait too long", "P1", "", saying(func(g *store.Grant) { g.Wait += tick })},
	{"never held", "Store_Held", "", saying(func(g *store.Grant) { g.HeldBy = -1 })},
	{"always the first held", "Store_Held", "", saying(func(g *store.Grant) { g.HeldBy = min(g.HeldBy, 0) })},
	{"never paused", "P11_Held", "", saying(func(g *store.Grant) { g.Paused = false })},
	{"always paused", "Store_Held", "", saying(func(g *store.Grant) { g.Paused = g.HeldBy >= 0 })},

	{"shadow holds", "Store_Shadow", "", charging(func(c *store.Charge) { c.Shadow = false })},
	{"shadow says nothing", "Store_Shadow", "", saying(func(g *store.Grant) { g.Over = nil })},
	{"shadow does not count", "Store_Shadow", "", charging(func(c *store.Charge) {
		if c.Shadow {
			c.Budget.Key = [16]byte{1}
			c.Limit = store.PerSecond(c.Limit.N() + 1000)
		}
	})},

	{"cancel ignored", "P7_Cancel", "", broken{cancel: func(*oracle, *store.Booking, store.Grant) {}}},
	{"cancel of the first budget only", "P6_Cancel", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		first := *b
		first.Charges = b.Charges[:1]
		o.ledger.remove(first, o.booked[g.Handle.Start].at, o.clock())
	}}},
	{"cancel of what is to come only", "P7_CancelAPast", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		if o.booked[g.Handle.Start].at > o.clock() {
			o.Cancel(b, g)
		}
	}}},
	{"cancel of what is past only", "P7_CancelAPlace", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		if o.booked[g.Handle.Start].at <= o.clock() {
			o.Cancel(b, g)
		}
	}}},
	{"cancel of 1 only", "P7_CancelGivesBackTheCost", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		at := o.booked[g.Handle.Start].at
		o.Cancel(b, g)
		for _, c := range b.Charges {
			if c.Cost > 1 {
				o.ledger.add(store.Booking{Charges: []store.Charge{costing(c, c.Cost-1)}, Spread: b.Spread}, at)
			}
		}
	}}},
	{"Instead ignored", "P7_Instead", "", asking(func(b *store.Booking) { b.Instead = store.Handle{} })},
	{"Instead given back after the search", "P7_InsteadGivesBackFirst", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		other := *b
		other.Instead = store.Handle{}
		g := honest(o, &other)
		o.giveBack(b.Instead)
		return g
	}}},
	{"Instead kept by a refusal", "P7_InsteadIsGivenBack", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		old := o.booked[b.Instead.Start]
		g := honest(o, b)
		if !g.OK {
			o.ledger.add(old.booking, old.at)
			o.booked[b.Instead.Start] = old
		}
		return g
	}}},

	{"pause ignored", "P11_Pause", "", broken{pause: func(*oracle, store.Charge, time.Duration, time.Duration) {}}},
	{"last pause counts", "P11_Latest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.closed[c.Budget.Key] = o.clock() + micros(d)
	}}},
	{"first pause counts", "P11_Latest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if o.ledger.closed[c.Budget.Key] <= o.clock() {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"pauses add up", "P11_Latest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.shut(c, max(o.clock(), o.ledger.closed[c.Budget.Key]), d, ago)
	}}},
	{"pause a moment too short", "P11_Pause", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.shut(c, o.clock()-1, d, ago)
	}}},
	{"pause of everybody", "P11_Other", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		for _, name := range []string{"a", "b", "budget 0", "budget 1", "budget 2", "budget 3"} {
			o.ledger.shut(charge(name, c.Limit), o.clock(), d, ago)
		}
	}}},
	{"pause moves booked starts", "P11_Booked", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		end := o.clock() + micros(d)
		o.ledger.shut(c, o.clock(), d, ago)
		for i, s := range o.ledger.stays[c.Budget.Key] {
			if s.at > o.clock() && s.at < end {
				o.ledger.stays[c.Budget.Key][i].at = end
				o.ledger.stays[c.Budget.Key][i].until += end - s.at
			}
		}
	}}},

	{"status counts forever", "Store_Status", "", broken{status: func(o *oracle, c store.Charge, st *store.Status) {
		st.Used = -st.Waiting
		for _, s := range o.ledger.stays[c.Budget.Key] {
			st.Used += s.cost
		}
	}}},
	{"status takes costs for callers", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Callers = st.Waiting
	}}},
	{"status sees nobody waiting", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Waiting = 0
	}}},
	{"status sees nothing booked", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Booked = 0
	}}},
	{"status counts a start when its time is over", "Store_StatusOf", "a status is compared where no start may be used later", broken{status: func(o *oracle, c store.Charge, st *store.Status) {
		for _, s := range o.ledger.stays[c.Budget.Key] {
			if s.at <= o.clock() && s.until > o.clock() {
				st.Used, st.Booked = st.Used-s.cost, st.Booked+s.cost
			}
		}
	}}},
	{"status hides the pause", "P11_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Paused = 0
	}}},
	{"status forgets the wait", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Wait = 0
	}}},
	{"status spends", "Store_StatusChanges", "", broken{status: func(o *oracle, c store.Charge, _ *store.Status) {
		honest(o, &store.Booking{Charges: []store.Charge{costing(c, 1)}})
	}}},
}

// Mutants of budgets that only a penalty closes.
var unlimitedMutants = []mutant{
	{"unlimited is a large number", "P3_UnlimitedHoldsNothing", "", ofKind(store.KindUnlimited, func(c *store.Charge) {
		c.Limit, c.Cost, c.KeepFree = store.PerSecond(250), min(c.Cost, 250), 0
	})},
	{"unlimited is a window that nobody fills", "P11_UnlimitedRemembersNothing", "", ofKind(store.KindUnlimited, func(c *store.Charge) {
		c.Limit, c.Cost, c.KeepFree = store.PerSecond(maxCost), 1, 0
	})},
	{"unlimited is never closed", "P11_UnlimitedIsClosed", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if !isOpen(c) {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"unlimited is closed once", "P11_UnlimitedIsClosed", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if _, was := o.ledger.closed[c.Budget.Key]; !was || !isOpen(c) {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"no probe of what is unlimited", "P11_UnlimitedHasAProbe", "", gappingAllBut(store.KindUnlimited)},
	{"a start of an open budget is kept", "P11_UnlimitedRemembersNothing", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		at := o.clock() + micros(g.Wait)
		for _, c := range b.Charges {
			if s := stayOf(c, b.Spread, at); g.OK && isOpen(c) && !slices.Contains(o.ledger.stays[c.Budget.Key], s) {
				o.ledger.stays[c.Budget.Key] = append(o.ledger.stays[c.Budget.Key], s)
			}
		}
		return g
	}}},
	{"a status counts what is unlimited", "P3_UnlimitedHoldsNothing", "", broken{status: func(o *oracle, c store.Charge, st *store.Status) {
		for _, e := range o.booked {
			for _, own := range e.booking.Charges {
				if isOpen(c) && own.Budget.Key == c.Budget.Key {
					st.Used++
				}
			}
		}
	}}},
}

// neverRefused is why a random run need not notice.
const neverRefused = "no upstream refuses there"

// Mutants of what refusals teach.
var adaptiveMutants = []mutant{
	{"refusals teach nothing", "P1_CeilingOfASlidingWindow", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		level := o.ledger.learnt[c.Budget.Key].at(c, o.clock())
		return level, level
	}}},
	{"each refusal of a crowd teaches", "P1_CeilingIsEvidenceOnce", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		if old := o.ledger.learnt[c.Budget.Key]; at <= old.fell {
			delete(o.ledger.closed, c.Budget.Key)
			at = old.fell + 1
		}
		return o.ledger.learn(c, at, max(at, o.clock()))
	}}},
	{"a probe teaches", "P1_CeilingIsEvidenceOnce", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		if closed := o.ledger.closed[c.Budget.Key]; at >= closed {
			delete(o.ledger.closed, c.Budget.Key)
			defer func() { o.ledger.closed[c.Budget.Key] = closed }()
		}
		return o.ledger.learn(c, at, o.clock())
	}}},
	{"a budget that is more than full teaches", "P1_CeilingNoEvidenceAboveTheLimit", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		stays := o.ledger.stays[c.Budget.Key]
		o.ledger.stays[c.Budget.Key] = nil
		defer func() { o.ledger.stays[c.Budget.Key] = stays }()
		return o.ledger.learn(c, at, o.clock())
	}}},
	{"a refusal in an empty window is believed", "P1_CeilingAtLessThanHalf", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		used, now := o.ledger.used(c, at), o.clock()
		from, _ = o.ledger.learn(c, at, now)
		next := o.ledger.learnt[c.Budget.Key]
		next.top = used
		o.ledger.learnt[c.Budget.Key] = next
		return from, next.at(c, now)
	}}},
	{"nobody obeys", "P1_CeilingOfASlidingWindow", neverRefused, broken{book: func(o *oracle, b *store.Booking) store.Grant {
		for i := range b.Charges {
			b.Charges[i].Adaptive = false
		}
		return honest(o, b)
	}}},
	{"all obey", "P1_CeilingOnlyForAdaptive", neverRefused, broken{book: func(o *oracle, b *store.Booking) store.Grant {
		for i := range b.Charges {
			b.Charges[i].Adaptive = b.Charges[i].Limit.Kind() != store.KindUnlimited
		}
		return honest(o, b)
	}}},
}
