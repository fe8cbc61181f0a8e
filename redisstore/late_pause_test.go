package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP11_APenaltyThatIsStoredLate tells of a penalty while the server hears nothing.
// When it does, it closes the budget for what is left.
func TestP11_APenaltyThatIsStoredLate(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, limit := range []throttle.Limit{throttle.PerSecond(5), throttle.Concurrency(5)} {
		synctest.Test(t, func(t *testing.T) {
			c := newSharers(t, server, 1, nil, forty)
			s, five := c.nodes[0].store, charge("five", limit)
			book(t, s, five)
			away(true, c.nodes...)
			time.AfterFunc(2500*time.Millisecond, func() { back(c.nodes...) })
			require.NoError(t, s.Pause(t.Context(), five, 6*time.Second))
			st, err := s.Status(t.Context(), five)
			require.NoError(t, err)
			require.Equal(t, 3500*time.Millisecond, st.Paused)
			c.end()
		})
	}
}
