package node

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
}

// Watch implements [store.Store].
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	w := &watching{watch: watch{charges: b.Charges, grant: g, news: news}, store: s}
	if slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Node }) {
		w.charges = slices.Clone(b.Charges)
		s.own(w.charges)
	}

	// What was heard before the watch is in the memory is told now.
	s.lane.state.Lock()
	s.lane.memory.watches[&w.watch] = struct{}{}
	s.lane.keepAlive()
	late := s.lane.memory.recent.isAbout(&w.watch)
	s.lane.state.Unlock()
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
		err := w.store.read(ctx, w.charges, func(rows Rows) { ok = w.usable(rows) })
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
	l := w.store.lane
	l.state.Lock()
	defer l.state.Unlock()
	delete(l.memory.watches, &w.watch)
}
