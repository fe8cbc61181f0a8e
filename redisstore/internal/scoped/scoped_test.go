package scoped_test

import (
	"context"
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

// A waking is a store that is away for a second, and then books as if NotBefore had passed meanwhile, as the fallback does.
type waking struct{ store.Store }

func (s waking) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	own := *b
	time.Sleep(time.Second)
	own.NotBefore = max(0, own.NotBefore-time.Second)
	return s.Store.Book(ctx, &own)
}

// TestP8_SlotsOfAStartThatIsBookedAgain: the fleet had the start at once, and the node, whose start was later when it was asked, books
// anew. The slots that came with the fleet's first start are given back.
func TestP8_SlotsOfAStartThatIsBookedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scoped.Compose(waking{memstore.New()}, memstore.New())
		slots := store.Charge{Budget: store.Budget{Policy: "slots", Key: [16]byte{1}}, Cost: 1, Limit: store.Concurrency(9)}
		node := store.Charge{Budget: store.Budget{Policy: "node", Key: [16]byte{2}}, Cost: 1, Limit: store.SlidingWindow(1, 500*time.Millisecond), Node: true}
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{node}})
		require.NoError(t, err)

		b := store.Booking{Charges: []store.Charge{slots, node}, MaxWait: store.AnyWait, Horizon: time.Minute}
		g, err := s.Book(t.Context(), &b)
		require.NoError(t, err)
		require.True(t, g.OK)
		require.Zero(t, g.Wait)
		s.Release(&b, g)
		st, err := s.Status(t.Context(), slots)
		require.NoError(t, err)
		require.Zero(t, st.Used)
	})
}

// TestP7_ACallerThatNeedsOneStoreLess leaves its line there, and keeps its place in the other: also a place in a line for slots.
func TestP7_ACallerThatNeedsOneStoreLess(t *testing.T) {
	one := func(name string, l store.Limit, node bool) store.Charge {
		return store.Charge{Budget: store.Budget{Policy: name, Key: [16]byte([]byte(name + "................"))}, Cost: 1, Limit: l, Node: node}
	}
	hourly, slots := store.PerHour(1), store.Concurrency(1)
	for name, x := range map[string]struct {
		fleet, node store.Limit
		keepsNode   bool
	}{
		"the node's line, without the node":   {hourly, hourly, false},
		"the node's line, without the fleet":  {store.Unlimited(), hourly, true},
		"the fleet's line, without the fleet": {hourly, store.Unlimited(), true},
		"the fleet's line, without the node":  {hourly, store.Unlimited(), false},
		"the node's slots, without the fleet": {store.Unlimited(), slots, true},
		"the fleet's slots, without the node": {slots, store.Unlimited(), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scoped.Compose(memstore.New(), memstore.New())
				fleet, node := one("fleet", x.fleet, false), one("node", x.node, true)
				b := store.Booking{Charges: []store.Charge{fleet, node}, MaxWait: store.AnyWait, Horizon: time.Second}
				_, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				g, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				require.NotNil(t, g.Ready)

				kept, left := fleet, node
				if x.keepsNode {
					kept, left = node, fleet
				}
				again := store.Booking{Charges: []store.Charge{kept}, MaxWait: store.AnyWait, Horizon: time.Second, Instead: g.Handle, Turn: g.Turn, Returns: true}
				g, err = s.Book(t.Context(), &again)
				require.NoError(t, err)
				callers := func(c store.Charge) int {
					st, err := s.Status(t.Context(), c)
					require.NoError(t, err)
					return st.Callers
				}
				require.Zero(t, callers(left))
				if g.Ready != nil {
					require.Equal(t, 1, callers(kept))
					s.Cancel(&again, g)
				}
				require.Zero(t, callers(kept))
			})
		})
	}
}

// TestP5_ACallerThatNeedsBothStores keeps its place in the line for slots where it stood, and has no second one.
func TestP5_ACallerThatNeedsBothStores(t *testing.T) {
	one := func(name string, l store.Limit, node bool) store.Charge {
		return store.Charge{Budget: store.Budget{Policy: name, Key: [16]byte([]byte(name + "................"))}, Cost: 1, Limit: l, Node: node}
	}
	for name, x := range map[string]struct {
		first, added store.Charge
	}{
		"the node's slots":  {one("slots", store.Concurrency(1), true), one("fleet", store.PerHour(9), false)},
		"the fleet's slots": {one("slots", store.Concurrency(1), false), one("node", store.PerHour(9), true)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scoped.Compose(memstore.New(), memstore.New())
				b := store.Booking{Charges: []store.Charge{x.first}, MaxWait: store.AnyWait, Horizon: time.Second}
				_, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				g, err := s.Book(t.Context(), &b)
				require.NoError(t, err)
				require.NotNil(t, g.Ready)

				again := store.Booking{Charges: []store.Charge{x.added, x.first}, MaxWait: store.AnyWait, Horizon: time.Second, Instead: g.Handle, Turn: g.Turn, Returns: true}
				g, err = s.Book(t.Context(), &again)
				require.NoError(t, err)
				require.NotNil(t, g.Ready)
				st, err := s.Status(t.Context(), x.first)
				require.NoError(t, err)
				require.Equal(t, 1, st.Callers)
				s.Cancel(&again, g)
				st, err = s.Status(t.Context(), x.first)
				require.NoError(t, err)
				require.Zero(t, st.Callers)
			})
		})
	}
}
