package memstore_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/sharetest"
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
	for seed := range uint64(soak.Seeds(25, 5)) {
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

// TestP5_Shares: the shares of callers get their parts.
func TestP5_Shares(t *testing.T) {
	soak.WithoutRace(t)
	storetest.Shares(t, storetest.Slack{}, newStore, nil)
}

// TestP5_RandomShares is TestP5_Shares for random scenes.
func TestP5_RandomShares(t *testing.T) {
	soak.WithoutRace(t)
	for seed := range uint64(soak.Seeds(60, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { storetest.RandomShares(t, storetest.Slack{}, newStore, seed) })
	}
}

// TestP5_ManyShares: no number of shares makes one of them starve.
func TestP5_ManyShares(t *testing.T) {
	soak.WithoutRace(t)
	sharetest.ManyShares(t, newStore, 0.1, 300, 10, 300, false, 40)
	sharetest.ManyShares(t, newStore, 0.1, 300, 10, 300, true, 40)
	sharetest.ManyShares(t, newStore, 0.1, 1000, 3, 1000, false, 40)
}

// TestP5_OneByOne: a share with one caller at a time, which comes again when it has started, has its part beside a heap, whatever its weight is. A
// limit above 128 lets starts go together in each 128th of its window, and one caller has one start of those.
func TestP5_OneByOne(t *testing.T) {
	soak.WithoutRace(t)
	const seconds, parts = 40, 128
	for _, rate := range []int{20, 40, 100, 1000} {
		for _, weight := range []int{1, 10} {
			for _, heap := range []int{10, 1000} {
				t.Run(fmt.Sprintf("%d a second, weight %d, heap of %d", rate, weight, heap), func(t *testing.T) {
					single, rest := sharetest.OneByOne(t, newStore, rate, weight, heap, seconds)
					all := float64(single + rest)
					t.Logf("%.1f of %.1f a second", float64(single)/seconds, all/seconds*float64(weight)/float64(weight+1))
					part := all * float64(weight) / float64(weight+1)
					if rate > parts {
						part = min(part, seconds*parts/1.035) // a window and its jitter
					}
					require.InDelta(t, part, single, 2)
				})
			}
		}
	}
}

// TestP5_FairBound: what two shares that always have callers start, over their weights, differs by at most one caller of each.
func TestP5_FairBound(t *testing.T) {
	for seed := range uint64(soak.Seeds(40, 6)) {
		sharetest.FairBound(t, newStore, seed, 20, 0)
	}
}
