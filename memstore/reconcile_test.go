package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestP10_Reconcile hears of something else all the time.
func TestP10_Reconcile(t *testing.T) {
	for _, limit := range []throttle.Limit{
		throttle.PerMinute(100), throttle.SlidingWindow(1<<40, time.Hour), throttle.FixedWindow(1_000_000, time.Minute),
		throttle.TokenBucket(1, time.Minute, 100_000),
	} {
		synctest.Test(t, func(t *testing.T) {
			s, c := memstore.New(), charge("budget", limit)
			for i := range 1000 {
				q := throttle.Quota{
					Left:  limit.Capacity() - i*limit.Capacity()/1000,
					Reset: time.Duration(i%59)*time.Second + time.Duration(i)*time.Microsecond,
				}
				require.NoError(t, s.Reconcile(t.Context(), c, q))
				size, room := s.Entries(c.Budget)
				require.LessOrEqual(t, size, memstore.MaxEntries)
				require.LessOrEqual(t, room, 2*memstore.MaxEntries)
				time.Sleep(37 * time.Millisecond)
			}
		})
	}
}

// TestP11_ReconcileAgainstTheDefinition compares more random statements with the
// definition than the contract does.
func TestP11_ReconcileAgainstTheDefinition(t *testing.T) {
	for seed := range uint64(soak.Most(25, 5)) {
		storetest.Random(t, newStore, 5*seed, 1000) // seeds of an exact comparison
	}
}
