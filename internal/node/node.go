// Package node is a node of a store: the program whose callers wait, and its work on rows that may be shared with other nodes. Package ledger
// decides about rows, and knows no callers. This package has the callers, and asks package ledger about rows.
//
// [Caller] is one caller that waits for a start, in any store: its states, and the only type that changes them. memstore moves
// its Callers itself, each under the locks of its budgets. The rest of the package is for stores that keep rows in one place for many nodes, a file or a
// table of a database: [Store] is such a store, and a [Backend] does the rest. A Backend loads rows, has them decided on, and saves them.
//
// Who owns what in a Store:
//
//	Store    an op for each call: it is put in the worker's queue, and the caller waits for its answer
//	worker   the queue, and one goroutine that makes steps, one at a time; callers that come meanwhile share the next step
//	memory   who waits in the node, how many slots are held, which starts are watched
//	step     drafts: the memory as the step under way leaves it
//
// One step:
//
//  1. The worker takes a batch of ops, and the news of other nodes that concern callers of this node.
//  2. The Backend locks and loads the rows, and calls the worker back, perhaps more than once. The step decides: each op changes rows and
//     drafts and leaves its answer in the op; then news and lines are gone through (serve.go).
//  3. The Backend saves the rows, and has other nodes told.
//  4. If that went well, the drafts become the memory, waiters are woken, and each op is answered. If not, the drafts are forgotten, each
//     op is answered with the error, or waits for the next step, and grants that callers gave back are given back later.
//
// So nothing that callers see, and nothing that the node remembers, comes before the rows are saved.
package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// A Backend keeps the rows of budgets for many nodes. Its methods are safe for concurrent use, but
// a node makes one Step at a time.
type Backend interface {
	// Step locks the rows, calls decide, saves the rows that decide has got and unlocks them:
	// all rows are saved, or none. Decide asks for the rows of the keys first. Decide may be called
	// again, with the rows as they were, if its changes could not be saved. After an error
	// nothing was saved, unless the error is an [ErrUnsure]. Step returns what other nodes have done since the last call, without the part that
	// decide had in its Rows.
	Step(keys []ledger.Key, decide func(Rows) Told) (Heard, error)

	// Read calls look with the rows as they are, which look does not change. Look asks for the rows of
	// the keys, and may be called again. Read returns what other nodes have done, also with an error. It fails when ctx has ended.
	Read(ctx context.Context, keys []ledger.Key, look func(Rows)) (Heard, error)

	// Listen has wake called, from any goroutine, when other nodes have news for this one, until
	// stop is called. Wake does not block. A backend that cannot tell when there are news calls wake four times a second, with told false.
	Listen(wake func(told bool)) (stop func(), err error)
}

// A DeathObserver is a Backend that learns of some deaths of nodes before the nodes' leases end.
type DeathObserver interface {
	// IsDead reports whether a node is dead for sure. Heard is when the node renewed its lease last, according to a row, by the store's clock. IsDead
	// does not block. A backend that has to find out first does so, and answers a later call.
	IsDead(node, heard int64) bool

	// OnDeath has told called, from any goroutine, when a node that IsDead was asked about has died. It is called once, before all other methods.
	// A backend that cannot tell need not call told: nodes ask again once a second.
	OnDeath(told func())
}

// ErrAway is the error of a Step while the backend cannot be reached. Callers that can wait do so, and their ops are
// done in a later step.
var ErrAway = errors.New("the database cannot be reached")

// ErrUnsure is the error of a Step if it is not known whether the rows were saved. By then the leases that the node had in the rows are over.
var ErrUnsure = errors.New("it is not known whether this was saved")

// A Troubled is a Backend whose steps may take long because something has failed.
type Troubled interface {
	// Trouble returns the failure in the step that is under way, or nil.
	Trouble() error
}

// Rows are the rows of budgets during a step or a look.
type Rows interface {
	// Now is the time of the store's clock, in microseconds. The clock was read between Asked, when this node asked for the
	// time, and Received, when this node had the answer.
	Now() int64
	Asked() time.Time
	Received() time.Time

	// Heard is what other nodes have done, as news for this step. If the step is saved, the same news do not come again. A look has none.
	Heard() Heard

	// Fetch says of which charges the rows are wanted next: a backend that has to load them loads them together.
	Fetch(charges []store.Charge)

	// Row returns the row of a budget. If there is none it returns nil, or with create a new one.
	Row(key ledger.Key, create bool) *ledger.Row

	// Err returns the errors of rows that could not be loaded or read so far, or nil. Row takes such rows to be missing or empty.
	Err() error
}

// Told is the part of a step that concerns other nodes.
type Told struct {
	News  ledger.News
	Nodes []int64 // the nodes that are to be told of the step at once
	All   bool    // all nodes are to be told of the step at once
	Waits bool    // callers of this node wait in lines for starts, so that others may ask this node to come
	Asked int64   // others may ask this node from this time of the store's clock on
	Slots bool    // callers of this node hold slots, or wait for slots that a dead node may hold
}

// Heard is what other nodes have done.
type Heard struct {
	News ledger.News
	Lost bool // further news may have been lost
}

// Add adds later news.
func (h *Heard) Add(later Heard) {
	Append(&h.News, later.News)
	h.Lost = h.Lost || later.Lost
}

// Empty reports whether nothing was heard.
func (h *Heard) Empty() bool { return !h.Lost && IsEmpty(&h.News) }

// Empty reports whether there are no news to tell.
func (t *Told) Empty() bool { return IsEmpty(&t.News) }

// Options configure a node.
type Options struct {
	Node     ledger.Node
	Arrivals *ledger.Arrivals // of the node. A nil Arrivals is made anew.
	Rows     int              // about how many rows a step has at the most. Zero means no limit.
}

// NewNode returns a number for a node, which is unique.
func NewNode() int64 {
	// Read never fails.
	var b [8]byte
	_, _ = rand.Read(b[:])

	// Stored rows have room for 53 bits. The last bit is set, because 0 is no node.
	return int64(binary.LittleEndian.Uint64(b[:])>>11) | 1
}

// A Store is a node's part of a [store.Store] for many nodes.
type Store struct {
	store.Minimal
	backend Backend
	options Options
	worker  *worker
	ops     ops
}

// New returns the store of a node.
func New(b Backend, o Options) *Store {
	if o.Arrivals == nil {
		o.Arrivals = new(ledger.Arrivals)
	}
	return &Store{backend: b, options: o, worker: newWorker(b, o)}
}

// Traits implements [store.Store]. A step books for the waiters of its node.
func (s *Store) Traits() store.Traits { return store.Traits{BooksWaiters: true} }

// setOwnKeys gives each budget that is the node's own a key that no other node has.
func (s *Store) setOwnKeys(charges []store.Charge) {
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
	s.setOwnKeys(o.booking.Charges)
	return o
}

// Book implements [store.Store].
func (s *Store) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	// A start that was booked for the caller while it waited is in the memory: no step is needed.
	o := s.op(book, b)
	if g, ok := s.worker.deliver(&o.booking); ok {
		s.ops.put(o)
		return g, nil
	}

	// Count how often the caller asks: an undo of its last booking that is done late must not take its new place. See step.cancel.
	if w, ok := b.Turn.(*waiter); ok {
		o.nth = w.asked.Add(1)
	}
	o.books, o.observer = true, outage.From(ctx)
	s.worker.postNewcomer(o)

	// With a MaxWait of 0 the caller still waits for the answer, for as long as its context lasts.
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
		s.worker.noteWait(&o.booking, &g)

		// The store's clock was read between asked and received. Age counts from asked and Wait from received, so that neither is too short: a
		// caller that went on before its start would come too close to earlier starts.
		age := max(0, time.Since(o.asked))

		// A start that was still to come grows old only when the wait is over. The doubt about when the clock was read remains.
		if g.OK && g.Wait > 0 {
			age = max(o.received.Sub(o.asked), age-g.Wait)
		}
		g.Age += age

		// Where steps are slow, an answer without a start is as old as the whole step, including the wait for other nodes. The older the answers,
		// the further ahead callers have their starts booked, and the less often the node must come to the line.
		if !g.OK && g.Age > fastStep {
			g.Age = max(g.Age, time.Since(o.began))
		}

		// A part of the wait is over. The rest stays above 0, because a grant with a Wait of 0 counts as holding slots.
		if g.Wait > 0 {
			g.Wait = max(time.Microsecond, g.Wait-max(0, time.Since(o.received)))
		}
	}

	s.ops.put(o)
	return g, err
}

// leftError returns the error of a caller that did not wait for the answer: why it left and, if that is known, why there was no answer.
func (s *Store) leftError(ctx context.Context) error {
	why := context.Cause(ctx)
	if why == nil {
		// If the context has not ended, MaxWait has.
		why = context.DeadlineExceeded
	}

	// The node knows if the backend is away, and the backend may know why a step takes long.
	if a := s.worker.away.Load(); a != nil && time.Since(a.at) < awayFor {
		return fmt.Errorf("%w (%w)", a.err, why)
	}

	if t, ok := s.backend.(Troubled); ok {
		if trouble := t.Trouble(); trouble != nil {
			return fmt.Errorf("%w (%w)", trouble, why)
		}
	}

	return why
}

// undoSoon is how long a caller that gives something back waits, at the most, until the rows say so.
const undoSoon = 50 * time.Millisecond

// Cancel implements [store.Store].
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	// Nothing was booked, and the caller stands in no line.
	if !g.OK && g.Ready == nil {
		return
	}
	o := s.op(cancel, b)
	o.grant = g

	// If the caller asks again before the op is done, it keeps its new place: see step.cancel.
	if w, ok := g.Turn.(*waiter); ok {
		o.nth = w.asked.Load()
	}
	s.undo(o)
}

// Release implements [store.Store].
func (s *Store) Release(b *store.Booking, g store.Grant) {
	if g.OK && g.Wait == 0 && holdsSlots(b) {
		s.undo(s.op(release, b))
	}
}

// undo has an op done that gives something back, and waits for at most undoSoon. If the op takes longer, the worker does it later.
func (s *Store) undo(o *op) {
	o.isUndo = true
	s.worker.post(o)
	if o.await(context.Background(), undoSoon) {
		s.ops.put(o)
	}
}

// do has an op done in a step, and waits for it until ctx ends. from and to are the result of Refuse, and 0 for all other ops.
func (s *Store) do(ctx context.Context, o *op) (from, to float64, err error) {
	s.worker.post(o)
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

// charge has do change one budget, in a step. It returns what Store.do returns.
func (s *Store) charge(ctx context.Context, c store.Charge, do func(*ledger.Request, *op)) (from, to float64, err error) {
	o := s.op(func(st *step, o *op) {
		st.change(&o.booking, func(q *ledger.Request) { do(q, o) })
	}, &store.Booking{Charges: []store.Charge{c}})
	return s.do(ctx, o)
}

// close is charge for a budget that is to be closed. It first makes the budget's row if there is none, because a closed budget must have one.
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
	came := time.Now()
	return s.close(ctx, c, func(q *ledger.Request, o *op) {
		// While the op waits for its step the refused request grows older, but its answer took no longer. A Took of 0 stands for Ago, so Took is set
		// before Ago grows. The bound keeps the sum from overflowing.
		refused := r
		refused.Took = cmp.Or(r.Took, r.Ago)
		refused.Ago = min(r.Ago, store.MaxAhead) + max(0, o.received.Sub(came))
		o.from, o.to = q.Refuse(refused)
	})
}

// Resume implements [store.Store].
func (s *Store) Resume(ctx context.Context, c store.Charge) error {
	_, _, err := s.charge(ctx, c, func(q *ledger.Request, _ *op) { q.Resume() })
	return err
}

// Reconcile implements [store.Store].
func (s *Store) Reconcile(ctx context.Context, c store.Charge, quota store.Quota) error {
	came := time.Now()
	_, _, err := s.charge(ctx, c, func(q *ledger.Request, o *op) {
		// While the op waits for its step the answer with the quota grows older. The bound keeps the sum from overflowing.
		passed := max(0, o.received.Sub(came))
		q.Reconcile(store.Quota{Left: quota.Left, Reset: quota.Reset - passed, Age: min(quota.Age, store.MaxAhead) + passed, Told: quota.Told})
	})
	return err
}

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	charges := []store.Charge{c}
	s.setOwnKeys(charges)

	// The ledger describes a budget as a start with a cost of 1 finds it.
	charges[0].Cost = 1

	// Request.Status may change the row that it describes, so it gets a copy.
	var st store.Status
	if err := s.read(ctx, charges, func(rows Rows) {
		row := rows.Row(charges[0].Budget.Key, false).Clone()
		st = ledger.NewRequest(rows.Now(), s.options.Node, nil, &store.Booking{Charges: charges}, []*ledger.Row{row}).Status()
	}); err != nil {
		return store.Status{}, err
	}

	return st, nil
}

// read calls look with the rows of charges, as [Backend].Read does. It has the node go through the news of other nodes, which may also come with an error.
func (s *Store) read(ctx context.Context, charges []store.Charge, look func(Rows)) error {
	var few [ledger.Few]ledger.Key
	keys := few[:0]
	for i := range charges {
		keys = append(keys, charges[i].Budget.Key)
	}
	heard, err := s.backend.Read(ctx, keys, look)

	// A caller that asks about its start waits for this read: its watch hears the news before the caller has the answer.
	s.worker.warn(heard.News)
	s.worker.hear(heard)
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

	// The charges are the caller's: only a copy can have the node's own keys.
	if slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Node }) {
		charges = slices.Clone(charges)
		s.setOwnKeys(charges)
	}

	w := &watching{store: s}
	w.Begin(charges, g, news)

	// From now on the node must hear news. The start may have become useless before the watch was in the memory: then the watch is told now.
	s.worker.state.Lock()
	s.worker.memory.watch(&w.Watch, true)
	s.worker.keepAlive()
	isUseless := s.worker.memory.recent.isAbout(charges, &g)
	s.worker.state.Unlock()
	if isUseless {
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

	if ok, answered := w.store.worker.confirm(ctx, &w.Watch); answered {
		return ok, nil
	}

	// Otherwise read the rows. While the backend is away, read again until the caller gives up.
	var away error // of the last read, if the backend was away
	for {
		var ok bool
		err := w.store.read(ctx, w.charges, func(rows Rows) {
			ok = w.Usable(func(key ledger.Key) *ledger.Row { return rows.Row(key, false) })
		})
		switch {
		// The news that came with the rows may have lifted the start.
		case err == nil:
			return ok && !w.lifted.Load(), nil

		// The caller has given up while the backend was away: the error says both.
		case away != nil && ctx.Err() != nil:
			return false, fmt.Errorf("%w (%w)", away, context.Cause(ctx))

		// The caller may not wait, or to wait does not help.
		case maxWait == 0 || !errors.Is(err, ErrAway):
			return false, err
		}

		// The caller waits for the backend, and its observer hears of the outage.
		away = err
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
	k := w.store.worker
	k.state.Lock()
	defer k.state.Unlock()
	k.memory.watch(&w.Watch, false)
}

// Often is how often a node looks for news if other nodes cannot wake it.
const Often = 250 * time.Millisecond

// Poll calls wake(false) again and again until stop is called. next returns how long it takes until the next call, the first call included. The argument false
// says that no other node has told this node of news: wake looks by itself. stop waits for a call of wake that is under way, so wake must not call stop.
func Poll(wake func(told bool), next func() time.Duration) (stop func()) {
	// The lock is held during wake: after stop has returned, wake is not called any more.
	var mu sync.Mutex
	stopped := false
	var again func()
	again = func() {
		mu.Lock()
		defer mu.Unlock()

		if !stopped {
			wake(false)
			time.AfterFunc(next(), again)
		}
	}

	time.AfterFunc(next(), again)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
