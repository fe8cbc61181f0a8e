package simulation_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
)

// TestQuantiles are too large by less than a hundredth, and never too small.
func TestQuantiles(t *testing.T) {
	var none simulation.Durations
	require.Zero(t, none.Quantile(0.5))
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, most := range []time.Duration{100 * time.Microsecond, time.Second, 48 * time.Hour} {
		var d simulation.Durations
		var all []time.Duration
		for range 10_000 {
			one := time.Duration(rnd.Int64N(int64(most))).Truncate(time.Microsecond)
			d.Add(one)
			all = append(all, one)
		}
		slices.Sort(all)
		require.Equal(t, all[len(all)-1], d.Max)
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			exact := all[max(0, int(q*10_000)-1)]
			require.GreaterOrEqual(t, d.Quantile(q), exact)
			require.LessOrEqual(t, d.Quantile(q), exact+exact/100+time.Microsecond)
		}
	}
}
