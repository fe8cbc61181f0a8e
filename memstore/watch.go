package memstore

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/fleetthrottle/throttle"
)

// A watch is kept over one start until it is used or given back.
type watch struct {
	store  *Store
	b      *throttle.Booking
	mark   int64
	news   chan<- struct{}
	lifted atomic.Bool // a pause ended early, or others have spent: it is booked anew
}

// Watch implements [throttle.Store].
func (s *Store) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	w := &watch{store: s, b: b, mark: g.Mark, news: news}
	held := s.lock(b.Charges)
	defer s.unlock(held)
	stamp := int64(1)
	for i := range b.Charges {
		if c := &b.Charges[i]; !c.Shadow {
			r := s.shard(c.Budget).row(c.Budget.Key, s.clock.now())
			r.watch(w)
			stamp += r.lifts
		}
	}
	// Who does not know the stamp has 0.
	w.lifted.Store(g.Stamp != 0 && g.Stamp != stamp)
	if w.lifted.Load() || w.closed() {
		w.tell()
	}
	return w
}

// Confirm implements [throttle.Watch].
func (w *watch) Confirm(context.Context) (bool, error) {
	held := w.store.lock(w.b.Charges)
	defer w.store.unlock(held)
	return !w.lifted.Load() && !w.closed(), nil
}

// Stop implements [throttle.Watch].
func (w *watch) Stop() {
	held := w.store.lock(w.b.Charges)
	defer w.store.unlock(held)
	for i := range w.b.Charges {
		if r := w.row(i); r != nil {
			delete(r.watches, w)
		}
	}
}

// closed reports whether a budget is closed at the start. The shards are locked.
func (w *watch) closed() bool {
	for i := range w.b.Charges {
		if r := w.row(i); r != nil && !w.b.Charges[i].Shadow && r.paused > w.mark {
			return true
		}
	}
	return false
}

// row returns the row of a charge, if there is one.
func (w *watch) row(i int) *row {
	b := &w.b.Charges[i].Budget
	return w.store.shard(*b).rows[b.Key]
}

func (w *watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // it is told already
	}
}

// watch adds one who wants to know of pauses.
func (r *row) watch(w *watch) {
	if r.watches == nil {
		r.watches = make(map[*watch]struct{})
	}
	r.watches[w] = struct{}{}
}

// tell tells all who watch starts from a time on, before another, the earliest
// first, so that they book anew in that order.
func (r *row) tell(from, before int64, lifted bool) {
	var all []*watch
	for w := range r.watches {
		if from <= w.mark && w.mark < before {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *watch) int { return cmp.Compare(a.mark, b.mark) })
	for _, w := range all {
		if lifted {
			w.lifted.Store(true)
		}
		w.tell()
	}
}
