package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// Each peer keeps a limit of five an hour: the sixth is told to wait, or gets an
// error because it cannot wait so long.
func TestPeers(t *testing.T) {
	client := redistest.Single(t).Client(t)
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			a, err := p.open(client, limit{5, time.Hour})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 5 {
				require.NoError(t, a.take(ctx, "key"))
			}
			require.NoError(t, a.take(ctx, "another key"))
			require.Error(t, a.take(ctx, "key"))
			require.NoError(t, ctx.Err(), "it says so at once")
		})
	}
}
