package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// TestAnyPriorityGathers: priorities above and below all others count as the highest and the lowest, for newcomers
// to a long line as in the line itself.
func TestAnyPriorityGathers(t *testing.T) {
	key := ledger.Key{1}
	b := &store.Booking{
		Charges: []store.Charge{{Budget: store.Budget{Key: key}, Limit: store.PerSecond(100), Cost: 1}},
		Horizon: time.Millisecond, MaxWait: store.AnyWait,
	}
	k := &worker{gathering: gathering{lines: make(map[ledger.Key]*longLine)}}
	k.shares.Store(true)
	for _, p := range []store.Priority{store.PriorityLow - 9, store.PriorityHigh + 9} {
		b.Priority = p
		k.noteWait(b, &store.Grant{Ready: make(chan struct{}), Wait: time.Second})
		require.Positive(t, k.gathering.patience(b, key, time.Now()))
	}
}
