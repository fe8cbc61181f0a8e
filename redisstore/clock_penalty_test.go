package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_Slewing lets the clock run a tenth too fast or too slowly. Its windows are a
// tenth shorter or longer, and no more than that.
func TestP9_Slewing(t *testing.T) {
	each(t, []time.Duration{10, -10}, func(t *testing.T, part time.Duration) {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			const n = 10
			var starts log
			for range 2000 {
				time.Sleep(10 * time.Millisecond)
				c.step(10 * time.Millisecond / part)
				if ask(t, s, &throttle.Booking{Charges: []throttle.Charge{charge("slewed", throttle.PerSecond(n))}}).OK {
					starts.add(1)
				}
			}
			per := time.Second - time.Second/11
			if part < 0 {
				per = time.Second
			}
			starts.judgeWindows(t, per, func(time.Time) int { return n })
			require.Greater(t, len(starts.all), 20*n*85/100)
		})
	})
}
