package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/ledger"
)

// A budget is a row and those who want to hear of its changes.
type budget struct {
	ledger.Row
	*audience // nil: nobody does
}

// An audience is those who want to hear of the changes of a row.
type audience struct {
	watches map[*watch]struct{}
	slots   map[int64]chan<- struct{} // by arrival, of those who wait for slots
	line    map[int64]*waiter         // by arrival, of those who wait for a start
	timer   *time.Timer               // serves the line
}

// audience returns that of a budget, new if need be. The shard is locked.
func (s *Store) audience(of throttle.Budget) *audience {
	b := s.shard(of).budget(of.Key, s.clock.now())
	if b.audience == nil {
		b.audience = &audience{
			watches: make(map[*watch]struct{}),
			slots:   make(map[int64]chan<- struct{}),
			line:    make(map[int64]*waiter),
		}
	}
	return b.audience
}

// expiry is when nothing in the budget can matter any more; while somebody wants to hear
// of it, not yet.
func (b *budget) expiry(now int64) int64 {
	end := b.Expiry(now)
	if b.audience != nil && len(b.watches) > 0 {
		end = max(end, now)
	}
	return end
}

// call tells the waiter for slots that it is its turn.
func (b *budget) call(arrival int64) {
	close(b.slots[arrival])
	delete(b.slots, arrival)
}

// warn tells those who watch a start that became useless, the earliest first, so that they
// book anew in that order.
func (b *budget) warn(u ledger.Useless) {
	if b.audience == nil {
		return
	}
	var all []*watch
	for w := range b.watches {
		if u.From <= w.grant.Mark && w.grant.Mark < u.Before {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *watch) int { return cmp.Compare(a.grant.Mark, b.grant.Mark) })
	for _, w := range all {
		if u.Lifted {
			w.lifted.Store(true)
		}
		w.tell()
	}
}
