package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_UnlimitedNeedsNoShare takes Redis away from two nodes that use a limit of one,
// which cannot be shared, and unlimited budgets. Those stay open, but for the one that
// was closed before, as long as that lasts, and one that is closed meanwhile.
func TestP12_UnlimitedNeedsNoShare(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, outage := range []redisstore.Outage{redisstore.Share, redisstore.FailOpen} {
		synctest.Test(t, func(t *testing.T) {
			c := newSharers(t, server, 2, &redisstore.Options{Outage: outage}, throttle.Policy{Name: "forty", Limit: throttle.PerSecond(40), Jitter: -1})
			s := c.nodes[0].store
			open, closed, later := free("open"), free("closed"), free("later")
			for _, m := range c.nodes {
				require.Zero(t, book(t, m.store, open))
			}
			time.Sleep(5 * time.Second) // until the others know them
			require.NoError(t, s.Pause(t.Context(), closed, time.Minute))
			end := time.Now().Add(time.Minute)
			away(false, c.nodes...)
			var g throttle.Grant
			var err error
			for range 20 {
				time.Sleep(time.Second)
				k := booking(open)
				k.MaxWait = 0
				g, err = s.Book(t.Context(), k)
			}
			require.NoError(t, err)
			require.True(t, g.OK)
			require.Zero(t, g.Wait)
			k := booking(closed, open)
			k.MaxWait = 0
			g, err = s.Book(t.Context(), k)
			require.NoError(t, err)
			require.False(t, g.OK)
			require.True(t, g.Paused)
			require.Equal(t, time.Until(end), g.Wait)
			st, err := s.Status(t.Context(), closed)
			require.NoError(t, err)
			require.Equal(t, throttle.Status{Limit: st.Limit, Wait: time.Until(end), Paused: time.Until(end)}, st)
			back(c.nodes...)
			for range 10 {
				time.Sleep(time.Second)
				k := booking(open)
				k.MaxWait = 5 * time.Second
				g, err = s.Book(t.Context(), k)
			}
			require.NoError(t, err)
			require.True(t, g.OK)
			require.NoError(t, s.Pause(t.Context(), later, time.Minute))
			require.Equal(t, time.Minute, book(t, s, later))
			require.Equal(t, time.Until(end), book(t, s, closed))
			c.end()
		})
	}
}
