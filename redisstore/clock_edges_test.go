package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_WindowsGoOnCounting sets the clock from one fixed window into another. What
// counted goes on counting until that one ends; what did not, does not again.
func TestP9_WindowsGoOnCounting(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{4 * time.Second, -9 * time.Second, time.Hour + 4*time.Second, -time.Hour - 9*time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
				two := charge("two", throttle.FixedWindow(2, 10*time.Second))
				time.Sleep(4 * time.Second)
				board(t, s, two)
				board(t, s, two)
				time.Sleep(11 * time.Second) // five seconds into the next one
				board(t, s, two)
				time.Sleep(3 * time.Second)
				c.step(by)
				board(t, s, two)
				_, end := two.Limit.Window(time.UnixMicro(c.now()))
				require.Equal(t, end.Sub(time.UnixMicro(c.now())), book(t, s, two))
			})
		})
	}
}
