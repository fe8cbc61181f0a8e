package memstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP10_IdleBudgetsAreForgotten uses many budgets once, and then a few others.
// Each later call clears some away, so that all are gone in the end.
func TestP10_IdleBudgetsAreForgotten(t *testing.T) {
	const crowd, few = 100_000, 2000
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		for i := range crowd {
			book(t, s, charge(fmt.Sprint("crowd ", i), throttle.PerSecond(1)))
		}
		kept, due := s.Rows()
		require.Equal(t, crowd, kept)
		require.Equal(t, crowd, due)

		time.Sleep(time.Minute)
		others := make([]throttle.Charge, few)
		for i := range others {
			others[i] = charge(fmt.Sprint("few ", i), throttle.PerSecond(1))
		}
		for range 20 {
			for i := range others {
				book(t, s, others[i])
			}
			time.Sleep(time.Minute)
		}
		kept, due = s.Rows()
		require.Equal(t, few, kept)
		require.Equal(t, few, due)
	})
}

// TestP10_BusyBudgetsAreKept keeps a booked start and a penalty for as long as
// they matter, whatever is cleared away around them.
func TestP10_BusyBudgetsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		hourly, closed := charge("hourly", throttle.PerHour(1)), charge("closed", throttle.PerSecond(1))
		require.Zero(t, book(t, s, hourly))
		require.NoError(t, s.Pause(t.Context(), closed, time.Hour))
		for i := range 59 {
			time.Sleep(time.Minute)
			for j := range 2000 {
				book(t, s, charge(fmt.Sprint(i, " ", j), throttle.PerSecond(1)))
			}
		}
		require.Equal(t, time.Minute+time.Microsecond, book(t, s, hourly))
		require.Equal(t, time.Minute, book(t, s, closed))
	})
}

// TestP10_RowsAreBounded has a queue of ten thousand.
func TestP10_RowsAreBounded(t *testing.T) {
	for _, limit := range []throttle.Limit{
		throttle.PerSecond(20), throttle.PerHour(1_000_000),
		throttle.LeakyBucket(7, time.Second), throttle.TokenBucket(20, time.Second, 20), throttle.TokenBucket(20, time.Second, 1_000_000),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				c := charge("deep", limit)
				c.Pace = time.Millisecond
				c.Cost = max(1, limit.N()/100)
				for range 10_000 {
					book(t, s, c)
					time.Sleep(100 * time.Microsecond)
				}
				size, room := s.Entries(c.Budget)
				require.LessOrEqual(t, size, memstore.MaxEntries)
				require.LessOrEqual(t, room, 2*memstore.MaxEntries)
			})
		})
	}
}
