package scoped_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/scoped"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestContract composes two stores in memory. Waiters in two lines come a little later
// than they would in one.
func TestContract(t *testing.T) {
	storetest.RunWithin(t, storetest.Slack{Order: 300 * time.Millisecond, Start: 100 * time.Millisecond},
		func(*testing.T) throttle.Store { return scoped.Compose(memstore.New(), memstore.New()) })
}

// TestP6_ARefusedReplacementIsGivenBack in both halves, whichever refuses it.
func TestP6_ARefusedReplacementIsGivenBack(t *testing.T) {
	one := func(name string, l throttle.Limit) throttle.Charge {
		return throttle.Charge{Budget: throttle.Budget{Policy: name, Key: [16]byte([]byte(name + "................"))}, Cost: 1, Limit: l}
	}
	fleet, node := one("fleet", throttle.PerSecond(1)), one("node", throttle.PerSecond(1))
	node.Node = true
	charges := []throttle.Charge{fleet, node}
	for i, refuses := range charges {
		t.Run(refuses.Budget.Policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scoped.Compose(memstore.New(), memstore.New())
				b := throttle.Booking{Charges: charges, MaxWait: -1}
				_, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				waits, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				require.Equal(t, time.Second+time.Microsecond, waits.Wait)

				require.NoError(t, s.Pause(t.Context(), refuses, time.Minute))
				again := throttle.Booking{Charges: charges, Instead: waits.Handle, MaxWait: 2 * time.Second}
				g, err := s.Book(t.Context(), &again)
				require.NoError(t, err)
				require.False(t, g.OK)
				require.Equal(t, i, g.Held)
				for _, c := range charges {
					st, err := s.Status(t.Context(), c)
					require.NoError(t, err)
					require.Equal(t, 1, st.Used, c.Budget.Policy)
					require.Zero(t, st.Waiting, c.Budget.Policy)
				}
			})
		})
	}
}
