package throttle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestOptionsOfAContextAddUp in either order, and the innermost of each kind counts.
func TestOptionsOfAContextAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		low := throttle.Policy{Name: "p", Limit: throttle.PerMinute(2), Headroom: map[throttle.Priority]float64{throttle.Low: 0.5}}
		l := must(throttle.NewLimiter(store, low))
		require.NoError(t, acquired(l.Acquire(t.Context(), "", 1)))

		never := func(ctx context.Context) context.Context { return throttle.WithMaxWait(ctx, -1) }
		lowly := func(ctx context.Context) context.Context { return throttle.WithPriority(ctx, throttle.Low) }
		for _, ctx := range []context.Context{never(lowly(t.Context())), lowly(never(t.Context())), lowly(never(throttle.WithMaxWait(t.Context(), time.Hour)))} {
			require.ErrorIs(t, acquired(l.Acquire(ctx, "", 1)), throttle.ErrLimited)
		}
		require.NoError(t, acquired(l.Acquire(throttle.WithPriority(lowly(never(t.Context())), throttle.Normal), "", 1)))
	})
}
