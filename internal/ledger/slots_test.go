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
