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
