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
