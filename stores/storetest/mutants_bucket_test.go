package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

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

// seeing books by a part of what was booked before.
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
