package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// watchChecks are about starts that a penalty makes useless after they were
// booked. None of them says when: the start may be long to come, or past.
var watchChecks = []check{
	{"P11_WatchHearsOfAPause", func(b *bench) {
		for _, l := range []throttle.Limit{
			throttle.PerSecond(1), throttle.FixedWindow(1, sec), throttle.LeakyBucket(1, sec),
			throttle.TokenBucket(1, sec, 1), throttle.SlidingWindow(500, sec),
		} {
			c := charge(sentence(throttle.Charge{Limit: l}), l)
			w := b.watch(b.ask(c))
			b.confirms(w, true)
			b.pause(c, time.Minute)
			b.useless(w)
			b.confirms(w, false) // it stays so
			w.watch.Stop()
		}
	}},

	{"P11_WatchUpToTheEnd", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		before, after := b.watches(sec+tick, one), b.watches(2*sec+2*tick, one)
		b.pause(one, sec+tick) // until the very moment of the first start
		b.confirms(before, true)
		b.confirms(after, true)
		b.pause(one, sec+2*tick)
		b.useless(before)
		b.confirms(after, true)
		b.pause(one, 2*sec+2*tick)
		b.confirms(after, true)
	}},

	{"P11_WatchAfterTheStart", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		w := b.watches(0, one)
		b.at(10 * sec) // a connection is being dialled
		b.confirms(w, true)
		b.pause(one, sec)
		b.useless(w)
	}},

	{"P11_PauseBetweenBookAndWatch", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		next, last := b.ask(one), b.ask(one)
		b.pause(one, 2*sec)
		b.useless(b.watch(next))
		b.confirms(b.watch(last), true)
	}},

	{"P11_WatchOfSeveralBudgets", func(b *bench) {
		a, c, d := charge("a", throttle.PerSecond(1)), charge("c", throttle.PerSecond(9)), charge("d", throttle.PerSecond(9))
		b.start(0, a)
		first, last, without := b.watches(sec+tick, a, c, d), b.watches(2*sec+2*tick, d, c, a), b.watches(0, c)
		b.pause(d, time.Minute)
		b.useless(first)
		b.useless(last)
		b.confirms(without, true)
		b.pause(c, time.Minute)
		b.useless(without)
	}},

	{"P11_WatchPassesShadowsBy", func(b *bench) {
		one, dark := charge("one", throttle.PerSecond(1)), charge("dark", throttle.PerSecond(1))
		w := b.watches(0, shadow(dark), one)
		only := b.watches(0, shadow(dark))
		b.pause(dark, time.Minute)
		b.confirms(w, true)
		b.confirms(only, true)
		b.pause(shadow(one), time.Minute) // a Shadow charge closes it, though it is not held by it
		b.useless(w)
	}},

	{"P11_WatchOfANodeBudget", func(b *bench) {
		node, fleet := charge("node", throttle.PerSecond(1)), charge("fleet", throttle.PerSecond(1))
		node.Node = true
		alone, both := b.watches(0, node), b.watches(sec+tick, fleet, node)
		b.confirms(alone, true)
		b.confirms(both, true)
		b.pause(fleet, time.Minute)
		b.confirms(alone, true)
		b.useless(both)
		both = b.moves(both, time.Minute)
		b.confirms(both, true)
		b.pause(node, 2*time.Minute)
		b.useless(alone)
		b.useless(both)
		b.moves(both, 2*time.Minute)
	}},

	{"P11_WatchOfWhatIsInFlight", func(b *bench) {
		two := charge("two", throttle.Concurrency(2))
		held := b.watch(b.holds(two))
		b.confirms(held, true)
		b.pause(two, 10*sec)
		b.useless(held)
		b.cancels(held.ticket)
		held.watch.Stop()
		b.isStart(b.again(held.ticket).grant, 10*sec)
	}},

	{"P11_WatchOfAStartThatWillBeInFlight", func(b *bench) {
		two, window := charge("two", throttle.Concurrency(2)), charge("window", throttle.PerSecond(1))
		b.holds(window)
		next, last := b.watches(sec+tick, two, window), b.watches(2*sec+2*tick, window, two)
		b.pause(two, 2*sec)
		b.useless(next)
		b.confirms(last, true)
		b.moves(next, 2*sec+2*tick+sec+tick)
	}},

	{"P11_WatchAnotherStart", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		w := b.watches(sec+tick, one)
		b.pause(one, 10*sec)
		b.useless(w)
		b.pause(one, ms) // a shorter one changes nothing
		b.confirms(b.watch(w.ticket), false)
		w = b.moves(w, 10*sec)
		b.confirms(w, true)
		b.pause(one, sec)
		b.confirms(w, true)
		b.at(5 * sec)
		b.pause(one, 10*sec) // a longer one does
		b.useless(w)
		w = b.moves(w, 15*sec)
		b.at(15 * sec)
		b.confirms(w, true)
	}},

	{"P11_NewsBlockNobody", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		full := make(chan struct{}, 1)
		full <- struct{}{}
		k := b.ask(one)
		for _, news := range []chan struct{}{nil, make(chan struct{}), full} {
			b.store.Watch(&k.booking, k.grant, news)
		}
		b.pause(one, time.Minute)
		b.store.Watch(&k.booking, k.grant, nil)
		b.resume(one)
		b.status(one, throttle.Status{Used: 1, Wait: sec + tick})
	}},

	{"P11_WatchEnds", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		over, goesOn := b.watches(0, one), b.watches(sec+tick, one)
		over.watch.Stop()
		b.pause(one, time.Minute)
		over.watch.Stop()
		b.useless(goesOn)
		select {
		case <-over.news:
			b.errorf("news at %v of a watch that was stopped", b.now())
		default:
		}
	}},
}

// A watcher is a booked start with a watch over it.
type watcher struct {
	ticket
	watch throttle.Watch
	news  chan struct{}
}

// watches books however long it takes, compares the start, and watches over it.
func (b *bench) watches(want time.Duration, charges ...throttle.Charge) *watcher {
	b.Helper()
	k := b.ask(charges...)
	b.isStart(k.grant, want)
	return b.watch(k)
}

// watch watches over a start that is booked.
func (b *bench) watch(k ticket) *watcher {
	w := &watcher{ticket: k, news: make(chan struct{}, 1)}
	w.watch = b.store.Watch(&w.booking, w.grant, w.news)
	return w
}

// moves gives the start back for another one, compares that, and watches over it.
func (b *bench) moves(w *watcher, want time.Duration) *watcher {
	b.Helper()
	w.watch.Stop()
	k := b.again(w.ticket)
	b.isStart(k.grant, want)
	return b.watch(k)
}

// told wants news. What the store was told by itself needs no time to get around.
func (b *bench) told(w *watcher) {
	b.Helper()
	select {
	case <-w.news:
	default:
		b.errorf("at %v: no news of what the store was told", b.now())
	}
}

// confirms wants to know whether the start may be used.
func (b *bench) confirms(w *watcher, want bool) {
	b.Helper()
	switch got, err := w.watch.Confirm(b.Context(), -1); {
	case err != nil:
		b.errorf("Confirm of %s at %v: %v", describe(w.booking), b.now(), err)
	case got != want:
		b.errorf("Confirm of %s at %v: %t, want %t", describe(w.booking), b.now(), got, want)
	}
}

// useless wants news, and that the start may not be used.
func (b *bench) useless(w *watcher) {
	b.Helper()
	b.told(w)
	b.confirms(w, false)
}

// resume opens a budget.
func (b *bench) resume(c throttle.Charge) {
	b.Helper()
	if err := b.store.Resume(b.Context(), c); err != nil {
		b.fatalf("Resume(%v) at %v: %v", c.Budget, b.now(), err)
	}
}
