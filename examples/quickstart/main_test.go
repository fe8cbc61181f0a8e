package main

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
)

// TestQuickstart: in virtual time three pods stay below 25 calls to Stripe per second together, use most of them, and a refusal
// of one call stops all pods for three seconds.
func TestQuickstart(t *testing.T) {
	for refuse, bounds := range map[string][2]int64{"": {230, 250}, "100": {120, 190}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Second, stop)
			store, api := memstore.New(), &dryRun{refuse: refuse}
			var answered atomic.Int64
			for range 3 {
				client, err := newClient(store, api)
				require.NoError(t, err)
				require.NoError(t, get(ctx, client, "https://api.github.com/user", "GITHUB_TOKEN"))
				for range 8 {
					go func() {
						for ctx.Err() == nil {
							if get(ctx, client, "https://api.stripe.com/v1/balance", "STRIPE_KEY") == nil {
								answered.Add(1)
							}
						}
					}()
				}
			}

			<-ctx.Done()
			synctest.Wait()
			require.GreaterOrEqual(t, answered.Load(), bounds[0], refuse)
			require.LessOrEqual(t, answered.Load(), bounds[1], refuse)
		})
	}
}

// TestConnectNamesNoPassword: an address without TLS, and one that can't be read, are refused without the password.
func TestConnectNamesNoPassword(t *testing.T) {
	for _, address := range []string{"", "redis://:s3cret@localhost:6379", "rediss://:s3cret@localhost:port", "s3cret"} {
		_, err := connect(address, "")
		require.ErrorContains(t, err, "REDIS_URL")
		require.NotContains(t, err.Error(), "s3cret")
	}

	_, err := connect("rediss://:s3cret@localhost:6380", "no such file")
	require.Error(t, err)
	rdb, err := connect("rediss://:s3cret@localhost:6380", "")
	require.NoError(t, err)
	require.Equal(t, "s3cret", rdb.Options().Password)
	require.NoError(t, rdb.Close())
}
