package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// saved returns the row that is read after this one was saved.
func saved(t *testing.T, r *ledger.Row) *ledger.Row {
	t.Helper()
	b, err := r.MarshalBinary()
	require.NoError(t, err)
	var again ledger.Row
	require.NoError(t, again.UnmarshalBinary(b))
	return &again
}

// TestP4_RelistedHasALease: a row that lists no place of a node has no lease of it either. When a waiter of the node gets its place
// again, the row knows whose it is: else nobody could call the waiter.
func TestP4_RelistedHasALease(t *testing.T) {
	var arrivals ledger.Arrivals
	c, row := charge(store.Concurrency(1)), new(ledger.Row)
	others, own := ledger.Node{ID: 7, Lease: 10 * second}, ledger.Node{ID: 8, Lease: 10 * second}
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: -1}
	request := func(by ledger.Node) *ledger.Request {
		return ledger.NewRequest(begin, by, &arrivals, b, []*ledger.Row{row})
	}
	book := func(by ledger.Node) store.Grant {
		var w ledger.Waiter
		w.Come(b)
		q := request(by)
		q.Book(&w)
		return *q.Grant
	}
	require.True(t, book(others).OK)
	var all []store.Grant
	for range 1000 {
		all = append(all, book(others))
	}
	last := book(own).Handle.Place
	place := ledger.Place{Key: c.Budget.Key, Arrival: last, Node: own.ID}
	row = saved(t, row)
	require.False(t, row.Lists(place), "premise: it is only counted")
	for _, g := range all {
		request(others).Cancel(g)
	}
	request(own).Relist(0, last)
	row = saved(t, row)
	require.True(t, row.Lists(place))
}

// TestP4_RelistTakesNoSlots: a waiter for a start gets its place in that line again and no place in the line for slots, of which its
// caller would not know.
func TestP4_RelistTakesNoSlots(t *testing.T) {
	var arrivals ledger.Arrivals
	by := ledger.Node{ID: 7, Lease: 10 * second}
	rate, slots := charge(store.PerSecond(1)), charge(store.Concurrency(1))
	slots.Budget.Key = ledger.Key{2}
	rows := []*ledger.Row{new(ledger.Row), new(ledger.Row)}
	b := &store.Booking{Charges: []store.Charge{rate, slots}, MaxWait: -1, Horizon: time.Millisecond}
	at := func(now int64) *ledger.Request { return ledger.NewRequest(now, by, &arrivals, b, rows) }
	book := func() (w ledger.Waiter, q *ledger.Request) {
		w.Come(b)
		q = at(begin)
		q.Book(&w)
		return w, q
	}
	_, first := book()
	require.True(t, first.Grant.OK, "premise: it takes the slot")
	w, q := book()
	require.True(t, q.Waits)
	key, arrival, waits := w.Line()
	require.True(t, waits)
	require.Equal(t, rate.Budget.Key, key, "premise: it waits for the rate")

	again := at(begin + 2*second)
	again.Again(&w)
	require.Zero(t, again.Grant.Handle)
	key, same, waits := w.Line()
	require.True(t, waits)
	require.Equal(t, rate.Budget.Key, key)
	require.Equal(t, arrival, same)
	require.False(t, rows[1].Lists(ledger.Place{Key: slots.Budget.Key, Arrival: arrival, Node: by.ID}))
}

// TestP5_NewcomersBehindCountedStarts: a row that only counts waiters for starts gives no newcomer a place before them. When few waiters with places are left, a node
// recalls a waiter of its own. A second node recalls a waiter that came before that, and it is served first.
func TestP5_NewcomersBehindCountedStarts(t *testing.T) {
	var arrivals ledger.Arrivals
	c, row := charge(store.LeakyBucket(1, time.Second)), new(ledger.Row)
	many, early, late := ledger.Node{ID: 7, Lease: 10 * second}, ledger.Node{ID: 8, Lease: 10 * second}, ledger.Node{ID: 9, Lease: 10 * second}
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Horizon: time.Millisecond}
	request := func(by ledger.Node) *ledger.Request {
		return ledger.NewRequest(begin, by, &arrivals, b, []*ledger.Row{row})
	}
	wait := func(by ledger.Node) *ledger.Waiter {
		w := new(ledger.Waiter)
		w.Come(b)
		request(by).Book(w)
		row = saved(t, row)
		return w
	}
	lists := func(w *ledger.Waiter, by ledger.Node) bool {
		key, at, waits := w.Line()
		require.True(t, waits)
		return row.Lists(ledger.Place{Key: key, Arrival: at, Node: by.ID})
	}

	wait(many) // starts
	var all []*ledger.Waiter
	for range 600 {
		all = append(all, wait(many))
	}
	first := wait(early)
	second := wait(late)
	require.False(t, lists(first, early) || lists(second, late), "premise: they are only counted")

	// Some of the waiters with places leave, and a newcomer has none of their places.
	leave := func(n int) {
		for _, w := range all[:n] {
			request(many).GiveUp(w)
		}
		all = all[n:]
		row = saved(t, row)
	}
	leave(100)
	require.False(t, row.Wants())
	require.False(t, row.Recalls(first, 32))
	newcomer := wait(late)
	require.False(t, lists(newcomer, late))

	// Few are left, and waiters of the node with the latest ones are recalled first.
	leave(300)
	require.True(t, row.Wants())
	require.True(t, row.Recalls(second, 32))
	request(late).Again(second)
	row = saved(t, row)
	require.True(t, lists(second, late))

	require.True(t, row.Recalls(first, 0), "it came before a waiter that has a place")
	request(early).Again(first)
	row = saved(t, row)

	// Without the waiters before them the two are served in the order in which they came.
	for _, w := range all {
		request(many).GiveUp(w)
	}
	at, ok := row.Head(c.Budget.Key)
	require.True(t, ok)
	require.Equal(t, early.ID, at.Node)
}

// TestP3_CountedWaitersOfTheDead: a node has died whose waiters are only counted. While waiters of a living node come and leave, all of them with places, the dead are forgotten.
func TestP3_CountedWaitersOfTheDead(t *testing.T) {
	var arrivals ledger.Arrivals
	c, row, now := charge(store.LeakyBucket(1, time.Second)), new(ledger.Row), begin
	dead, living := ledger.Node{ID: 7, Lease: second}, ledger.Node{ID: 8, Lease: 10 * second}
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Horizon: time.Millisecond}
	request := func(by ledger.Node) *ledger.Request {
		return ledger.NewRequest(now, by, &arrivals, b, []*ledger.Row{row})
	}
	wait := func(by ledger.Node) *ledger.Waiter {
		w := new(ledger.Waiter)
		w.Come(b)
		request(by).Book(w)
		return w
	}

	wait(dead) // starts
	for range 1000 {
		wait(dead)
	}
	row = saved(t, row)
	require.False(t, row.ListsAll(), "premise")

	for range 10 {
		now += second / 2
		w := wait(living)
		if row.Recalls(w, 32) {
			request(living).Again(w)
		}
		row = saved(t, row)
		request(living).GiveUp(w)
		row = saved(t, row)
	}
	require.True(t, row.ListsAll())
	_, waits := row.Head(c.Budget.Key)
	require.False(t, waits)
}
