package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

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
