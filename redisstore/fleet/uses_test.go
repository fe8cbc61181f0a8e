package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// TestStartsAreRequestsHandedOn: a request that meets two policies, at a cost of five, is one start
// of the node and one of each budget; a start that is given back is none.
func TestStartsAreRequestsHandedOn(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "shop")
	limits, err := throttle.NewLimiters(throttle.Config{Store: a, Policies: []throttle.Policy{
		{Name: "address", Limit: throttle.PerHour(1000)}, {Name: "app", Limit: throttle.PerHour(1000)},
		{Name: "at once", Limit: throttle.Concurrency(10)},
	}})
	require.NoError(t, err)
	demands := []throttle.Demand{{Policy: "address", Cost: 5}, {Policy: "app"}, {Policy: "at once"}}
	for range 10 {
		permit, err := limits.Acquire(t.Context(), demands...)
		require.NoError(t, err)
		permit.Release()
	}
	b := &throttle.Booking{Horizon: time.Second, MaxWait: -1, Charges: []throttle.Charge{{
		Budget: throttle.Budget{Policy: "other", Group: "other", Key: [16]byte{1}}, Limit: throttle.PerHour(1000), Cost: 1,
	}}}
	g, err := a.Book(t.Context(), b)
	require.NoError(t, err)
	b.Instead, b.Turn, b.Returns = g.Handle, g.Turn, true // too old
	g, err = a.Book(t.Context(), b)
	require.NoError(t, err)
	a.Cancel(b, g)

	requests, budgets := fleet.Counted(a)
	require.EqualValues(t, 10, requests)
	require.Equal(t, map[string]int64{"address": 10, "app": 10, "at once": 10, "other": 0}, budgets)
}
