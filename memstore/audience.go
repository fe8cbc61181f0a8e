package memstore

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A budget is a row, and the watches and waiters that hear of its changes.
type budget struct {
	ledger.Row
	*audience // nil: there are none
}

// An audience is the watches and waiters that hear of the changes of a row.
type audience struct {
	watches map[*watch]struct{}
	slots   map[int64]chan struct{} // by arrival, of the waiters for slots
	line    map[int64]*waiter       // by arrival, of the waiters for a start
	timer   timer                   // serves the line
}

// expiry returns when nothing in the budget can matter any more: now at the earliest if the budget
// is busy or watched.
func (b *budget) expiry(now int64) int64 {
	end := b.Expiry()
	if b.Busy() || b.audience != nil && len(b.watches) > 0 {
		end = max(end, now)
	}
	return end
}

// A waiter is a caller that waits, or waited, for a start.
type waiter struct {
	ledger.Waiter
	booking store.Booking
	shards  shardSet      // of the charges of booking
	ends    int64         // when the caller's MaxWait is over, in microseconds of the store's clock
	ready   chan struct{} // the Ready of the caller's grant
	grant   store.Grant   // the start that was booked for the caller while it waited, if OK
}

// A watch is kept over one booked start, and is told when the start becomes useless.
type watch struct {
	grant  store.Grant
	news   chan<- struct{}
	lifted atomic.Bool // a pause ended early, or less is left than was known: the start must be booked anew
}

// tell sends on news.
func (w *watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // news is full: the caller has not taken in what was sent before
	}
}

// takeSlotWaiter takes the waiter for slots with an arrival out of the audience, and returns its channel;
// nil if there is none.
func (b *budget) takeSlotWaiter(arrival int64) (ready chan struct{}) {
	ready = b.slots[arrival]
	delete(b.slots, arrival)
	return ready
}

// warn tells the watches over starts that became useless, the earliest start first, so that their callers
// book anew in that order.
func (b *budget) warn(u ledger.Useless) {
	if b.audience == nil {
		return
	}
	var all []*watch
	for w := range b.watches {
		if u.From <= w.grant.Handle.Start && w.grant.Handle.Start < u.Before {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *watch) int { return cmp.Compare(a.grant.Handle.Start, b.grant.Handle.Start) })
	for _, w := range all {
		if u.Lifted {
			w.lifted.Store(true)
		}
		w.tell()
	}
}
