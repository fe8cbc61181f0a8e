// Package memstore keeps budgets in the memory of one process. It is exact,
// needs no server, and keeps nothing for budgets that are idle. For a program
// of which several processes run, use filestore on one machine, or redisstore:
// every process with a memstore of its own has the whole limit to itself.
package memstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
	"github.com/fleetthrottle/throttle/internal/virtual"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a [store.Store] that keeps budgets in memory. Make one with [New]:
// the zero Store cannot be used. It is safe for concurrent use, and different
// budgets rarely share a lock. Its methods return no error and do not wait for
// anything but a lock. There is nothing to close.
type Store struct {
	clock    clock
	arrivals ledger.Arrivals
	shards   [shardCount]shard

	appointments appointments
}

// New returns an empty store. Its clock is the machine's, made monotonic. The
// budgets are gone when the process ends.
func New() *Store {
	s := newStore()
	s.clock.start()
	return s
}

// The commands plan and simulate have a store with the time of a simulation. Its constructor is not
// exported, because other programs cannot name the clock.
func init() {
	virtual.NewStore = func(c *virtual.Clock) store.Store {
		s := newStore()
		s.clock.virtual = c
		return s
	}
}

// newStore returns an empty store without a clock.
func newStore() *Store {
	s := new(Store)
	for i := range s.shards {
		s.shards[i].budgets = make(map[ledger.Key]*budget)
	}
	return s
}

// Book implements [store.Store].
func (s *Store) Book(_ context.Context, b *store.Booking) (g store.Grant, err error) {
	// A caller with a Turn keeps its arrival, which bookOne and bookAll do not know.
	decided := false
	if b.Turn == nil && len(b.Charges) == 1 {
		decided = s.bookOne(b, &g)
	} else if b.Turn == nil {
		decided = s.bookAll(b, &g)
	}

	// Otherwise the caller may have to wait.
	if !decided {
		g = s.bookInLine(b)
	}
	return g, nil
}

// bookAll decides for a caller that need not stand in a line for starts, and writes the answer to g. It
// returns false, and has booked nothing, if the caller must stand in one: see BookNow of a [ledger.Request].
func (s *Store) bookAll(b *store.Booking, g *store.Grant) (decided bool) {
	held := s.lock(b.Charges)
	defer s.unlock(held)
	var few [ledger.Few]*ledger.Row

	// The clock is read under the locks: otherwise a row could see a time before its last one, which counts as a clock that was set back.
	now := s.clock.now()
	rows := s.rows(few[:0], b.Charges, now)

	// BookShort decides for most callers, in a fraction of the time.
	return ledger.BookShort(now, b, rows, g) || s.bookLong(now, b, rows, g)
}

// bookOne is bookAll for a booking of one charge, which most are.
func (s *Store) bookOne(b *store.Booking, g *store.Grant) (decided bool) {
	c := &b.Charges[0]
	sh := s.shard(&c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()

	now := s.clock.now()
	if sh.isDue(now) {
		sh.sweep(now, b.Charges)
	}

	rows := [...]*ledger.Row{sh.row(c, now)}
	return ledger.BookShort(now, b, rows[:], g) || s.bookLong(now, b, rows[:], g)
}

// bookLong is bookAll for a booking that BookShort has not decided. rows are the rows of its charges. The shards are locked.
func (s *Store) bookLong(now int64, b *store.Booking, rows []*ledger.Row, g *store.Grant) (decided bool) {
	// Set the fields one by one: a literal would be copied.
	var q ledger.Request
	q.Now, q.Booking, q.Arrivals, q.Grant = now, b, &s.arrivals, g

	// Slices of constant length lie on the stack, and only the part of the stack that they need is cleared.
	switch len(rows) {
	case 1:
		q.Searches = make([]ledger.Search, 1)
	case 2:
		q.Searches = make([]ledger.Search, 2)
	default:
		q.Searches = make([]ledger.Search, len(rows))
	}

	for i, r := range rows {
		q.Open(i, r)
	}

	if !q.BookNow() {
		return false
	}

	if q.HasNews() {
		s.tell(q.News())
	}

	// The caller has left its old place in the line for slots, if it had one, and may have got a place now.
	s.unslot(b, b.Instead)
	s.standBy(&q)
	return true
}

// Cancel implements [store.Store].
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	// Nothing was booked, and the caller stands in no line.
	if !g.OK && g.Ready == nil {
		return
	}

	// A waiter's place, and a start that was booked for it meanwhile, are not in the grant's handle.
	if w, ok := g.Turn.(*waiter); ok {
		s.giveUp(w)
	}
	s.change(b, func(q *ledger.Request) {
		s.unslot(b, g.Handle)
		q.Cancel(g)
	})
}

// Release implements [store.Store].
func (s *Store) Release(b *store.Booking, g store.Grant) {
	// Only a booked start takes slots, and only when it has come.
	if !g.OK || g.Wait > 0 || !slices.ContainsFunc(b.Charges, isConcurrency) {
		return
	}
	s.change(b, (*ledger.Request).Release)
}

// isConcurrency reports whether a charge takes slots.
func isConcurrency(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// Settle implements [store.Store].
func (s *Store) Settle(_ context.Context, b *store.Booking, g store.Grant, costs []int) error {
	s.change(b, func(q *ledger.Request) { q.Settle(g, costs) })
	return nil
}

// Pause implements [store.Store].
func (s *Store) Pause(_ context.Context, c store.Charge, d time.Duration) error {
	s.change(only(c), func(q *ledger.Request) {
		s.makeRow(q)

		// now has cut off a part of a microsecond, by which the pause would end early.
		q.Pause(d + s.clock.since(q.Now))
	})
	return nil
}

// Refuse implements [store.Store].
func (s *Store) Refuse(_ context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	s.change(only(c), func(q *ledger.Request) {
		s.makeRow(q)

		// A refusal without a length closes nothing. Any other must not end early: see Pause.
		if r.Length > 0 {
			r.Length += s.clock.since(q.Now)
		}
		from, to = q.Refuse(r)
	})
	return from, to, nil
}

// Resume implements [store.Store].
func (s *Store) Resume(_ context.Context, c store.Charge) error {
	s.change(only(c), (*ledger.Request).Resume)
	return nil
}

// Reconcile implements [store.Store].
func (s *Store) Reconcile(_ context.Context, c store.Charge, of store.Quota) error {
	s.change(only(c), func(q *ledger.Request) { q.Reconcile(of) })
	return nil
}

// change calls do with a request for a booking, in one atomic step. Then it dismisses the
// waiters of closed budgets that cannot wait, and serves the lines that moved.
func (s *Store) change(b *store.Booking, do func(*ledger.Request)) {
	if n := s.changeRows(b, do); len(n.Moved) > 0 {
		// A line whose budget is closed has moved, too. Dismiss first, so that the line is served for the waiters that stay.
		s.dismiss(n.Closed)
		s.serve(n.Moved)
	}
}

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return ledger.Reader(s.read).Status(ctx, c)
}

// read implements [ledger.Reader].
func (s *Store) read(c store.Charge, read func(*ledger.Request)) {
	sh := s.shard(&c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var r *ledger.Row
	if b := sh.budgets[c.Budget.Key]; b != nil {
		r = &b.Row
	}

	// A request brings its rows to the time now, so a reader gets a copy.
	read(ledger.NewRequest(s.clock.now(), ledger.Node{}, nil, only(c), []*ledger.Row{r.Clone()}))
}

// only returns a booking of one charge.
func only(c store.Charge) *store.Booking {
	return &store.Booking{Charges: []store.Charge{c}}
}

// shard returns the shard of a budget.
func (s *Store) shard(b *store.Budget) *shard { return &s.shards[b.Key[0]] }

// makeRow makes the row of the budget that a request is about to close, if there is none: only a row can be closed, and an unlimited budget may have none. Its
// shard is locked until the request is over, or others could sweep the row away before.
func (s *Store) makeRow(q *ledger.Request) {
	key := q.Booking.Charges[0].Budget.Key
	if sh := &s.shards[key[0]]; sh.budgets[key] == nil {
		q.Open(0, &sh.budget(key, q.Now).Row)
	}
}

// audience returns the audience of a budget, a new one if there is none. The shard is locked.
func (s *Store) audience(key ledger.Key) *audience {
	b := s.shards[key[0]].budget(key, s.clock.now())
	if b.audience == nil {
		b.audience = &audience{
			watches: make(node.Watches),
			slots:   make(map[int64]chan struct{}),
			line:    make(map[int64]*waiter),
		}
	}
	return b.audience
}

// changeRows calls do with a request for a booking, in one atomic step, and tells the watches and waiters
// for slots. It returns the news of the request.
func (s *Store) changeRows(b *store.Booking, do func(*ledger.Request)) ledger.News {
	q := ledger.Request{SummonsWaiters: true, Booking: b, Arrivals: &s.arrivals, Grant: new(store.Grant), Searches: make([]ledger.Search, len(b.Charges))}
	held := s.lock(b.Charges)
	defer s.unlock(held)

	s.open(&q)
	do(&q)
	s.tell(q.News())
	return q.News()
}

// open makes a request ready. Its shards are locked.
func (s *Store) open(q *ledger.Request) {
	q.Now = s.clock.now()
	var few [ledger.Few]*ledger.Row
	for i, r := range s.rows(few[:0], q.Booking.Charges, q.Now) {
		q.Open(i, r)
	}
}

// rows appends the rows of charges, whose shards are locked. It sweeps idle rows away before it looks
// rows up, so that it returns no row that is swept away.
func (s *Store) rows(all []*ledger.Row, charges []store.Charge, now int64) []*ledger.Row {
	for i := range charges {
		if sh := s.shard(&charges[i].Budget); sh.isDue(now) {
			sh.sweep(now, charges)
		}
	}
	for i := range charges {
		all = append(all, s.shard(&charges[i].Budget).row(&charges[i], now))
	}
	return all
}

// standBy notes the waiter of a request that got a place in the line for slots, if it got one, and sets
// the Ready of its grant. Its shards are locked.
func (s *Store) standBy(q *ledger.Request) {
	if place := q.Grant.Handle.Place; q.Waits && place != 0 {
		ready := make(chan struct{})
		s.audience(q.Booking.Charges[q.Grant.HeldBy].Budget.Key).slots[place] = ready
		q.Grant.Ready = ready
	}
}

// unslot forgets the waiter for slots that had the place of a handle, because it asks again or leaves. For a
// handle without a place it does nothing. The shards of the charges are locked.
func (s *Store) unslot(b *store.Booking, h store.Handle) {
	if h.Place == 0 {
		return
	}

	// The handle does not say in which line the place is. Arrivals are unique within a store, so no line has a
	// different waiter with this arrival.
	for i := range b.Charges {
		key := b.Charges[i].Budget.Key
		if of := s.shards[key[0]].budgets[key]; of != nil && of.audience != nil {
			of.takeSlotWaiter(h.Place)
		}
	}
}

// tell wakes the waiters for slots that a request has called, and warns the watches over starts that the
// request has made useless. It leaves Moved and Closed to change. The shards of all these budgets are locked.
func (s *Store) tell(n ledger.News) {
	for _, p := range n.Called {
		s.clock.wake(s.shards[p.Key[0]].budgets[p.Key].takeSlotWaiter(p.Arrival))
	}
	for _, u := range n.Useless {
		if b := s.shards[u.Key[0]].budgets[u.Key]; b.audience != nil {
			b.watches.Warn(u)
		}
	}
}

// keptByMemory is the first byte of a kept Turn.
const keptByMemory = 'm'

// Traits implements [store.Store]: all waiters of the store are in this program.
func (s *Store) Traits() store.Traits {
	return store.Traits{Places: true, SummonsWaiters: true, InMemory: s}
}

// PauseNote implements [store.Store]. A program that pauses a budget knows why.
func (s *Store) PauseNote(store.Budget) store.PauseNote { return store.PauseNote{} }

// KeepTurn implements [store.Store]. An arrival is a time, so a place is good in a second process
// of the same program, too, if its clock is right.
func (s *Store) KeepTurn(_ *store.Booking, t store.Turn) []byte {
	kept := []byte{keptByMemory}
	if w, ok := t.(*waiter); ok {
		s.lockLines(w.shards)
		defer s.unlockLines(w.shards)
		kept = w.Keep(kept)
	}
	return kept
}

// RestoreTurn implements [store.Store].
func (s *Store) RestoreTurn(_ *store.Booking, kept []byte) (store.Turn, bool) {
	if len(kept) == 0 || kept[0] != keptByMemory {
		return nil, false
	}

	// The caller left without a place, so it comes back as a new caller.
	if len(kept) == 1 {
		return nil, true
	}

	w := new(waiter)
	return w, w.Restore(kept[1:], s.clock.now())
}

// Appoint implements [store.Store].
func (s *Store) Appoint(_ context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	// Never, rounded up to microseconds, would be too long for a Duration.
	return s.appointments.make(s.clock.now(), &c, min(wait, store.MaxAhead), again), nil
}

// appointments has the appointments of all budgets.
type appointments struct {
	mu   sync.Mutex
	all  map[ledger.Key]ledger.Appointments
	full int // from this number of budgets on, a call drops the budgets with past appointments
}

// make makes an appointment under the charge c with a caller that leaves now, and would otherwise wait for the time wait. again
// says that the caller has had an appointment before. make returns in how long the caller should come.
func (a *appointments) make(now int64, c *store.Charge, wait time.Duration, again bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()

	// Drop past appointments only when the map has doubled, so that a call costs the same on average.
	if len(a.all) >= a.full {
		maps.DeleteFunc(a.all, func(_ ledger.Key, of ledger.Appointments) bool { return max(of[0], of[1]) <= now })
		a.full = max(64, 2*len(a.all))
	}

	if a.all == nil {
		a.all = make(map[ledger.Key]ledger.Appointments)
	}

	own := a.all[c.Budget.Key]
	comesIn := own.Make(now, c, wait, again)
	a.all[c.Budget.Key] = own

	return comesIn
}
