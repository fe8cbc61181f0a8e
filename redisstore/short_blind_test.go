package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// These tests are about what lua/short.lua must leave to the scripts behind it.

// TestP9_TheShortWaySeesAStepBack: the clock was set back since a row was seen, but
// not to before its last start.
func TestP9_TheShortWaySeesAStepBack(t *testing.T) {
	t.Parallel()
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		two := charge("two", throttle.PerMinute(2))
		require.Zero(t, book(t, s, two))
		time.Sleep(9 * time.Second)
		turnedAway(t, s, two)
		c.step(-5 * time.Second)
		require.Zero(t, book(t, s, two))
		require.Equal(t, 51*time.Second+time.Microsecond, book(t, s, two), "nine seconds have passed, not four")
	})
}

// TestP1_TheShortWaySeesThatHistoryIsMissing: a sliding window is as long as the
// fixed one that the row was for, which needed less history.
func TestP1_TheShortWaySeesThatHistoryIsMissing(t *testing.T) {
	t.Parallel()
	onEmpty(t, func(t *testing.T, _ *redis.Client, s *redisstore.Store) {
		const ms = time.Millisecond
		two := charge("two", throttle.SlidingWindow(2, 100*ms-time.Microsecond))
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1900 * ms)))
		require.Zero(t, book(t, s, two))
		time.Sleep(110 * ms)
		turnedAway(t, s, two) // and the start is forgotten
		two.Limit = throttle.FixedWindow(2, time.Second)
		time.Sleep(40 * ms)
		require.Zero(t, book(t, s, two))
		two.Limit = throttle.SlidingWindow(2, time.Second-time.Microsecond)
		time.Sleep(10 * ms)
		require.Equal(t, 840*ms, book(t, s, two), "a second after the first start, which nobody knows any more")
	})
}

// TestP10_TheShortWayProlongsALife: a budget is kept for as long as its last start
// counts.
func TestP10_TheShortWayProlongsALife(t *testing.T) {
	t.Parallel()
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		ten := charge("ten", throttle.PerHour(10))
		require.Zero(t, book(t, s, ten))
		require.NoError(t, c.Persist(t.Context(), s.Key(ten.Budget)).Err())
		time.Sleep(2 * time.Minute)
		require.Zero(t, book(t, s, ten))
		left, err := c.PTTL(t.Context(), s.Key(ten.Budget)).Result()
		require.NoError(t, err)
		require.Greater(t, left, time.Hour)
	})
}

// TestP12_TheShortWaySeesAnOldRow: the row is that of a replica that lagged, and no
// record of calls is left that would say so.
func TestP12_TheShortWaySeesAnOldRow(t *testing.T) {
	t.Parallel()
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		ten := charge("ten", throttle.PerHour(10))
		for range 3 {
			require.Zero(t, book(t, s, ten))
		}
		old := keepRows(t, c)
		for range 2 {
			require.Zero(t, book(t, s, ten))
		}
		time.Sleep(2 * time.Minute)
		key := s.Key(ten.Budget)
		keptRows{key: old[key]}.restore(t, c)
		require.Equal(t, telling, bookLost(t, s, ten))
		st, err := s.Status(t.Context(), ten)
		require.NoError(t, err)
		require.Equal(t, 6, st.Used)
	})
}

// turnedAway asks for a start in a second at the earliest, and does not wait for it.
func turnedAway(t *testing.T, s throttle.Store, c throttle.Charge) {
	t.Helper()
	k := booking(c)
	k.NotBefore, k.MaxWait = time.Second, 0
	g, err := s.Book(t.Context(), k)
	require.NoError(t, err)
	require.False(t, g.OK)
}
