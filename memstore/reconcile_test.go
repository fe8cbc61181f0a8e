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

// TestP11_ReconcileWhatWasSoThen: what the fleet has started since an upstream said
// what is left is spent of that, and neither is counted twice, whatever the order in
// which old statements come.
func TestP11_ReconcileWhatWasSoThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := memstore.New(), charge("budget", throttle.PerMinute(100))
		begin := time.Now()
		for range 30 { // one a second, and another program another one
			_, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{c}})
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		for _, said := range []struct{ ago, others int }{{10, 19}, {3, 26}, {9, 26}, {1, 28}, {20, 28}, {2, 28}} {
			left := 100 - 2*(30-said.ago)
			q := throttle.Quota{Left: left, Reset: time.Minute - time.Since(begin), Age: time.Duration(said.ago) * time.Second}
			require.NoError(t, s.Reconcile(t.Context(), c, q))
			st, err := s.Status(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, 30+said.others, st.Used, "%d seconds ago", said.ago)
		}
	})
}

// TestP11_ReconcileAgainstTheDefinition compares more random statements with the
// definition than the contract does.
func TestP11_ReconcileAgainstTheDefinition(t *testing.T) {
	soak.Arithmetic(t)
	for seed := range uint64(soak.Most(25, 5)) {
		storetest.Random(t, newStore, 5*seed, 1000) // seeds of an exact comparison
	}
}
