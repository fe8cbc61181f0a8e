// Package twostores has stores of one table tested together: as one store whose callers are spread over
// several, and beside a reference store that must give the same answers.
package twostores

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// A Pair is several stores of one table that take turns to be called by new callers. A
// caller stays with its store.
type Pair struct {
	store.Store // the last one: it answers questions that are not about a caller
	stores      []store.Store

	mu         sync.Mutex
	newCallers int
}

// New returns a pair of stores.
func New(stores ...store.Store) *Pair {
	return &Pair{Store: stores[len(stores)-1], stores: stores}
}

// Slack is for the contract of a pair: a budget of one node has a row in each store, so tests of such budgets
// are not run.
var Slack = storetest.Slack{Not: []string{"P11_ResumeOfANodeBudget", "P11_WatchOfANodeBudget", "P11_UnlimitedOfANode"}}

// A turn belongs to one of the stores.
type turn struct {
	store int
	of    store.Turn
}

// Book implements [store.Store]. Its handles and turns say which store gave them.
func (p *Pair) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	// The store gets a copy of the booking, with the store's own handle and turn.
	own := *b
	i := p.next(&own)
	g, err := p.stores[i].Book(ctx, &own)

	// The pair's handle wraps the store's, so that whoever gives it back finds the store.
	if h := g.Handle; h != (store.Handle{}) {
		g.Handle = store.Handle{Start: h.Start, Place: h.Place, Stamp: int64(i), Node: &h}
	}
	if g.Turn != nil {
		g.Turn = turn{i, g.Turn}
	}
	return g, err
}

// next returns the index of the store that a booking goes to, and puts the store's own handle and turn into the booking.
func (p *Pair) next(b *store.Booking) int {
	i, instead := owner(b.Instead)
	t, hasTurn := b.Turn.(turn)

	// A caller with a turn, a start or a place stays with its store. A new caller goes to the next store.
	switch {
	case hasTurn:
		b.Turn, i = t.of, t.store
	case b.Instead == (store.Handle{}):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.newCallers++
		i = p.newCallers % len(p.stores)
	}

	b.Instead = instead
	return i
}

// owner returns the index of the store that gave a handle, and the store's own handle.
func owner(h store.Handle) (int, store.Handle) {
	if h.Node == nil {
		return 0, h
	}
	return int(h.Stamp), *h.Node
}

// of returns the store of a grant, and the store's own grant.
func (p *Pair) of(g store.Grant) (store.Store, store.Grant) {
	i, of := owner(g.Handle)
	g.Handle = of
	if t, ok := g.Turn.(turn); ok {
		i, g.Turn = t.store, t.of
	}
	return p.stores[i], g
}

// Cancel implements [store.Store].
func (p *Pair) Cancel(b *store.Booking, g store.Grant) {
	s, g := p.of(g)
	s.Cancel(b, g)
}

// Release implements [store.Store].
func (p *Pair) Release(b *store.Booking, g store.Grant) {
	s, g := p.of(g)
	s.Release(b, g)
}

// Settle implements [store.Store].
func (p *Pair) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	s, g := p.of(g)
	return s.Settle(ctx, b, g, costs)
}

// Watch implements [store.Store].
func (p *Pair) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	s, g := p.of(g)
	return s.Watch(b, g, news)
}

// The methods that change a budget go to different stores, so that each store must tell its twin. The news takes a moment
// to get there, and the contract expects it at once, so the methods wait until it has arrived.

// Pause implements [store.Store].
func (p *Pair) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	defer synctest.Wait()
	return p.stores[0].Pause(ctx, c, d)
}

// Refuse implements [store.Store].
func (p *Pair) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	defer synctest.Wait()
	_, r.Start = p.of(r.Start)
	return p.stores[1].Refuse(ctx, c, r)
}

// Resume implements [store.Store].
func (p *Pair) Resume(ctx context.Context, c store.Charge) error {
	defer synctest.Wait()
	return p.stores[1].Resume(ctx, c)
}

// Reconcile implements [store.Store].
func (p *Pair) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	defer synctest.Wait()
	return p.stores[0].Reconcile(ctx, c, q)
}

// Differ has random callers ask two stores the same, in a bubble of synctest. All answers must be the
// same, to the microsecond, except for the handles of starts.
func Differ(t *testing.T, seed uint64, moves int, one, other store.Store) {
	d := &differential{T: t, Rand: rand.New(rand.NewPCG(seed, 30)), seed: seed, stores: [2]store.Store{one, other}}
	for range moves {
		d.move()
	}
}

// A differential asks two stores the same.
type differential struct {
	*testing.T
	*rand.Rand
	seed   uint64
	stores [2]store.Store
	held   []both
}

// both has a caller's grants of both stores.
type both struct {
	booking store.Booking
	grants  [2]store.Grant
}

var limits = []store.Limit{
	store.PerSecond(5), store.PerMinute(40), store.TokenBucket(3, time.Second, 7), store.LeakyBucket(10, time.Second),
	store.FixedWindow(9, 5*time.Second), store.Unlimited(), store.PerSecond(1000),
}

// charge returns a random charge of one of a few budgets.
func (d *differential) charge() store.Charge {
	i := d.IntN(len(limits))
	c := store.Charge{Budget: store.Budget{Policy: "p", Key: [16]byte{byte(i + 1)}}, Limit: limits[i], Cost: 1 + d.IntN(2)}
	c.Jitter = time.Duration(d.IntN(2)) * 35 * time.Millisecond
	return c
}

// move makes a random move on both stores: a booking in nearly half of all moves, or time that passes, a change of a budget,
// a start that is given back, or a question. It compares the stores' answers to bookings and questions, and fails if a store fails.
func (d *differential) move() {
	switch d.IntN(12) {
	// The stores share the virtual clock, so time passes for both alike.
	case 0:
		time.Sleep(time.Duration(d.IntN(2000)) * time.Millisecond)
	case 1:
		c, length := d.charge(), time.Duration(d.IntN(3000))*time.Millisecond
		d.each(func(s store.Store) { d.must(s.Pause(d.Context(), c, length)) })
	case 2:
		c := d.charge()
		d.each(func(s store.Store) { d.must(s.Resume(d.Context(), c)) })
	case 3:
		c, q := d.charge(), store.Quota{Left: d.IntN(5), Reset: time.Duration(d.IntN(5)) * time.Second}
		d.each(func(s store.Store) { d.must(s.Reconcile(d.Context(), c, q)) })

	// Give back a start of each store, of one caller.
	case 4, 5:
		if len(d.held) > 0 {
			i := d.IntN(len(d.held))
			for k, s := range d.stores {
				s.Cancel(&d.held[i].booking, d.held[i].grants[k])
			}
			d.held = append(d.held[:i], d.held[i+1:]...)
		}

	case 6:
		c := d.charge()
		var st [2]store.Status
		for k, s := range d.stores {
			var err error
			st[k], err = s.Status(d.Context(), c)
			d.must(err)
		}

		d.same(st[0], st[1], c.Limit)

	default:
		d.book()
	}
}

func (d *differential) each(do func(store.Store)) {
	for _, s := range d.stores {
		do(s)
	}
}

// book makes a random booking on both stores, and fails unless the grants are the same, except for their handles.
func (d *differential) book() {
	var b both

	// Charges of several budgets, perhaps of one budget twice: the stores must agree on that, too.
	for range 1 + d.IntN(3) {
		b.booking.Charges = append(b.booking.Charges, d.charge())
	}

	b.booking.MaxWait = time.Duration(d.IntN(4)) * time.Second
	for k, s := range d.stores {
		g, err := s.Book(d.Context(), &b.booking)
		d.must(err)
		b.grants[k] = g
	}

	x, y := b.grants[0], b.grants[1]
	x.Handle, y.Handle = store.Handle{}, store.Handle{} // the pair's says which store it is of
	d.same(x, y, b.booking)
	if x.OK {
		d.held = append(d.held, b)
	}
}

// must fails the test if there is an error.
func (d *differential) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatalf("seed %d: %v", d.seed, err)
	}
}

// same fails the test unless two answers to a question are equal.
func (d *differential) same(first, second, of any) {
	d.Helper()
	if !reflect.DeepEqual(first, second) {
		d.Fatalf("seed %d: %v\nis answered by %+v\n        and by %+v", d.seed, of, first, second)
	}
}
