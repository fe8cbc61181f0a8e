package throttle_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestMaxWaitAsLongAsCanBe is not in a bubble, where the process began in the future
// and nothing overflows.
func TestMaxWaitAsLongAsCanBe(t *testing.T) {
	tr := must(throttle.New(throttle.Config{
		Store: memstore.New(), Base: newStarts(), MaxWait: math.MaxInt64,
		Policies: []throttle.Policy{{Name: "p", Limit: throttle.SlidingWindow(1, 20*ms)}},
	}))
	for range 2 {
		require.NoError(t, send(t, tr, get(t, home)))
	}
}
