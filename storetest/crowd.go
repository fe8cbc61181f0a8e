package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// crowdChecks are about callers that come at the same time. Which of them
// is first is open, but the set of starts is not.
var crowdChecks = []check{
	{"P1_CrowdOnOneBudget", func(b *bench) {
		c := charge("c", throttle.PerSecond(20))
		got := b.crowd(slices.Repeat([][]throttle.Charge{{c}}, 200))
		b.isSet(got, 20, sec+tick)
	}},

	{"P1_CrowdOnAPacedBudget", func(b *bench) {
		c := charge("c", throttle.LeakyBucket(20, sec))
		got := b.crowd(slices.Repeat([][]throttle.Charge{{c}}, 100))
		b.isSet(got, 1, 50*ms)
	}},

	{"P6_CrowdInOppositeOrders", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(5)), charge("c", throttle.PerSecond(5))
		got := b.crowd(slices.Repeat([][]throttle.Charge{{a, c}, {c, a}}, 50))
		b.isSet(got, 5, sec+tick)
	}},

	{"P6_CrowdOnManyBudgets", func(b *bench) {
		wide := charge("wide", throttle.PerSecond(40))
		var all [][]throttle.Charge
		for i := range 200 {
			all = append(all, []throttle.Charge{charge(fmt.Sprint("narrow ", i%20), throttle.PerSecond(2)), wide})
		}
		b.isSet(b.crowd(all), 40, sec+tick)
	}},

	{"P7_CrowdThatLeaves", func(b *bench) {
		c := charge("c", throttle.PerSecond(10))
		var crowd sync.WaitGroup
		for range 200 {
			crowd.Go(func() {
				k := throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1}
				if g, err := b.store.Book(b.Context(), &k); err == nil {
					b.store.Cancel(&k, g)
				}
			})
		}
		crowd.Wait()
		b.status(c, throttle.Status{})
		b.starts(10, 0, c)
		b.start(sec+tick, c)
	}},

	{"P1_CrowdThatDoesNotWait", func(b *bench) {
		c := charge("c", throttle.PerSecond(7))
		for i := range 5 {
			b.at(time.Duration(i) * 400 * ms)
			granted := b.tries(100, c)
			if want := []int{7, 0, 0, 7, 0}[i]; granted != want {
				b.errorf("at %v: %d of 100 callers started, want %d", b.now(), granted, want)
			}
		}
	}},

	{"P1_LineOfACrowd", func(b *bench) {
		three := charge("three", throttle.Concurrency(3))
		var crowd sync.WaitGroup
		var running, most, served atomic.Int64
		for range 60 {
			crowd.Go(func() {
				k := b.ask(three)
				for k.grant.Ready != nil {
					if !b.called(k) {
						return
					}
					k = b.again(k)
				}
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched()
				running.Add(-1)
				served.Add(1)
				b.releases(k)
			})
		}
		crowd.Wait()
		if most.Load() > 3 || served.Load() != 60 {
			b.errorf("%d of 60 callers were served, up to %d at a time; want all, up to 3", served.Load(), most.Load())
		}
		b.status(three, throttle.Status{})
	}},
}

// crowd books all at the same time and returns the starts in order.
func (b *bench) crowd(all [][]throttle.Charge) []time.Duration {
	b.Helper()
	starts, errs := make([]time.Duration, len(all)), make([]error, len(all))
	var crowd sync.WaitGroup
	for i, charges := range all {
		crowd.Go(func() {
			k := throttle.Booking{Charges: slices.Clone(charges), MaxWait: -1}
			g, err := b.store.Book(b.Context(), &k)
			if err == nil && !g.OK {
				err = fmt.Errorf("a caller with any MaxWait was refused")
			}
			starts[i], errs[i] = b.now()+g.Wait, err
		})
	}
	crowd.Wait()
	for _, err := range errs {
		if err != nil {
			b.fatalf("%v", err)
		}
	}
	slices.Sort(starts)
	return starts
}

// isSet wants n starts at 0, n a span later, and so on.
func (b *bench) isSet(starts []time.Duration, n int, span time.Duration) {
	b.Helper()
	for i, got := range starts {
		if want := time.Duration(i/n) * span; got != want {
			b.errorf("start %d of %d is at %v, want %v", i, len(starts), got, want)
			return
		}
	}
}

// tries lets callers come at the same time that do not wait, and returns how
// many of them start.
func (b *bench) tries(callers int, c throttle.Charge) (granted int) {
	b.Helper()
	grants := make([]throttle.Grant, callers)
	var crowd sync.WaitGroup
	for i := range callers {
		crowd.Go(func() {
			// An error leaves the grant refused, which the count shows.
			grants[i], _ = b.store.Book(b.Context(), &throttle.Booking{Charges: []throttle.Charge{c}})
		})
	}
	crowd.Wait()
	for _, g := range grants {
		if g.OK {
			granted++
		}
	}
	return granted
}
