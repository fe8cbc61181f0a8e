package scoped_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/scoped"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestContract composes two stores in memory. Waiters in two lines come a little later
// than they would in one.
func TestContract(t *testing.T) {
	storetest.RunWithin(t, storetest.Slack{Order: 300 * time.Millisecond, Start: 100 * time.Millisecond},
		func(*testing.T) store.Store { return scoped.Compose(memstore.New(), memstore.New()) })
}

// TestP6_ARefusedReplacementIsGivenBack in both halves, whichever refuses it.
func TestP6_ARefusedReplacementIsGivenBack(t *testing.T) {
	one := func(name string, l store.Limit) store.Charge {
		return store.Charge{Budget: store.Budget{Policy: name, Key: [16]byte([]byte(name + "................"))}, Cost: 1, Limit: l}
	}
	fleet, node := one("fleet", store.PerSecond(1)), one("node", store.PerSecond(1))
	node.Node = true
	charges := []store.Charge{fleet, node}
	for i, refuses := range charges {
		t.Run(refuses.Budget.Policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scoped.Compose(memstore.New(), memstore.New())
				b := store.Booking{Charges: charges, MaxWait: -1}
				_, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				waits, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				require.Equal(t, time.Second+time.Microsecond, waits.Wait)

				require.NoError(t, s.Pause(t.Context(), refuses, time.Minute))
				again := store.Booking{Charges: charges, Instead: waits.Handle, MaxWait: 2 * time.Second}
				g, err := s.Book(t.Context(), &again)
				require.NoError(t, err)
				require.False(t, g.OK)
				require.Equal(t, i, g.HeldBy)
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
