package throttle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP13_ALongWaitIsTold: an event tells of a caller that waits until the 1st, without
// a deadline, before its wait has begun.
func TestP13_ALongWaitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, ""), Observe: seen.observe,
			Policies: []throttle.Policy{
				{Name: "second", Limit: throttle.PerSecond(20)},
				{Name: "month", Limit: throttle.CalendarWindow(3, throttle.Month, time.UTC)},
			}}))
		line(t, tr, 3, home)
		begin := time.Now()
		for range 2 { // also for a waiter behind another
			go func() { _ = send(t, tr, get(t, home)) }()
			synctest.Wait()
		}
		require.Zero(t, time.Since(begin))
		long := 0
		for _, e := range seen.told() {
			if e.Kind == throttle.Waiting && e.Policy == "month" && e.Duration > 30*24*time.Hour {
				long++
			}
		}
		require.Equal(t, 2, long)
		time.Sleep(32 * 24 * time.Hour)
	})
}
