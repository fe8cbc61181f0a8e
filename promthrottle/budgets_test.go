package promthrottle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/promthrottle"
)

// TestBudgets: a scrape sees what budgets are like: full, closed, waited for.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: table, Base: fake{}}))
		b := promthrottle.Budgets(transport, table)
		require.NoError(t, get(transport, t.Context(), ""))
		require.InDelta(t, 2, gauge(t, b, "throttle_limit", "calls"), 0)
		require.InDelta(t, 1, gauge(t, b, "throttle_used", "calls"), 0)
		require.InDelta(t, 0, gauge(t, b, "throttle_next_start_seconds", "calls"), 0)

		require.NoError(t, get(transport, t.Context(), "429"))
		time.Sleep(10 * time.Second)
		require.InDelta(t, 20, gauge(t, b, "throttle_paused_seconds", "calls"), 0.1)
		require.Greater(t, gauge(t, b, "throttle_next_start_seconds", "calls"), 19.0)
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = get(transport, ctx, "") }()
		synctest.Wait()
		require.InDelta(t, 1, gauge(t, b, "throttle_waiting", "calls"), 0)
		stop()
		require.InDelta(t, 1, gauge(t, b, "throttle_store_up", ""), 0)
		require.Equal(t, 1+2*6, testutil.CollectAndCount(b), "a budget with a key is left out")
	})
}

// A lostStore does not say what budgets are like.
type lostStore struct{ throttle.Store }

func (lostStore) Status(context.Context, throttle.Charge) (throttle.Status, error) {
	return throttle.Status{}, errors.New("away")
}

// TestStoreAway: a store that is away is one metric, and no failed scrape.
func TestStoreAway(t *testing.T) {
	transport := throttle.Must(throttle.New(throttle.Config{Store: lostStore{memstore.New()}, Policies: table}))
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(promthrottle.Budgets(transport, table)))
	families, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	require.Equal(t, "throttle_store_up", families[0].GetName())
	require.Zero(t, families[0].GetMetric()[0].GetGauge().GetValue())
}
