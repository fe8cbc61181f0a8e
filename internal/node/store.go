package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a node's part of a [store.Store] for many nodes.
type Store struct {
	store.Minimal
	backend Backend
	options Options
	lane    *lane
	ops     ops
}

// New returns the store of a node.
func New(b Backend, o Options) *Store {
	if o.Arrivals == nil {
		o.Arrivals = new(ledger.Arrivals)
	}
	return &Store{backend: b, options: o, lane: newLane(b, o)}
}

// own gives budgets that are the node's own keys that no other node has.
func (s *Store) own(charges []store.Charge) {
	for i := range charges {
		if c := &charges[i]; c.Node {
			half := c.Budget.Key[:8]
			binary.BigEndian.PutUint64(half, binary.BigEndian.Uint64(half)^uint64(s.options.Node.ID))
		}
	}
}

// op returns an op about a booking, with the keys that the rows have.
func (s *Store) op(decide func(*step, *op), b *store.Booking) *op {
	o := s.ops.get(decide, b)
	s.own(o.booking.Charges)
	return o
}

// Book implements [store.Store].
func (s *Store) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	o := s.op(book, b)
	if g, ok := s.lane.deliver(&o.booking); ok {
		s.ops.put(o)
		return g, nil
	}
	o.books, o.observer = true, outage.From(ctx)
	s.lane.post(o)

	patience := b.MaxWait
	if patience == 0 {
		patience = -1
	}
	if !o.await(ctx, patience) {
		return store.Grant{HeldBy: store.NotHeld}, s.leftError(ctx)
	}
	g, err := o.grant, o.err
	if err != nil {
		g = store.Grant{HeldBy: store.NotHeld}
	} else {
		// The clock was read between asked and received. The start is as old as it can be, and the wait is as long as it can be: a caller
		// that went on before its start would come too close to the starts before.
		if g.Age += max(0, time.Since(o.asked)); g.Wait > 0 {
			g.Wait = max(time.Microsecond, g.Wait-max(0, time.Since(o.received)))
		}
	}
	s.ops.put(o)
	return g, err
}

// leftError returns the error of a caller that did not wait for the answer.
func (s *Store) leftError(ctx context.Context) error {
	why := context.Cause(ctx)
	if why == nil {
		why = context.DeadlineExceeded
	}
	if err := s.lane.away.Load(); err != nil {
		return fmt.Errorf("%w (%w)", *err, why)
	}
	if t, ok := s.backend.(Troubled); ok {
		if trouble := t.Trouble(); trouble != nil {
			return fmt.Errorf("%w (%w)", trouble, why)
		}
	}
	return why
}

// undoSoon is how long a caller that gives something back waits until the rows say so.
const undoSoon = 50 * time.Millisecond

// Cancel implements [store.Store].
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	if !g.OK && g.Ready == nil {
		return
	}
	o := s.op(cancel, b)
	o.grant = g
	s.undo(o)
}

// Release implements [store.Store].
func (s *Store) Release(b *store.Booking, g store.Grant) {
	if g.OK && g.Wait == 0 && holdsSlots(b) {
		s.undo(s.op(release, b))
	}
}

// undo does an op that gives something back.
func (s *Store) undo(o *op) {
	o.isUndo = true
	s.lane.post(o)
	if o.await(context.Background(), undoSoon) {
		s.ops.put(o)
	}
}

// do does an op and waits for it.
func (s *Store) do(ctx context.Context, o *op) (from, to float64, err error) {
	s.lane.post(o)
	if !o.await(ctx, -1) {
		return 0, 0, s.leftError(ctx)
	}
	from, to, err = o.from, o.to, o.err
	s.ops.put(o)
	return from, to, err
}

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	o := s.op(func(st *step, o *op) {
		st.change(&o.booking, func(q *ledger.Request) { q.Settle(o.grant, o.costs) })
	}, b)
	o.grant, o.costs = g, append([]int(nil), costs...)
	_, _, err := s.do(ctx, o)
	return err
}

// charge does something for one budget.
func (s *Store) charge(ctx context.Context, c store.Charge, do func(*ledger.Request, *op)) (from, to float64, err error) {
	o := s.op(func(st *step, o *op) {
		st.change(&o.booking, func(q *ledger.Request) { do(q, o) })
	}, &store.Booking{Charges: []store.Charge{c}})
	return s.do(ctx, o)
}

// close is charge for what closes the budget, which must have a row.
func (s *Store) close(ctx context.Context, c store.Charge, do func(*ledger.Request, *op)) (from, to float64, err error) {
	o := s.op(func(st *step, o *op) {
		st.rows.Row(o.booking.Charges[0].Budget.Key, true)
		st.change(&o.booking, func(q *ledger.Request) { do(q, o) })
	}, &store.Booking{Charges: []store.Charge{c}})
	return s.do(ctx, o)
}

// Pause implements [store.Store].
func (s *Store) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	_, _, err := s.close(ctx, c, func(q *ledger.Request, _ *op) { q.Pause(d) })
	return err
}

// Refuse implements [store.Store].
func (s *Store) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	return s.close(ctx, c, func(q *ledger.Request, o *op) { o.from, o.to = q.Refuse(r) })
}

// Resume implements [store.Store].
func (s *Store) Resume(ctx context.Context, c store.Charge) error {
	_, _, err := s.charge(ctx, c, func(q *ledger.Request, _ *op) { q.Resume() })
	return err
}

// Reconcile implements [store.Store].
func (s *Store) Reconcile(ctx context.Context, c store.Charge, of store.Quota) error {
	_, _, err := s.charge(ctx, c, func(q *ledger.Request, _ *op) { q.Reconcile(of) })
	return err
}

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	charges := []store.Charge{c}
	s.own(charges)
	charges[0].Cost = 1
	var st store.Status
	if err := s.read(ctx, charges, func(rows Rows) {
		row := rows.Row(charges[0].Budget.Key, false).Clone()
		st = ledger.NewRequest(rows.Now(), s.options.Node, nil, &store.Booking{Charges: charges}, []*ledger.Row{row}).Status()
	}); err != nil {
		return store.Status{}, err
	}
	return st, nil
}

// read looks at the rows of charges, and takes in what other nodes have done.
func (s *Store) read(ctx context.Context, charges []store.Charge, look func(Rows)) error {
	var few [ledger.Few]ledger.Key
	keys := few[:0]
	for i := range charges {
		keys = append(keys, charges[i].Budget.Key)
	}
	heard, err := s.backend.Read(ctx, keys, look)
	s.lane.warn(heard.News)
	s.lane.hear(heard)
	return err
}

// A watching is the watch over the start of a booking, until the start is used or given back.
type watching struct {
	Watch
	store *Store
}

// Watch implements [store.Store].
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	charges := b.Charges
	if slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Node }) {
		charges = slices.Clone(charges)
		s.own(charges)
	}
	w := &watching{store: s}
	w.Begin(charges, g, news)

	// What was heard before the watch is in the memory is told now.
	s.lane.state.Lock()
	s.lane.memory.watch(&w.Watch, true)
	s.lane.keepAlive()
	late := s.lane.memory.recent.isAbout(charges, &g)
	s.lane.state.Unlock()
	if late {
		w.Tell()
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
		err := w.store.read(ctx, w.charges, func(rows Rows) {
			ok = w.Usable(func(key ledger.Key) *ledger.Row { return rows.Row(key, false) })
		})
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
	l.memory.watch(&w.Watch, false)
}
