// Package linger says which newcomers to a full budget may linger, so that one call of the store puts several of them in line: a newcomer has to wait for its start
// anyway, and a call for many costs a store little more than a call for one. Producers of message queues know such a wait as linger time.
//
// A store notes what its answers say of waits ([Budgets.Note]). Before a newcomer calls, the store asks for how long the newcomer has to wait at the least
// ([Budgets.Wait]), and lets it linger for a part of that.
package linger

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

const (
	sweepFrom = 64  // fewer budgets are not swept
	maxShares = 512 // lanes of shares that are remembered of one budget
)

// A Lane is the callers of one class in the line of a budget that have the same share, or none.
type Lane struct {
	Class int    // see ledger.Class
	Share uint64 // Zero means the callers without a share.
}

// Budgets are the budgets that were full by the last answers. The zero Budgets knows of none. Budgets needs a lock of its user.
type Budgets struct {
	all     map[ledger.Key]*budget
	sweepAt int // with so many budgets, sweep forgets the budgets that have room again before a further one is added
}

// A budget says until when its lanes are full, by the last answers: a newcomer of the lane, or of a lower priority, starts no earlier, unless a start is given
// back.
type budget struct {
	until     [3]time.Time // of the lanes without a share, by class
	shares    map[Lane]time.Time
	newcomers int // how many newcomers Wait counted since the last answer
}

// Note notes by an answer that a caller of a lane starts at until: the lane is full until then. The count of newcomers begins anew: the answer shows
// the room that earlier newcomers have taken. isNewcomer says that the caller came for the first time.
func (all *Budgets) Note(key ledger.Key, lane Lane, until, now time.Time, isNewcomer bool) {
	b := all.all[key]
	if b == nil {
		all.sweep(now)
		b = new(budget)
		all.all[key] = b
	}

	b.note(lane, until, isNewcomer)
	b.newcomers = 0
}

// NoteLast notes until when a lane is full by what an answer says of its last waiter. NoteLast does nothing for a budget that was not full before.
func (all *Budgets) NoteLast(key ledger.Key, lane Lane, until time.Time) {
	if b := all.all[key]; b != nil {
		b.note(lane, until, false)
	}
}

// note notes until when a lane is full. In a lane of a share, only the answer to a newcomer may bring the time forward: a caller that has waited already waits for
// less than the next newcomer will.
func (b *budget) note(lane Lane, until time.Time, isNewcomer bool) {
	if lane.Share == 0 {
		b.until[lane.Class] = until
		return
	}

	// The map has a bound: forgetting costs some calls in which nobody lingers.
	if b.shares == nil || len(b.shares) >= maxShares {
		b.shares = make(map[Lane]time.Time)
	}
	if isNewcomer || until.After(b.shares[lane]) {
		b.shares[lane] = until
	}
}

// sweep makes the map if there is none. It forgets the budgets that have room again, if there are twice as many budgets as after the last sweep, and at least
// sweepFrom.
func (all *Budgets) sweep(now time.Time) {
	if all.all == nil {
		all.all = make(map[ledger.Key]*budget)
	}
	if len(all.all) < all.sweepAt {
		return
	}

	for key, b := range all.all {
		if !b.isFull(now) {
			delete(all.all, key)
		}
	}
	all.sweepAt = max(sweepFrom, 2*len(all.all))
}

// isFull reports whether any lane of the budget is full.
func (b *budget) isFull(now time.Time) bool {
	for _, until := range b.shares {
		if until.After(now) {
			return true
		}
	}
	for _, until := range b.until {
		if until.After(now) {
			return true
		}
	}
	return false
}

// Forget forgets that a budget was full: its newcomers call at once.
func (all *Budgets) Forget(key ledger.Key) { delete(all.all, key) }

// ForgetAll forgets all budgets.
func (all *Budgets) ForgetAll() { clear(all.all) }

// Wait returns how long the newcomer with the booking b has to wait at the least, and the charge whose budget has that wait. The wait is 0, and the charge nil, if the
// newcomer must call at once: if no budget is known to be full, if the newcomer would be refused, if the caller is no newcomer that may stand in line, or if a crowd lingers.
//
// longest is the longest time for which a newcomer lingers. While a crowd of this program lingers, callers of other programs may get places before the crowd, and
// afterwards the crowd is before later callers of other programs. So a crowd is bounded: Wait counts the newcomers from one answer to the next, and no more of them linger
// than start in half of longest. The next newcomer calls, and the lingering newcomers share the call. Where starts do not flow evenly nobody lingers: a newcomer that is
// passed might wait for one more window.
func (all *Budgets) Wait(b *store.Booking, longest time.Duration, now time.Time) (wait time.Duration, c *store.Charge) {
	// Any other caller has a start or a place, or stands in no line.
	isNewcomer := b.Horizon > 0 && b.Turn == nil && b.Instead == (store.Handle{}) && b.NotBefore <= 0
	if !isNewcomer {
		return 0, nil
	}

	// The budget with the longest wait decides.
	var decides *budget
	for i := range b.Charges {
		full := all.all[b.Charges[i].Budget.Key]
		if full == nil || b.Charges[i].Shadow {
			continue
		}

		d := full.wait(Lane{ledger.Class(b.Priority), b.Charges[i].Share.ID}, now)
		if d > wait {
			wait, decides, c = d, full, &b.Charges[i]
		}
	}

	// A newcomer that will be refused should hear that at once.
	if decides == nil || b.MaxWait >= 0 && wait >= b.MaxWait {
		return 0, nil
	}

	// This newcomer counts, and the next one.
	decides.newcomers++
	crowd := float64(decides.newcomers+1) * float64(ledger.Distance(c))
	if !flowsEvenly(c.Limit) || crowd > float64(longest/2) {
		return 0, nil
	}
	return wait, c
}

// wait returns how long a newcomer of a lane has to wait at the least, or 0 if nothing is known: until the callers of its lane and of higher priorities have
// started. Other lanes of its priority do not go before it.
func (b *budget) wait(lane Lane, now time.Time) (wait time.Duration) {
	for _, until := range b.until[:lane.Class] {
		wait = max(wait, until.Sub(now))
	}
	if lane.Share == 0 {
		wait = max(wait, b.until[lane.Class].Sub(now))
	}
	for other, until := range b.shares {
		if other == lane || other.Class < lane.Class {
			wait = max(wait, until.Sub(now))
		}
	}
	return wait
}

// flowsEvenly reports whether a caller of the limit l that is passed in a line waits for one more start, and not for one more window.
func flowsEvenly(l store.Limit) bool {
	switch l.Kind() {
	case store.KindSlidingWindow:
		return l.Per() <= store.MaxEvenWindow
	case store.KindLeakyBucket, store.KindTokenBucket:
		return true
	}
	return false
}
