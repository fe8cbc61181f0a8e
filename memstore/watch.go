package memstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/ledger"
)

// A watch is kept over one start until it is used or given back.
type watch struct {
	store   *Store
	charges []throttle.Charge
	grant   throttle.Grant
	news    chan<- struct{}
	lifted  atomic.Bool // a pause ended early, or others have spent: it is booked anew
}

// Watch implements [throttle.Store].
func (s *Store) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	w := &watch{store: s, charges: b.Charges, grant: g, news: news}
	held := s.lock(b.Charges)
	defer s.unlock(held)
	for i := range b.Charges {
		if c := &b.Charges[i]; !c.Shadow {
			s.audience(c.Budget).watches[w] = struct{}{}
		}
	}
	if !w.usable() {
		w.tell()
	}
	return w
}

// Confirm implements [throttle.Watch].
func (w *watch) Confirm(context.Context, time.Duration) (bool, error) {
	held := w.store.lock(w.charges)
	defer w.store.unlock(held)
	return w.usable(), nil
}

// Stop implements [throttle.Watch].
func (w *watch) Stop() {
	held := w.store.lock(w.charges)
	defer w.store.unlock(held)
	for i := range w.charges {
		if b := w.budget(i); b != nil && b.audience != nil {
			delete(b.watches, w)
		}
	}
}

// usable reports whether the start may be used. The shards are locked.
func (w *watch) usable() bool {
	return !w.lifted.Load() && ledger.Usable(w.charges, w.grant, func(i int) *ledger.Row {
		if b := w.budget(i); b != nil {
			return &b.Row
		}
		return nil
	})
}

// budget returns that of a charge; nil if there is none.
func (w *watch) budget(i int) *budget {
	b := &w.charges[i].Budget
	return w.store.shard(*b).budgets[b.Key]
}

func (w *watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // it is told already
	}
}
