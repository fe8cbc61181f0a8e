package memstore

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/ledger"
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

// expiry is when nothing in the budget can matter any more; while it is watched, not
// yet.
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
	booking throttle.Booking
	ends    int64 // when its patience is over
	ready   chan struct{}
	grant   throttle.Grant // what was booked for it, if that is OK
}

// A watch wants to hear that a start became useless.
type watch struct {
	grant  throttle.Grant
	news   chan<- struct{}
	lifted atomic.Bool // a pause ended early, or others have spent: it is booked anew
}

func (w *watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // it is told already
	}
}

// called returns the channel of the waiter for slots whose turn it is.
func (b *budget) called(arrival int64) (ready chan struct{}) {
	ready = b.slots[arrival]
	delete(b.slots, arrival)
	return ready
}

// warn tells those who watch a start that became useless, the earliest first, so that they
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
