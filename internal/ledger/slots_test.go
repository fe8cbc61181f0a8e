package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestRenewWithoutARow: a node that renews its leases for a booking with an unlimited budget without a row does
// not write to the row that stands for the missing rows of all stores.
func TestRenewWithoutARow(t *testing.T) {
	b := &store.Booking{Charges: []store.Charge{{Limit: store.Unlimited(), Cost: 1}}}
	NewRequest(1, Node{ID: 7, Lease: 1000}, nil, b, []*Row{nil}).Renew()
	require.Zero(t, untouched)
}

// TestP5_APlaceInOneLine: a waiter that leaves is taken out of the line in which it stands, and off no other row's count of waiters without a place.
func TestP5_APlaceInOneLine(t *testing.T) {
	charges := []store.Charge{{Limit: store.Concurrency(1), Cost: 1}, {Limit: store.Concurrency(1), Cost: 1}}
	charges[0].Budget.Key, charges[1].Budget.Key = Key{1}, Key{2}
	for _, replaces := range []bool{false, true} {
		rows := []*Row{new(Row), new(Row)}
		by, arrivals := Node{ID: 7, Lease: 1000}, new(Arrivals)
		one := &store.Booking{Charges: charges[:1], MaxWait: store.AnyWait, Horizon: 1000}
		require.True(t, NewRequest(1, by, arrivals, one, rows[:1]).BookNow())

		both := &store.Booking{Charges: charges, MaxWait: store.AnyWait, Horizon: 1000}
		q := NewRequest(2, by, arrivals, both, rows)
		q.BookNow()
		require.False(t, q.Grant.OK)
		require.NotZero(t, q.Grant.Handle.Place)

		rows[1].slots.beyond = 5
		if replaces {
			both.Instead = q.Grant.Handle
			NewRequest(3, by, arrivals, both, rows).giveBackInstead()
		} else {
			NewRequest(3, by, arrivals, both, rows).Cancel(*q.Grant)
		}
		require.EqualValues(t, 5, rows[1].slots.beyond)
		require.Empty(t, rows[0].slots.line)
	}
}
