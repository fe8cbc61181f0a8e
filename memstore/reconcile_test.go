package memstore_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestP10_Reconcile hears of something else all the time.
func TestP10_Reconcile(t *testing.T) {
	for _, limit := range []store.Limit{
		store.PerMinute(100), store.SlidingWindow(min(1<<40, math.MaxInt), time.Hour), store.FixedWindow(1_000_000, time.Minute),
		store.TokenBucket(1, time.Minute, 100_000),
	} {
		synctest.Test(t, func(t *testing.T) {
			s, c := memstore.New(), charge("budget", limit)
			for i := range 1000 {
				q := store.Quota{
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
		s, c := memstore.New(), charge("budget", store.PerMinute(100))
		begin := time.Now()
		for range 30 { // one a second, and another program another one
			ask(t, s, &store.Booking{Charges: []store.Charge{c}})
			time.Sleep(time.Second)
		}
		for _, said := range []struct{ ago, others int }{{10, 19}, {3, 26}, {9, 26}, {1, 28}, {20, 28}, {2, 28}} {
			left := 100 - 2*(30-said.ago)
			q := store.Quota{Left: left, Reset: time.Minute - time.Since(begin), Age: time.Duration(said.ago) * time.Second}
			require.NoError(t, s.Reconcile(t.Context(), c, q))
			st := status(t, s, c)
			require.Equal(t, 30+said.others, st.Used, "%d seconds ago", said.ago)
		}
	})
}

// TestP11_ReconcileAgainstTheDefinition compares more random statements with the
// definition than the contract does.
func TestP11_ReconcileAgainstTheDefinition(t *testing.T) {
	for seed := range uint64(soak.Most(25, 5)) {
		storetest.Random(t, newStore, 5*seed, 1000) // seeds of an exact comparison
	}
}

// TestP9_SuspendedMachine wakes up a machine whose monotonic clock stood still:
// calendar windows are right again.
func TestP9_SuspendedMachine(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		day := charge("day", store.CalendarWindow(1, store.Day, time.UTC))
		require.Zero(t, book(t, s, day))
		require.Equal(t, 24*time.Hour, book(t, s, day))
		s.Gain(30 * time.Hour)
		time.Sleep(time.Hour)
		require.Equal(t, 17*time.Hour, book(t, s, day), "it is 7 o'clock of the second day")
		s.Gain(54 * time.Hour)
		require.Equal(t, 17*time.Hour, book(t, s, day), "and of the third")
	})
}

// TestP9_SmallGains are not followed: they are differences between two readings.
func TestP9_SmallGains(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		one := charge("one", store.PerHour(1))
		require.Zero(t, book(t, s, one))
		s.Gain(100 * time.Millisecond)
		require.Equal(t, time.Hour+time.Microsecond, wait(t, s, one))
		s.Gain(100*time.Millisecond + time.Microsecond)
		require.Equal(t, time.Hour-100*time.Millisecond, wait(t, s, one))
	})
}

// TestP9_NeverBack lets the wall clock lose what it gained, and more.
func TestP9_NeverBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		one := charge("one", store.PerHour(1))
		require.Zero(t, book(t, s, one))
		s.Gain(time.Minute)
		for _, gain := range []time.Duration{0, -time.Minute, -time.Hour} {
			s.Gain(gain)
			require.Equal(t, 59*time.Minute+time.Microsecond, wait(t, s, one))
		}
		time.Sleep(time.Minute) // the two clocks are compared again
		require.Equal(t, 58*time.Minute+time.Microsecond, wait(t, s, one))
	})
}

// wait returns how long a request would wait.
func wait(t *testing.T, s *memstore.Store, c store.Charge) time.Duration {
	t.Helper()
	st := status(t, s, c)
	return st.Wait
}
