package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
)

// TestP1_RunsOfALargeWindow: equal callers of one call that would start within a 128th of a window
// start together. No window holds more than its limit, all of it is used, and no more start at one
// moment than the pace has in a part of the window.
func TestP1_RunsOfALargeWindow(t *testing.T) {
	const per = 200 * time.Millisecond
	for _, of := range soak.Most([]struct{ n, cost int }{{1536, 1}, {255, 1}, {512, 2}, {7168, 7}}, []struct{ n, cost int }{{1536, 1}}) {
		t.Run(fmt.Sprint(of), func(t *testing.T) { runsOf(t, of.n, of.cost, per) })
	}
}

func runsOf(t *testing.T, n, cost int, per time.Duration) {
	inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
		c := charge("large", throttle.SlidingWindow(n, per))
		c.Pace, c.Cost = per/time.Duration(n), cost
		fit := n / cost
		var all []*walker
		for i := range fit * 4 / 3 { // the race detector can have 8,128 goroutines in all
			all = append(all, comes(t, nodes[i%2], throttle.Normal, c))
		}
		starts := allStart(t, time.Minute, all...)
		within(t, fit, per, starts)
		slices.SortFunc(starts, time.Time.Compare)
		require.Less(t, starts[len(starts)-1].Sub(starts[0]), 2*per)
		largest, together, last := 0, 0, time.Time{}
		for _, at := range starts[fit:] { // what has room at once starts at once
			if !at.Equal(last) {
				require.GreaterOrEqual(t, at.Sub(last), per/128)
				together, last = 0, at
			}
			together++
			largest = max(largest, together)
		}
		require.Equal(t, (n+128*cost-1)/(128*cost), largest)
	})
}

// TestP1_ARunHasRoomForAll: a run is of no more callers than there is room for, so no caller waits for
// others.
func TestP1_ARunHasRoomForAll(t *testing.T) {
	const n, per, later = 1536, 200 * time.Millisecond, 50 * time.Millisecond
	inLines(t, 1, func(t *testing.T, nodes []*cuttable) {
		c := charge("large", throttle.SlidingWindow(n, per))
		c.Pace = per / n
		var all []*walker
		crowd := func(many int) {
			for range many {
				all = append(all, comes(t, nodes[0], throttle.Normal, c))
			}
			for _, w := range all {
				<-w.answered
			}
		}
		crowd(3)
		time.Sleep(later)
		crowd(n - 5)
		begin := time.Now()
		crowd(15) // of which two have room now, three when the first three are over, and ten when the others are
		within(t, n, per, allStart(t, time.Minute, all...))
		starts := make(map[time.Duration]int)
		for _, w := range all[n-2:] {
			starts[w.start.Sub(begin).Round(10*time.Millisecond)]++
		}
		require.Equal(t, map[time.Duration]int{0: 2, per - later: 3, per: 10}, starts)
	})
}
