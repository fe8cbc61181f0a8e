package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// reconcileMoreChecks are about what upstreams say of other limits than sliding
// windows, and about what becomes of starts that were booked before.
var reconcileMoreChecks = []check{
	{"P11_ReconcileAWindow", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, 10*sec))
		b.at(2 * sec)
		b.start(2*sec, costing(ten, 3))
		b.at(4 * sec)
		b.states(ten, 2, 6*sec)
		b.status(ten, throttle.Status{Used: 8})
		b.start(4*sec, costing(ten, 2))
		b.refused(10*sec, ten)
		b.states(ten, 0, time.Hour)
		b.start(10*sec, costing(ten, 10)) // the window ends when ours does
	}},

	{"P11_ReconcileAnotherWindow", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, 10*sec))
		b.at(4 * sec)
		b.states(ten, 0, 3*sec-tick) // for less than half of what ours still lasts
		b.start(4*sec, ten)
		b.states(ten, 0, 3*sec)
		b.refused(10*sec, ten)
	}},

	{"P11_ReconcileACalendar", func(b *bench) {
		day := charge("day", throttle.CalendarWindow(100, throttle.Day, nil))
		month := charge("month", throttle.CalendarWindow(100, throttle.Month, nil))
		b.at(20 * time.Hour)
		b.states(day, 5, 4*time.Hour)
		b.start(20*time.Hour, costing(day, 5))
		b.refused(24*time.Hour, day)
		b.states(month, 0, 40*24*time.Hour)
		b.start(20*time.Hour, month) // no answer closes a budget for longer than MaxPenalty
	}},

	{"P11_ReconcileABucket", func(b *bench) {
		c := charge("c", throttle.TokenBucket(2, sec, 40))
		b.start(0, costing(c, 4))
		b.at(sec)
		b.states(c, 10, 0) // a bucket knows by itself when there will be more
		b.start(sec, costing(c, 10))
		b.refused(1500*ms, c)
		b.start(6*sec, costing(c, 10))
	}},

	{"P11_ReconcileABucketRoughly", func(b *bench) {
		c := charge("c", throttle.TokenBucket(2, sec, 40))
		b.states(c, 38, sec) // as much flows in within a second
		b.start(0, costing(c, 40))
		d := charge("d", throttle.TokenBucket(2, sec, 40))
		b.states(d, 37, sec)
		b.start(500*ms, costing(d, 38))
		slow := late(charge("slow", throttle.TokenBucket(1, time.Minute, 5)), 100*ms)
		b.start(0, costing(slow, 2))
		b.at(30 * sec)
		b.states(slow, 3, sec) // half a token does not count
		b.states(slow, 2, sec)
		b.start(30*sec, costing(slow, 2))
		b.refused(60*sec+100*ms, slow)
	}},

	{"P11_ReconcileABucketWithAJitter", func(b *bench) {
		c := late(charge("c", throttle.TokenBucket(1, time.Minute, 5)), 100*ms)
		b.start(0, costing(c, 2))
		b.at(60*sec + 50*ms)
		b.states(c, 3, sec) // the fourth token may not have flowed in yet
		b.start(60*sec+50*ms, costing(c, 3))
		b.refused(60*sec+100*ms, c)
	}},

	{"P11_ReconcileWhatKnowsNoRest", func(b *bench) {
		paced, flying := charge("paced", throttle.LeakyBucket(10, sec)), charge("flying", throttle.Concurrency(2))
		b.states(paced, 0, time.Minute)
		b.states(flying, 0, time.Minute)
		b.start(0, paced)
		b.start(100*ms, paced)
		b.holds(flying)
		b.holds(flying)
	}},

	{"P11_ReconcileAShadow", func(b *bench) {
		dark := charge("dark", throttle.PerSecond(10))
		b.states(shadow(dark), 0, sec)
		b.over(0, sec, shadow(dark))
	}},

	{"P11_ReconcileWithAReserve", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.states(leaving(costing(ten, 4), 5), 3, sec)
		b.refused(sec, leaving(ten, 3))
		b.start(0, leaving(ten, 2))
		b.start(0, costing(ten, 2))
	}},

	{"P7_CancelLeavesWhatOthersSpent", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, 10*sec))
		b.at(4 * sec)
		k := b.ask(costing(ten, 2))
		b.states(ten, 3, 6*sec) // taken to be spent at the very moment of that start
		b.store.Cancel(&k.booking, k.grant)
		b.status(ten, throttle.Status{Used: 5})
		b.start(4*sec, costing(ten, 5))
		b.refused(10*sec, ten)
	}},

	{"P11_ReconcileMovesTheLast", func(b *bench) {
		ten := charge("ten", throttle.SlidingWindow(10, 10*sec))
		b.start(0, costing(ten, 5))
		first, next := b.watch(b.asksLater(sec, ten)), b.watch(b.asksLater(2*sec, ten))
		last, after := b.watch(b.asksLater(3*sec, ten)), b.watch(b.asksLater(8*sec, ten))
		b.states(ten, 2, 8*sec)
		b.confirms(first, true)
		b.confirms(next, true)
		b.confirms(after, true)
		b.useless(last)
		last = b.moves(last, 8*sec)
		b.confirms(last, true)
		b.states(ten, 2, 8*sec)
		b.confirms(next, true)
		b.confirms(last, true)
	}},

	{"P11_ReconcileMovesAll", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, 10*sec))
		one, two := b.watch(b.asksLater(sec, ten)), b.watch(b.asksLater(2*sec, ten))
		dark := b.watch(b.asksLater(3*sec, shadow(ten)))
		b.states(ten, 0, 10*sec)
		b.useless(one)
		b.useless(two)
		b.confirms(dark, true)
		b.moves(one, 10*sec)
		b.moves(two, 10*sec)
	}},

	{"P11_ReconcileMovesWhatABucketLacks", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(1, sec, 10))
		b.start(0, costing(ten, 5))
		first, third := b.watch(b.asksLater(sec, ten)), b.watch(b.asksLater(3*sec-tick, ten))
		fourth := b.watch(b.asksLater(3*sec, ten))
		b.states(ten, 2, sec)
		b.useless(first)
		b.useless(third)
		b.confirms(fourth, true)
	}},
}

// asksLater is later with all that belongs to the start.
func (b *bench) asksLater(at time.Duration, c throttle.Charge) ticket {
	b.Helper()
	k, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1, NotBefore: at - b.now()})
	b.isStart(g, at)
	return ticket{k, g}
}

// state tells the store, and the truth, that an upstream has less left, or more,
// than we believe. A bucket with starts to come is left alone: nothing says how
// far a store can look into one that is overdrawn.
func (w *world) state() {
	w.Helper()
	c, now := w.budgets[w.rng.IntN(len(w.budgets))], w.clock()
	stays := w.truth.stays[c.Budget.Key]
	if c.Limit.Kind() == throttle.KindTokenBucket && slices.ContainsFunc(stays, func(s stay) bool { return s.at > now }) {
		return
	}
	q := throttle.Quota{Left: w.rng.IntN(c.Limit.Capacity()+2) - 1, Reset: w.duration(3 * sec)}
	w.states(c, q.Left, q.Reset)
	w.truth.reconcile(c, q, now)
	if len(w.truth.stays[c.Budget.Key]) > len(stays) {
		w.above[c.Budget.Key] = true // with what others have spent
	}
}
