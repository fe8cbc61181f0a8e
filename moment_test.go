package throttle_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/moments"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP4_NoCallerAsksTwiceAtOneMoment plays random lines: two or three budgets of mixed kinds,
// costs, priorities, callers with and without MaxWait, and pauses. The test of redisstore with this
// name plays them in a fleet.
func TestP4_NoCallerAsksTwiceAtOneMoment(t *testing.T) {
	for seed := range soak.Most[uint64](20_000, 500) {
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, moments.Play(t.Context(), seed, memstore.New()), "seed %d", seed)
		})
	}
}
