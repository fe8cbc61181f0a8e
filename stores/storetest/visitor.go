package storetest

import (
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/store"
)

// never is the start of a visitor that has none.
const never = time.Duration(-1)

// mostCalls is how often a visitor comes when it is called.
const mostCalls = 100

// A visitor is a caller of the store that does as throttle does: it waits for its
// turn, books again when it is called, watches its start until it begins, and
// books again if the start has become useless.
type visitor struct {
	b       *bench
	first   store.Grant         // the store's first answer
	left    chan struct{}       // closed when it leaves
	changed chan []store.Charge // its new charges, or nil if its start has become useless

	mu      sync.Mutex
	booking store.Booking
	grant   store.Grant
	due     time.Duration // of the start that it holds
	start   time.Duration // when it began, or never before
	calls   int           // how often it was called
	stood   time.Duration // when it last came to the line, or came back to it
	since   time.Duration // when it got the start that it holds
	lost    bool          // it had a different start before
	over    bool          // it began, was refused, or left
	refused bool
	begins  func() // is called when it has begun, if not nil
}

// comes books for a new visitor, and lets it go on by itself. The answer is there
// when it returns.
func (b *bench) comes(k store.Booking) *visitor {
	b.Helper()
	return b.comesAnd(k, nil)
}

// comesAnd is comes with a function that is called when the visitor has begun, or nil. The visitor may begin before
// comesAnd returns.
func (b *bench) comesAnd(k store.Booking, begins func(*visitor)) *visitor {
	b.Helper()
	if k.Horizon == 0 {
		k.Horizon = horizon
	}
	k.Charges = slices.Clone(k.Charges)
	v := &visitor{b: b, booking: k, start: never, left: make(chan struct{}), changed: make(chan []store.Charge)}
	v.book()
	v.first, v.stood = v.grant, v.since
	if begins != nil {
		v.begins = func() { begins(v) }
	}

	go v.run()
	return v
}

// book asks the store, and notes its answer. A visitor makes one call at a time.
func (v *visitor) book() {
	g, err := v.b.store.Book(v.b.Context(), &v.booking)
	v.mu.Lock()
	defer v.mu.Unlock()

	// A caller that the line has served has neither come to the line nor come back to it.
	came := !g.OK || v.grant.OK
	v.lost = v.lost || v.grant.OK
	v.grant, v.due, v.since = g, v.b.now()+g.Wait, v.b.now()
	if came {
		v.stood = v.since
	}

	switch {
	case err != nil:
		if v.b.Context().Err() == nil {
			v.b.errorf("Book of %s at %v: %v", describe(v.booking), v.b.now(), err)
		}
		v.grant, v.over = store.Grant{}, true

	case g.Ready != nil && g.Wait <= 0 && g.Handle == store.Handle{}:
		// A place in the line for a start, which has no Handle, has a wait of more than 0. With 0 a caller whose MaxWait is
		// over would get a place in place of a refusal, and ask again and again.
		v.b.errorf("at %v a caller that waits in line is told to wait %v", v.b.now(), g.Wait)
	case !g.OK && g.Ready == nil:
		v.over, v.refused = true, true
	}

	v.booking.Instead, v.booking.Turn, v.booking.Returns = store.Handle{}, g.Turn, true
	if g.OK || g.Ready != nil {
		v.booking.Instead = g.Handle
	}
}

// run is the visitor's way after its first booking.
func (v *visitor) run() {
	for !v.over {
		if v.grant.OK {
			v.watch()
		} else {
			v.stand()
		}
	}
	v.mu.Lock()
	if v.start != never && v.begins != nil {
		defer v.begins()
	}
	v.mu.Unlock()
}

// stand waits in line until the visitor is called or changed, and then books again, or until it leaves.
func (v *visitor) stand() {
	select {
	case <-v.grant.Ready:
		v.calls++
		if v.calls > mostCalls {
			v.b.errorf("at %v a visitor is called and has no start, %d times", v.b.now(), v.calls)
			v.ends(never)
			return
		}
		v.book()

	case charges := <-v.changed:
		if charges == nil {
			v.b.errorf("at %v a visitor that is to give up its start has none", v.b.now())
			v.ends(never)
			return
		}

		v.booking.Charges = charges
		v.book()

	case <-v.left:
		v.b.store.Cancel(&v.booking, v.grant)
		v.ends(never)
	case <-v.b.Context().Done():
		v.ends(never)
	}
}

// watch waits for the start that is booked. If the start is void or the visitor is changed, it books again.
func (v *visitor) watch() {
	news := make(chan struct{}, 1)
	w := v.b.store.Watch(&v.booking, v.grant, news)
	due, stop := bubble.After(v.due - v.b.now())
	defer stop()

	for {
		select {
		case <-due:
		case <-news:
		case <-v.left:
			w.Stop()
			v.b.store.Cancel(&v.booking, v.grant)
			v.ends(never)
			return

		case charges := <-v.changed:
			w.Stop()
			if charges != nil {
				v.b.store.Cancel(&v.booking, v.grant)
				v.booking.Charges, v.booking.Instead = charges, store.Handle{}
			}

			v.book()
			return

		case <-v.b.Context().Done():
			w.Stop()
			v.ends(never)
			return
		}

		// The start is due, or there is news: ask whether the start may still be used.
		good, err := w.Confirm(v.b.Context(), -1)
		if err != nil && v.b.Context().Err() == nil {
			v.b.errorf("Confirm at %v: %v", v.b.now(), err)
		}

		switch {
		case !good:
			w.Stop()
			v.book()
			return

		case v.b.now() >= v.due:
			w.Stop()
			v.ends(v.b.now())
			return
		}
	}
}

// ends notes that the visitor began, or left.
func (v *visitor) ends(start time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over, v.start = true, start
}

// leaves gives up the visitor's start or place.
func (v *visitor) leaves() {
	close(v.left)
	synctest.Wait()
}

// changes makes it book again, with other charges.
func (v *visitor) changes(charges ...store.Charge) {
	v.changed <- charges
	synctest.Wait()
}

// returns makes it book again in place of its start.
func (v *visitor) returns() {
	v.changed <- nil
	synctest.Wait()
}

// waits reports whether the visitor is not over.
func (v *visitor) waits() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.over
}

// begun returns when the visitor began, or never if it did not.
func (v *visitor) begun() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.start
}

// settles settles the costs of a visitor that began.
func (v *visitor) settles(costs ...int) {
	v.b.Helper()
	v.b.settle(v.booking, v.grant, costs...)
	synctest.Wait()
}
