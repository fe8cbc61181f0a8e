package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
		{client, redisstore.New(client, redisstore.Options{Outage: 9}), fleet.ReporterOptions{}, []string{"redisstore: Options.Outage: 9 is unknown"}},
		{client, memstore.New(), fleet.ReporterOptions{Interval: 5}, []string{"fleet: ReporterOptions.Interval: 5ns is too short"}},
		{client, memstore.New(), fleet.ReporterOptions{Interval: -time.Hour}, []string{"fleet: ReporterOptions.Interval: -1h0m0s is too short"}},
		{client, memstore.New(), fleet.ReporterOptions{Program: "\x1b[2J"}, []string{"fleet: ReporterOptions.Program: "}},
		{client, memstore.New(), fleet.ReporterOptions{Program: strings.Repeat("a", 201)}, []string{"fleet: ReporterOptions.Program: "}},
		{nil, nil, fleet.ReporterOptions{Namespace: "shop\n", Program: "\x00", Interval: 1}, []string{"redisstore: client", "redisstore: Options.Namespace", "fleet: store", "fleet: ReporterOptions.Program", "fleet: ReporterOptions.Interval"}},
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
