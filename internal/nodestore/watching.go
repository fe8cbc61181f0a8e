package nodestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// A watching is the watch over the start of a booking, until the start is used or given back.
type watching struct {
	watch
	store *Store
	lane  *lane
}

// Watch implements [store.Store].
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	w := &watching{watch: watch{charges: b.Charges, grant: g, news: news}, store: s, lane: s.lane(&b.Charges[0].Budget)}
	if slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Node }) {
		w.charges = slices.Clone(b.Charges)
		s.own(w.charges)
	}
	w.lane.state.Lock()
	w.lane.memory.watches[&w.watch] = struct{}{}
	w.lane.keepAlive()
	late := w.lane.memory.recent.isAbout(&w.watch)
	w.lane.state.Unlock()
	if late {
		w.tell()
	}
	return w
}

// Confirm implements [store.Watch].
func (w *watching) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if maxWait > 0 {
		within, stop := context.WithTimeout(ctx, maxWait)
		defer stop()
		ctx = within
	}
	var away error // what the caller waits for
	for {
		var ok bool
		err := w.store.read(ctx, w.lane, w.charges, func(rows Rows) { ok = w.usable(rows) })
		switch {
		case err == nil:
			return ok && !w.lifted.Load(), nil // the news that came with the rows may have lifted it
		case away != nil && ctx.Err() != nil:
			return false, fmt.Errorf("%w (%w)", away, context.Cause(ctx))
		case maxWait == 0 || !errors.Is(err, ErrAway):
			return false, err
		}
		away = err // who waits for a start waits for the backend, too
		if o := outage.From(ctx); o != nil {
			o.StoreAway(err)
		}
		select {
		case <-time.After(awayEvery):
		case <-ctx.Done():
		}
	}
}

// Stop implements [store.Watch].
func (w *watching) Stop() {
	w.lane.state.Lock()
	defer w.lane.state.Unlock()
	delete(w.lane.memory.watches, &w.watch)
}
