package ledger_test

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestContract: a store that keeps every row as bytes between calls, and has lost steps and
// lost answers, passes the whole contract.
func TestContract(t *testing.T) {
	soak.WithoutRace(t)
	storetest.Run(t, func(t *testing.T) store.Store { return newTable(t, 1).stores[0] })
}

// TestContractOfTwoStores: so do two of them on one table, which take turns to be called.
func TestContractOfTwoStores(t *testing.T) {
	soak.WithoutRace(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		stores := newTable(t, 2).stores
		return twostores.New(stores[0], stores[1])
	})
}

// A byteStore is a store of one node on a table: what it keeps itself, its callers lose
// with it.
type byteStore struct {
	store.Minimal
	ledger.Reader
	table *table
	node  ledger.Node

	mu      sync.Mutex
	call    int64 // how many calls it made
	slots   map[ledger.Place]*slotWaiter
	line    map[ledger.Place]*waiter
	timers  map[ledger.Key]*time.Timer
	watches map[*watch]struct{}
}

type waiter struct {
	ledger.Waiter
	booking store.Booking
	ends    int64 // when its patience is over
	ready   chan struct{}
	grant   store.Grant // what was booked for it, if that is OK
}

// A slotWaiter waits for the slots of a charge.
type slotWaiter struct {
	booking store.Booking
	charge  int
	ready   chan struct{}
}

// A try of a call: its requests, and what became of the waiter.
type try struct {
	waiter   ledger.Waiter
	requests []*ledger.Request
}

// last is the request whose answer counts.
func (t *try) last() *ledger.Request { return t.requests[len(t.requests)-1] }

// do decides on the rows of bookings in one step, one request for each, until an answer
// comes, and collects the news. The store is locked.
func (s *byteStore) do(news *[]ledger.News, w *waiter, decide func(w *ledger.Waiter, q ...*ledger.Request), bookings ...*store.Booking) *ledger.Request {
	s.call++
	var tries []*try
	for {
		one := new(try)
		if w != nil {
			one.waiter = w.Waiter.Clone()
		}
		tries = append(tries, one)
		tried, err := s.table.step(s.node.ID, s.call, int64(len(tries)), keys(bookings), func(now int64, row func(ledger.Key) *ledger.Row) {
			for _, b := range bookings {
				var rows []*ledger.Row
				for _, c := range b.Charges {
					rows = append(rows, row(c.Budget.Key))
				}
				one.requests = append(one.requests, ledger.NewRequest(now, s.node, &s.table.arrivals, b, rows))
			}
			decide(&one.waiter, one.requests...)
		})
		if err != nil {
			continue
		}
		one = tries[tried-1]
		for _, q := range one.requests {
			*news = append(*news, q.News())
		}
		if w != nil {
			s.moves(w, one.waiter)
		}
		return one.last()
	}
}

// keys are those of the budgets of bookings.
func keys(bookings []*store.Booking) (all []ledger.Key) {
	for _, b := range bookings {
		for _, c := range b.Charges {
			all = append(all, c.Budget.Key)
		}
	}
	return all
}

// moves notes where a waiter stands now.
func (s *byteStore) moves(w *waiter, now ledger.Waiter) {
	if key, at, waits := w.Line(); waits {
		delete(s.line, ledger.Place{Key: key, Arrival: at, Node: s.node.ID})
	}
	w.Waiter = now
	if key, at, waits := w.Line(); waits {
		s.line[ledger.Place{Key: key, Arrival: at, Node: s.node.ID}] = w
	}
}

// Book implements [store.Store].
func (s *byteStore) Book(_ context.Context, b *store.Booking) (g store.Grant, err error) {
	s.locked(func(news *[]ledger.News) { g = s.book(news, b) })
	return g, nil
}

func (s *byteStore) book(news *[]ledger.News, b *store.Booking) store.Grant {
	w, _ := b.Turn.(*waiter)
	if w == nil {
		w = new(waiter)
	}
	now := time.Now().UnixMicro()
	if g := w.grant; g.OK && now-g.Handle.Start <= 5_000 && slices.Equal(w.booking.Charges, b.Charges) {
		w.grant = store.Grant{}
		g.Wait = time.Duration(max(0, g.Handle.Start-now)) * time.Microsecond
		g.Age = time.Duration(max(0, now-g.Handle.Start)) * time.Microsecond
		return g
	}
	s.forget(b, b.Instead)
	old, had := w.booking, w.grant
	w.booking = *b
	w.booking.Charges = slices.Clone(b.Charges)
	w.grant = store.Grant{}
	if w.ends = math.MaxInt64; b.MaxWait >= 0 {
		w.ends = now + ledger.Micros(b.MaxWait)
	}
	stood := false
	q := s.do(news, w, func(w *ledger.Waiter, q ...*ledger.Request) {
		w.Come(b)
		q[0].Leave(w)
		if had.OK {
			q[0].Cancel(store.Grant{Handle: had.Handle})
		}
		stood = q[1].Book(w)
	}, &old, &w.booking)
	g := s.answer(w, q)
	if !stood {
		g.Turn = nil
	}
	if q.Waits && g.Handle.Place == 0 {
		*news = append(*news, ledger.News{Moved: []ledger.Key{b.Charges[g.HeldBy].Budget.Key}})
	}
	return g
}

// forget notes that a waiter for slots asks again, or leaves.
func (s *byteStore) forget(b *store.Booking, h store.Handle) {
	for _, c := range b.Charges {
		delete(s.slots, ledger.Place{Key: c.Budget.Key, Arrival: h.Place, Node: s.node.ID})
	}
}

// answer completes the answer to a booking.
func (s *byteStore) answer(w *waiter, q *ledger.Request) store.Grant {
	g := *q.Grant
	if q.Waits {
		ready := make(chan struct{})
		if g.Ready = ready; g.Handle.Place != 0 {
			at := ledger.Place{Key: q.Booking.Charges[g.HeldBy].Budget.Key, Arrival: g.Handle.Place, Node: s.node.ID}
			s.slots[at] = &slotWaiter{w.booking, g.HeldBy, ready}
		} else {
			w.ready = ready
		}
	}
	g.Turn, w.booking.Instead = w, store.Handle{}
	return g
}

// change does something for all charges of a booking.
func (s *byteStore) change(b *store.Booking, do func(*ledger.Request)) {
	s.locked(func(news *[]ledger.News) {
		s.do(news, nil, func(_ *ledger.Waiter, q ...*ledger.Request) { do(q[0]) }, b)
	})
}

// Cancel implements [store.Store].
func (s *byteStore) Cancel(b *store.Booking, g store.Grant) {
	if !g.OK && g.Ready == nil {
		return
	}
	s.locked(func(news *[]ledger.News) {
		s.forget(b, g.Handle)
		w, _ := g.Turn.(*waiter)
		if w == nil {
			w = new(waiter)
		}
		booked := w.grant
		w.grant = store.Grant{}
		s.do(news, w, func(w *ledger.Waiter, q ...*ledger.Request) {
			q[0].GiveUp(w)
			if booked.OK {
				q[0].Cancel(store.Grant{Handle: booked.Handle})
			}
			q[1].Cancel(g)
		}, &w.booking, b)
	})
}

// Release implements [store.Store].
func (s *byteStore) Release(b *store.Booking, g store.Grant) {
	if g.OK && g.Wait == 0 {
		s.change(b, (*ledger.Request).Release)
	}
}

// Settle implements [store.Store].
func (s *byteStore) Settle(_ context.Context, b *store.Booking, g store.Grant, costs []int) error {
	s.change(b, func(q *ledger.Request) { q.Settle(g, costs) })
	return nil
}

// Pause implements [store.Store].
func (s *byteStore) Pause(_ context.Context, c store.Charge, d time.Duration) error {
	s.change(only(c), func(q *ledger.Request) { q.Pause(d) })
	return nil
}

// Refuse implements [store.Store].
func (s *byteStore) Refuse(_ context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	s.change(only(c), func(q *ledger.Request) { from, to = q.Refuse(r) })
	return from, to, nil
}

// Resume implements [store.Store].
func (s *byteStore) Resume(_ context.Context, c store.Charge) error {
	s.change(only(c), (*ledger.Request).Resume)
	return nil
}

// Reconcile implements [store.Store].
func (s *byteStore) Reconcile(_ context.Context, c store.Charge, of store.Quota) error {
	s.change(only(c), func(q *ledger.Request) { q.Reconcile(of) })
	return nil
}

// read implements [ledger.Reader].
func (s *byteStore) read(c store.Charge, read func(*ledger.Request)) {
	s.table.read(func(now int64, row func(ledger.Key) *ledger.Row) {
		read(ledger.NewRequest(now, s.node, nil, only(c), []*ledger.Row{row(c.Budget.Key)}))
	})
}

func only(c store.Charge) *store.Booking {
	return &store.Booking{Charges: []store.Charge{c}}
}

// locked does something with what the store keeps itself, and then tells all stores the
// news.
func (s *byteStore) locked(do func(*[]ledger.News)) {
	var news []ledger.News
	s.mu.Lock()
	do(&news)
	s.mu.Unlock()
	for _, n := range news {
		for _, o := range s.table.stores {
			o.hear(n)
		}
	}
}

// hear learns of what a request has changed.
func (s *byteStore) hear(n ledger.News) {
	s.locked(func(news *[]ledger.News) {
		for _, p := range n.Called {
			if w := s.slots[p]; w != nil {
				close(w.ready)
				delete(s.slots, p)
			}
		}
		for _, u := range n.Useless {
			s.warn(u)
		}
		for _, c := range n.Closed {
			s.dismiss(news, c)
		}
		for _, key := range n.Moved {
			s.serve(news, key)
		}
	})
}

// dismiss has callers book again that cannot wait until a budget opens.
func (s *byteStore) dismiss(news *[]ledger.News, c ledger.Closed) {
	for p, w := range s.line {
		if p.Key == c.Key && w.ends < c.Until {
			s.do(news, w, func(w *ledger.Waiter, q ...*ledger.Request) { q[0].Dismiss(w) }, &w.booking)
			close(w.ready)
		}
	}
}

// serve books for the head of a line, if it waits here and its start is within its
// horizon; else it looks again when that is so.
func (s *byteStore) serve(news *[]ledger.News, key ledger.Key) {
	head, lost := s.table.line(key)
	s.relist(news, key, lost)
	w := s.line[head]
	if w == nil {
		return
	}
	later, called := time.Duration(0), false
	q := s.do(news, w, func(w *ledger.Waiter, q ...*ledger.Request) {
		if later = q[0].Due(w, key); later == 0 {
			called = q[1].Serve(w, key)
		}
	}, &w.booking, &w.booking)
	if later > 0 {
		s.lookAgain(key, later)
		return
	}
	s.served(news, w, q, called)
	*news = append(*news, ledger.News{Moved: []ledger.Key{key}})
}

// relist has waiters of a line stand in it again that are only counted there, the first
// ones first.
func (s *byteStore) relist(news *[]ledger.News, key ledger.Key, lost func(ledger.Place) bool) {
	if lost == nil {
		return
	}
	var places []ledger.Place
	for p := range s.line {
		places = append(places, p)
	}
	for p := range s.slots {
		places = append(places, p)
	}
	places = slices.DeleteFunc(places, func(p ledger.Place) bool { return p.Key != key || !lost(p) })
	slices.SortFunc(places, func(a, b ledger.Place) int { return cmp.Compare(a.Arrival, b.Arrival) })
	for _, p := range places[:min(len(places), 32)] {
		if w := s.line[p]; w != nil {
			s.served(news, w, s.do(news, w, func(w *ledger.Waiter, q ...*ledger.Request) { q[0].Again(w) }, &w.booking), false)
		} else {
			w := s.slots[p]
			s.do(news, nil, func(_ *ledger.Waiter, q ...*ledger.Request) { q[0].Relist(w.charge, p.Arrival) }, &w.booking)
		}
	}
}

// served tells the caller of a waiter what was booked for it, if it does not wait.
func (s *byteStore) served(news *[]ledger.News, w *waiter, q *ledger.Request, called bool) {
	ready := w.ready
	g := s.answer(w, q)
	if next, _, waits := w.Line(); waits {
		w.ready = ready // it waits elsewhere, and its caller does not know
		*news = append(*news, ledger.News{Moved: []ledger.Key{next}})
	} else {
		if g.OK && !called {
			w.grant = g
		}
		close(ready)
	}
}

// lookAgain serves a line later.
func (s *byteStore) lookAgain(key ledger.Key, later time.Duration) {
	if t := s.timers[key]; t != nil {
		t.Stop()
	}
	s.timers[key] = time.AfterFunc(later, func() { s.locked(func(news *[]ledger.News) { s.serve(news, key) }) })
}

// A watch is kept over one start.
type watch struct {
	store   *byteStore
	charges []store.Charge
	grant   store.Grant
	news    chan<- struct{}
	lifted  bool
}

// Watch implements [store.Store].
func (s *byteStore) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	w := &watch{store: s, charges: b.Charges, grant: g, news: news}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = struct{}{}
	if !w.usable() {
		w.tell()
	}
	return w
}

// warn tells the watchers of starts that became useless, the earliest first.
func (s *byteStore) warn(u ledger.Useless) {
	var all []*watch
	for w := range s.watches {
		if u.From <= w.grant.Handle.Start && w.grant.Handle.Start < u.Before && slices.ContainsFunc(w.charges, func(c store.Charge) bool {
			return c.Budget.Key == u.Key && !c.Shadow
		}) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *watch) int { return cmp.Compare(a.grant.Handle.Start, b.grant.Handle.Start) })
	for _, w := range all {
		w.lifted = w.lifted || u.Lifted
		w.tell()
	}
}

func (w *watch) tell() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *watch) usable() (ok bool) {
	w.store.table.read(func(_ int64, row func(ledger.Key) *ledger.Row) {
		ok = !w.lifted && ledger.Usable(w.charges, w.grant, func(i int) *ledger.Row { return row(w.charges[i].Budget.Key) })
	})
	return ok
}

// Confirm implements [store.Watch].
func (w *watch) Confirm(context.Context, time.Duration) (bool, error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.usable(), nil
}

// Stop implements [store.Watch].
func (w *watch) Stop() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	delete(w.store.watches, w)
}
