package fleet_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestWrongOptions: what cannot be meant is refused, all of it at once, and nothing is started.
func TestWrongOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	for _, c := range []struct {
		client redis.UniversalClient
		around store.Store
		o      fleet.ReporterOptions
		wrong  []string
	}{
		{nil, memstore.New(), fleet.ReporterOptions{}, []string{"redisstore: client: is nil"}},
		{client, nil, fleet.ReporterOptions{}, []string{"fleet: store: is nil"}},
		{client, redisstore.New(client, redisstore.Options{Namespace: "shop"}), fleet.ReporterOptions{Namespace: "throttle"}, []string{`fleet: ReporterOptions.Namespace: "throttle" is not that of the store, "shop"`}},
		{client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Namespace: "shop"}, []string{`"shop" is not that of the store, "throttle"`}},
		{client, redisstore.New(client, redisstore.Options{Outage: 9}), fleet.ReporterOptions{}, []string{"redisstore: Options.Outage: 9 is unknown"}},
		{client, memstore.New(), fleet.ReporterOptions{Interval: 5}, []string{"fleet: ReporterOptions.Interval: 5ns is too short"}},
		{client, memstore.New(), fleet.ReporterOptions{Interval: -time.Hour}, []string{"fleet: ReporterOptions.Interval: -1h0m0s is too short"}},
		{nil, nil, fleet.ReporterOptions{Namespace: "shop\n", Interval: 1}, []string{"redisstore: client", "redisstore: Options.Namespace", "fleet: store", "fleet: ReporterOptions.Interval"}},
	} {
		r, err := fleet.Start(c.client, c.around, c.o)
		require.Nil(t, r)
		require.ErrorAs(t, err, new(*store.OptionError))
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, wrong)
		}
	}

	_, err := fleet.New(nil, fleet.Options{Namespace: "shop\n"})
	require.ErrorContains(t, err, "redisstore: client")
	require.ErrorContains(t, err, "redisstore: Options.Namespace")
}

// TestNamespaceIsThatOfTheStore: a reporter that is told no namespace is seen where the budgets of its store are.
func TestNamespaceIsThatOfTheStore(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{Namespace: "shop"})
	r, err := fleet.Start(client, s, fleet.ReporterOptions{Program: "till", Interval: time.Hour})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	all, err := fleet.New(client, fleet.Options{Namespace: "shop"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		nodes, err := all.Nodes(t.Context())
		require.NoError(t, err)
		return len(nodes) == 1 && nodes[0].Program == "till"
	}, time.Minute, time.Millisecond)
}
