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

// mostCalls is how often a visitor may be called and get no start. After more calls it fails the check.
const mostCalls = 100

// A visitor is a caller of the store that does as throttle does: it waits for its
// turn, books again when it is called, watches its start until it begins, and
// books again if the start has become useless.
type visitor struct {
	b       *bench
	first   store.Grant         // the store's first answer
	left    chan struct{}       // closed when it leaves
	changed chan []store.Charge // its new charges, or nil to book again in place of its start

	mu      sync.Mutex
	booking store.Booking
	grant   store.Grant
	due     time.Duration // of the start that it holds
	start   time.Duration // when it began, or never before
	calls   int           // how often it was called
	stood   time.Duration // when it last came to the line, or came back to it
	since   time.Duration // when it got the start that it holds
	lost    bool          // it had a different start before
	over    bool          // it began, was refused or left, or the check failed or ended
	refused bool
	begins  func() // is called when it has begun, or nil
}

// comes books for a new visitor, and lets it go on by itself. When comes returns, the visitor has the first answer.
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

	// A visitor without a start comes to the line, and one that gave up a start comes back to it. One that got its start in line does neither.
	came := !g.OK || v.grant.OK
	v.lost = v.lost || v.grant.OK
	v.grant, v.due, v.since = g, v.b.now()+g.Wait, v.b.now()
	if came {
		v.stood = v.since
	}

	inLineForStart := g.Ready != nil && g.Handle == store.Handle{}
	switch {
	case err != nil:
		if v.b.Context().Err() == nil {
			v.b.errorf("Book of %s at %v: %v", describe(v.booking), v.b.now(), err)
		}
		v.grant, v.over = store.Grant{}, true

	// A wait of 0 would fit any MaxWait: a caller whose MaxWait is over would get a place and no refusal, and ask again and again.
	case inLineForStart && g.Wait <= 0:
		v.b.errorf("at %v a caller that waits in line is told to wait %v", v.b.now(), g.Wait)
	case !g.OK && g.Ready == nil:
		v.over, v.refused = true, true
	}

	v.booking.Instead, v.booking.Turn, v.booking.Returns = store.Handle{}, g.Turn, true
	if g.OK || g.Ready != nil {
		v.booking.Instead = g.Handle
	}
}

// run makes the visitor's calls after its first booking, until it is over.
func (v *visitor) run() {
	for !v.over {
		if v.grant.OK {
			v.watch()
		} else {
			v.stand()
		}
	}
	if v.begins != nil && v.begun() != never {
		v.begins()
	}
}

// stand waits in line until the visitor is called or changed, and then books again, or until it leaves or the check ends. A call
// too many, and a change without charges, fail the check and end the visitor.
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

// watch waits for the start that is booked, and then the visitor begins. If the start is void or the visitor is changed, it books
// again. It may also leave, or the check may end.
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

			// With charges of its own the new booking cannot replace the start, so give the start back first.
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

// ends notes that the visitor began at start, or left if start is never.
func (v *visitor) ends(start time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over, v.start = true, start
}

// leaves has the visitor give up its start or its place, and waits until it has.
func (v *visitor) leaves() {
	close(v.left)
	synctest.Wait()
}

// changes has the visitor book again, with other charges, and waits until it has.
func (v *visitor) changes(charges ...store.Charge) {
	v.changed <- charges
	synctest.Wait()
}

// returns has the visitor book again in place of its start, and waits until it has.
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

// settles settles the costs of a visitor that began, and waits for what follows.
func (v *visitor) settles(costs ...int) {
	v.b.Helper()
	v.b.settle(v.booking, v.grant, costs...)
	synctest.Wait()
}
