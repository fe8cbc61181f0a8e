package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_AMarkOfTheOldClock sets the clock back by 3 s. When the first start is over it is
// given back: its mark lies in the middle of the second one, which stays.
func TestP9_AMarkOfTheOldClock(t *testing.T) {
	t.Parallel()
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		two := charge("two", throttle.LeakyBucket(2, 10*time.Second))
		k := booking(two)
		first := ask(t, s, k)
		require.True(t, first.OK)
		refused(t, s, two)
		c.step(-3 * time.Second)
		wait := book(t, s, two)
		require.GreaterOrEqual(t, wait, 5*time.Second)
		time.Sleep(8 * time.Second)
		s.Cancel(k, first)
		require.GreaterOrEqual(t, book(t, s, two), wait+5*time.Second-8*time.Second)
	})
}
