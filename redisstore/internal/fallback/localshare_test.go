package fallback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestP1_ShareOfALongBucket: into the share of a bucket flows at most its part, and nearly as much, however many nodes share it and
// however long its tokens take.
func TestP1_ShareOfALongBucket(t *testing.T) {
	for _, per := range []time.Duration{time.Second, 24 * time.Hour, store.MaxPeriod} {
		for _, nodes := range []int{1, 7, 99, 100, 291, 292, 1000, 3999} {
			l := &localShare{divisor: nodes}
			c := store.Charge{Cost: 1, Limit: store.TokenBucket(4000, per, 4000)}
			part, ok := l.charge(c)
			require.True(t, ok)
			require.Equal(t, 4000/nodes, part.Limit.Capacity())
			require.Positive(t, part.Limit.Per())

			own := float64(part.Limit.N()) / part.Limit.Per().Seconds() * float64(nodes)
			whole := 4000 / per.Seconds()
			require.LessOrEqual(t, own, whole*(1+1e-9), "%v for %d", per, nodes)
			require.GreaterOrEqual(t, own, whole*0.98, "%v for %d", per, nodes)
		}
	}
}
