package nodestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
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
	late := w.lane.memory.recent.isAbout(&w.watch)
	w.lane.state.Unlock()
	if late {
		w.tell()
	}
	return w
}

// Confirm implements [throttle.Watch].
func (w *watching) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if maxWait > 0 {
		within, stop := context.WithTimeout(ctx, maxWait)
		defer stop()
		ctx = within
	}
	observer := outage.From(ctx)
	for {
		var ok bool
		err := w.store.read(ctx, w.lane, w.charges, func(rows Rows) { ok = w.usable(rows) })
		switch {
		case err == nil:
			return ok && !w.lifted.Load(), nil // the news that came with the rows may have lifted it
		case !errors.Is(err, ErrAway) || maxWait == 0:
			return false, err
		case observer != nil:
			observer.StoreAway(err)
		}
		select {
		case <-time.After(awayEvery):
		case <-ctx.Done():
		}
		if why := context.Cause(ctx); why != nil {
			return false, fmt.Errorf("%w (%w)", err, why)
		}
	}
}

// Stop implements [throttle.Watch].
func (w *watching) Stop() {
	w.lane.state.Lock()
	defer w.lane.state.Unlock()
	delete(w.lane.memory.watches, &w.watch)
}
