package memstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A watching is the watch over the start of a booking, until it is used or given back.
type watching struct {
	watch
	store   *Store
	charges []store.Charge
}

// Watch implements [store.Store].
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	w := &watching{watch: watch{grant: g, news: news}, store: s, charges: b.Charges}
	held := s.lock(b.Charges)
	defer s.unlock(held)
	for i := range b.Charges {
		if c := &b.Charges[i]; !c.Shadow {
			s.audience(c.Budget).watches[&w.watch] = struct{}{}
		}
	}
	if !w.usable() {
		w.tell()
	}
	return w
}

// Confirm implements [store.Watch].
func (w *watching) Confirm(context.Context, time.Duration) (bool, error) {
	held := w.store.lock(w.charges)
	defer w.store.unlock(held)
	return w.usable(), nil
}

// Stop implements [store.Watch].
func (w *watching) Stop() {
	held := w.store.lock(w.charges)
	defer w.store.unlock(held)
	for i := range w.charges {
		if b := w.budget(i); b != nil && b.audience != nil {
			delete(b.watches, &w.watch)
		}
	}
}

// usable reports whether the start may be used. The shards are locked.
func (w *watching) usable() bool {
	return !w.lifted.Load() && ledger.Usable(w.charges, w.grant, func(i int) *ledger.Row {
		if b := w.budget(i); b != nil {
			return &b.Row
		}
		return nil
	})
}

// budget returns that of a charge; nil if there is none.
func (w *watching) budget(i int) *budget {
	b := &w.charges[i].Budget
	return w.store.shard(b).budgets[b.Key]
}
