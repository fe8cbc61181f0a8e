package nodestore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A watching is the watch over the start of a booking, until the start is used or given back.
type watching struct {
	watch
	store *Store
	lane  *lane
}

// Watch implements [throttle.Store].
func (s *Store) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	w := &watching{watch: watch{charges: b.Charges, grant: g, news: news}, store: s, lane: s.lane(&b.Charges[0].Budget)}
	if slices.ContainsFunc(b.Charges, func(c throttle.Charge) bool { return c.Node }) {
		w.charges = slices.Clone(b.Charges)
		s.own(w.charges)
	}
	w.lane.state.Lock()
	w.lane.memory.watches[&w.watch] = struct{}{}
	w.lane.keepAlive()
	w.lane.state.Unlock()
	if ok, err := w.Confirm(context.Background(), 0); err == nil && !ok {
		w.tell()
	}
	return w
}

// Confirm implements [throttle.Watch].
func (w *watching) Confirm(context.Context, time.Duration) (ok bool, err error) {
	err = w.store.read(w.lane, func(rows Rows) { ok = w.usable(rows) })
	return ok && err == nil && !w.lifted.Load(), err // the news that came with the rows may have lifted it
}

// Stop implements [throttle.Watch].
func (w *watching) Stop() {
	w.lane.state.Lock()
	defer w.lane.state.Unlock()
	delete(w.lane.memory.watches, &w.watch)
}
