package storetest

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A mutant breaks one promise. The checks whose names begin with the prefix
// must notice, and so must the random runs, unless blind says why not.
type mutant struct {
	name   string
	prefix string
	blind  string
	broken broken
}

// Mutants of what is booked.
var bookingMutants = []mutant{
	{"one too many", "P1_Sliding", "", charging(func(c *store.Charge) {
		c.Limit = resized(c.Limit, c.Limit.N()+1, c.Limit.Per())
	})},
	{"one too few", "P1_Sliding", "", charging(func(c *store.Charge) {
		c.Limit = resized(c.Limit, max(c.Cost, c.Limit.N()-1), c.Limit.Per())
	})},
	{"interval not closed", "P1_Sliding", "", ofKind(store.KindSlidingWindow, func(c *store.Charge) {
		c.Limit = store.SlidingWindow(c.Limit.N(), c.Limit.Per()-tick)
	})},
	{"interval too long", "P1_Sliding", "", ofKind(store.KindSlidingWindow, func(c *store.Charge) {
		c.Limit = store.SlidingWindow(c.Limit.N(), c.Limit.Per()+tick)
	})},
	{"sliding as fixed", "P1_Sliding", "", ofKind(store.KindSlidingWindow, func(c *store.Charge) {
		c.Limit = store.FixedWindow(c.Limit.N(), max(c.Limit.Per(), 2*c.Jitter+2*tick))
	})},
	{"fixed as sliding", "P1_Fixed", "", charging(func(c *store.Charge) {
		if c.Limit.Kind() == store.KindFixedWindow && c.Limit.Per() > 0 {
			c.Limit = store.SlidingWindow(c.Limit.N(), c.Limit.Per())
		}
	})},
	{"calendar as sliding", "P1_Calendar", "", charging(func(c *store.Charge) {
		if c.Limit.Kind() == store.KindFixedWindow && c.Limit.Per() == 0 {
			c.Limit = store.SlidingWindow(c.Limit.N(), 24*time.Hour)
		}
	})},
	{"paced as sliding", "P1_Paced", "", ofKind(store.KindLeakyBucket, func(c *store.Charge) {
		c.Limit = store.SlidingWindow(c.Limit.N(), c.Limit.Per())
	})},
	{"cost ignored", "P1", "", charging(func(c *store.Charge) { c.Cost = 1 })},
	{"booked twice", "P1", "", charging(func(c *store.Charge) { c.Cost = min(2*c.Cost, c.Limit.N()) })},
	{"jitter ignored by sliding windows", "P2_Sliding", "", unjittered(store.KindSlidingWindow)},
	{"jitter ignored by windows", "P2_Fixed", "", unjittered(store.KindFixedWindow)},
	{"jitter ignored by buckets", "P2_Paced", "", unjittered(store.KindLeakyBucket)},
	{"spread ignored", "P2_Spread", "", asking(func(b *store.Booking) { b.Spread = 0 })},
	{"MaxWait ignored", "Store_MaxWait", "", asking(func(b *store.Booking) { b.MaxWait = -1 })},
	{"MaxWait not enough", "Store_MaxWait", "", asking(func(b *store.Booking) {
		if b.MaxWait > 0 {
			b.MaxWait -= tick
		}
	})},
	{"MaxWait too generous", "Store_MaxWait", "", asking(func(b *store.Booking) {
		if b.MaxWait > 0 {
			b.MaxWait += tick
		}
	})},
	{"one budget for all", "P1_SlidingBudgets", "", charging(func(c *store.Charge) { c.Budget.Key = [16]byte{} })},
	{"key cut short", "P1_SlidingBudgets", "the random keys differ earlier", charging(func(c *store.Charge) {
		c.Budget.Key[15] = 0
	})},
	{"history lost by a change", "P1_Change", "", charging(func(c *store.Charge) {
		c.Budget.Key[14], c.Budget.Key[15] = byte(c.Limit.N()), byte(c.Limit.Per()/ms)
	})},
	{"refusal is charged", "P6_Refusal", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if !g.OK {
			anyhow := *b
			anyhow.MaxWait, anyhow.Instead = -1, store.Handle{}
			honest(o, &anyhow)
		}
		return g
	}}},
	{"budgets booked one by one", "P6", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if g.OK && len(b.Charges) > 1 {
			o.ledger.remove(*b, o.booked[g.Handle.Start].at, o.clock())
			for i := range b.Charges {
				alone := *b
				alone.Charges, alone.Instead = b.Charges[i:i+1], store.Handle{}
				honest(o, &alone)
			}
		}
		return g
	}}},
	{"gaps stay empty", "P5_HeldBack", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		closed := maps.Clone(o.ledger.closed)
		for _, c := range b.Charges {
			for _, s := range o.ledger.stays[c.Budget.Key] {
				o.ledger.closed[c.Budget.Key] = max(o.ledger.closed[c.Budget.Key], s.at)
			}
		}
		g := honest(o, b)
		o.ledger.closed = closed
		return g
	}}},
	{"not atomic", "P1_Crowd", "it is alone with the store", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		if slices.ContainsFunc(b.Charges, inFlight) {
			return honest(o, b)
		}
		o.mu.Lock()
		o.giveBack(b.Instead)
		seen := newOracle()
		seen.ledger.closed = maps.Clone(o.ledger.closed)
		for key, stays := range o.ledger.stays {
			seen.ledger.stays[key] = slices.Clone(stays)
		}
		o.mu.Unlock()
		g := honest(seen, b)
		runtime.Gosched()
		o.mu.Lock()
		defer o.mu.Unlock()
		if g.OK {
			g.Handle = store.Handle{Start: int64(len(o.booked) + 1)}
			o.booked[g.Handle.Start] = entry{*b, o.clock() + micros(g.Wait)}
			o.ledger.add(*b, o.booked[g.Handle.Start].at)
		}
		return g
	}}},
}

func unjittered(kind store.Kind) broken {
	return ofKind(kind, func(c *store.Charge) { c.Jitter = 0 })
}

// longAgo is why a random run need not notice.
const longAgo = "what happened so long ago rarely matters there"

// Mutants of costs that are known late.
var settleMutants = []mutant{
	{"settle ignored", "Store_Settle", "", settling(func(*oracle, entry, []int) {})},
	{"settle gives nothing back", "P7_Settle", "", recosting(func(c store.Charge, cost int) int { return max(cost, c.Cost) })},
	{"settle charges nothing", "Store_Settle", "", recosting(func(c store.Charge, cost int) int { return min(cost, c.Cost) })},
	{"settle adds", "Store_Settle", "", recosting(func(c store.Charge, cost int) int { return c.Cost + cost })},
	{"settle up to the limit", "Store_SettleAbove", "", recosting(func(c store.Charge, cost int) int {
		return min(cost, c.Limit.Capacity())
	})},
	{"settle leaves one", "P7_SettleNothing", "", recosting(func(_ store.Charge, cost int) int { return max(cost, 1) })},
	{"settle of the first budget only", "Store_SettleSeveral", "", settling(func(o *oracle, e entry, costs []int) {
		first := e.booking
		first.Charges = first.Charges[:1]
		o.ledger.settle(first, e.at, o.clock(), costs)
	})},
	{"settle forgets the others of that moment", "Store_SettleOfOne", "", settling(func(o *oracle, e entry, costs []int) {
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
		for i, c := range e.booking.Charges {
			if costs[i] == 0 {
				key := c.Budget.Key
				o.ledger.stays[key] = slices.DeleteFunc(o.ledger.stays[key], func(s stay) bool { return s.at == e.at })
			}
		}
	})},
	{"settle books when it is told", "Store_SettleMore", "", settling(func(o *oracle, e entry, costs []int) {
		for i, c := range e.booking.Charges {
			if more := costs[i] - c.Cost; more > 0 && e.at < o.clock() {
				costs[i] = c.Cost
				k := store.Booking{Charges: []store.Charge{costing(c, more)}, Spread: e.booking.Spread}
				o.ledger.add(k, o.clock())
			}
		}
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
	})},
	{"settle forever", "Store_SettleAfterThePace", longAgo, settling(func(o *oracle, e entry, costs []int) {
		o.ledger.settle(e.booking, e.at, e.at, costs)
	})},
	{"settle gives back what a bucket has forgotten", "Store_SettleAfterTheBucket", longAgo, settling(func(o *oracle, e entry, costs []int) {
		o.ledger.settle(e.booking, e.at, e.at, costs)
	})},
	{"settle passes a shadow by", "Store_SettleOfAShadow", "", recosting(func(c store.Charge, cost int) int {
		if c.Shadow {
			return c.Cost
		}
		return cost
	})},
	{"settle overdraws a bucket", "Store_SettleTheMost", "buckets are not overdrawn there", broken{
		settle: func(o *oracle, e entry, costs []int) {
			o.ledger.settle(e.booking, e.at, o.clock(), costs)
			for i, c := range e.booking.Charges {
				if c.Limit.Kind() == store.KindTokenBucket && costs[i] > c.Limit.Capacity() {
					k := store.Booking{Charges: []store.Charge{costing(c, c.Limit.Capacity())}}
					o.ledger.add(k, e.at+1)
				}
			}
		}}},
}

func settling(settle func(*oracle, entry, []int)) broken { return broken{settle: settle} }

// recosting settles other costs than it was told.
func recosting(change func(store.Charge, int) int) broken {
	return settling(func(o *oracle, e entry, costs []int) {
		for i, c := range e.booking.Charges {
			costs[i] = change(c, costs[i])
		}
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
	})
}

// Mutants of buckets, of what must stay free, and of the least wait.
var bucketMutants = []mutant{
	{"a token too many", "P1_Bucket", "", rebuilt(func(n int, per time.Duration, burst int) store.Limit {
		return store.TokenBucket(n, per, burst+1)
	})},
	{"a token too few", "P1_Bucket", "", ofKind(store.KindTokenBucket, func(c *store.Charge) {
		c.Limit = store.TokenBucket(c.Limit.N(), c.Limit.Per(), max(c.Cost+c.KeepFree, c.Limit.Capacity()-1))
	})},
	{"tokens flow too fast", "P1_Bucket", "", rebuilt(func(n int, per time.Duration, burst int) store.Limit {
		return store.TokenBucket(n, per-tick, burst)
	})},
	{"tokens flow too slowly", "P1_Bucket", "", rebuilt(func(n int, per time.Duration, burst int) store.Limit {
		return store.TokenBucket(n, per+tick, burst)
	})},
	{"bucket as sliding", "P1_Bucket", "", rebuilt(func(n int, per time.Duration, burst int) store.Limit {
		return store.SlidingWindow(burst, per*time.Duration(burst)/time.Duration(n))
	})},
	{"bucket as paced", "P1_Bucket", "", rebuilt(func(n int, per time.Duration, _ int) store.Limit {
		return store.LeakyBucket(n, per)
	})},
	{"jitter ignored by token buckets", "P2_Bucket", "", unjittered(store.KindTokenBucket)},
	{"jitter taken from each token", "P2_Bucket", "", ofKind(store.KindTokenBucket, func(c *store.Charge) {
		c.Limit = store.TokenBucket(c.Limit.N(), c.Limit.Per()+c.Jitter*time.Duration(c.Limit.N()), c.Limit.Capacity())
		c.Jitter = 0
	})},
	{"a bucket forgets its bursts", "P1_BucketRemembers", "", seeing(func(o *oracle, c store.Charge, s stay) bool {
		return c.Limit.Kind() != store.KindTokenBucket || over(c, s) > o.clock()
	})},
	{"a bucket forgets its bursts and jitter", "P2_BucketRemembers", "", seeing(func(o *oracle, c store.Charge, s stay) bool {
		return c.Limit.Kind() != store.KindTokenBucket || over(c, s) > o.clock()
	})},
	{"a bucket does not look ahead", "P1_BucketBefore", "", seeing(func(o *oracle, c store.Charge, s stay) bool {
		return c.Limit.Kind() != store.KindTokenBucket || s.at <= o.clock()
	})},
	{"spread ignored by token buckets", "P2_SpreadBucket", "", asking(func(b *store.Booking) {
		if slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Limit.Kind() == store.KindTokenBucket }) {
			b.Spread = 0
		}
	})},

	{"reserve ignored by sliding windows", "P5_ReserveOfASliding", "", unreserved(store.KindSlidingWindow)},
	{"reserve ignored by windows", "P5_ReserveOfAFixed", "", unreserved(store.KindFixedWindow)},
	{"reserve ignored by token buckets", "P5_ReserveOfABucket", "", unreserved(store.KindTokenBucket)},
	{"reserve too small", "P5_Reserve", "", charging(func(c *store.Charge) { c.KeepFree = max(0, c.KeepFree-1) })},
	{"reserve too large", "P5_Reserve", "", charging(func(c *store.Charge) {
		if c.KeepFree > 0 {
			c.KeepFree = min(c.KeepFree+1, c.Limit.Capacity()-c.Cost)
		}
	})},
	{"reserve is booked", "P5_ReserveIsNotRemembered", "", charging(func(c *store.Charge) {
		c.Cost, c.KeepFree = c.Cost+c.KeepFree, 0
	})},
	{"reserve looks at what has started only", "P5_ReserveBefore", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		other := *b
		other.Charges = slices.Clone(b.Charges)
		for i, c := range b.Charges {
			for _, s := range o.ledger.stays[c.Budget.Key] {
				if s.at > o.clock() {
					other.Charges[i].KeepFree = 0
				}
			}
		}
		return honest(o, &other)
	}}},

	{"NotBefore ignored", "Store_NotBefore", "", asking(func(b *store.Booking) { b.NotBefore = 0 })},
	{"NotBefore is added to the wait", "Store_NotBefore", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		other := *b
		other.NotBefore = 0
		wait := o.ledger.earliest(other, o.clock()) - o.clock()
		other.NotBefore = b.NotBefore + tickTimes(wait)
		return honest(o, &other)
	}}},
	{"NotBefore holds", "Store_NotBefore", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		if b.NotBefore > 0 && g.Wait == b.NotBefore {
			g.HeldBy = 0
		}
		return g
	}}},
	{"NotBefore does not count for MaxWait", "Store_NotBeforeAndMaxWait", "", asking(func(b *store.Booking) {
		if b.MaxWait >= 0 {
			b.MaxWait += b.NotBefore
		}
	})},
}

// rebuilt changes the limits of buckets.
func rebuilt(change func(n int, per time.Duration, burst int) store.Limit) broken {
	return ofKind(store.KindTokenBucket, func(c *store.Charge) {
		c.Limit = change(c.Limit.N(), c.Limit.Per(), c.Limit.Capacity())
	})
}

func unreserved(kind store.Kind) broken {
	return ofKind(kind, func(c *store.Charge) { c.KeepFree = 0 })
}

// seeing books as if only some of the earlier starts were there.
func seeing(counts func(*oracle, store.Charge, stay) bool) broken {
	return broken{book: func(o *oracle, b *store.Booking) store.Grant {
		o.giveBack(b.Instead)
		hidden := make(map[[16]byte][]stay)
		for _, c := range b.Charges {
			key := c.Budget.Key
			o.ledger.stays[key] = slices.DeleteFunc(o.ledger.stays[key], func(s stay) bool {
				if counts(o, c, s) {
					return false
				}
				hidden[key] = append(hidden[key], s)
				return true
			})
		}
		g := honest(o, b)
		for key, stays := range hidden {
			o.ledger.stays[key] = append(o.ledger.stays[key], stays...)
		}
		return g
	}}
}

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
			l.waits = slices.DeleteFunc(l.waits, func(w *waiter) bool { return w.called })
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
