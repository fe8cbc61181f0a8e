package feedback_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/feedback"
)

func TestEstimates(t *testing.T) {
	var e feedback.Estimates
	settle := func(n, cost int, inFlight time.Duration) {
		for range n {
			e.Settled("m", cost, inFlight)
		}
	}
	settle(7, 100, time.Second)
	settle(9, -1, time.Second) // not known
	require.Equal(t, 4000, e.Cost("m", 4000), "7 are too few")
	require.Equal(t, 100, e.Cost("m", 20), "but they tell of a guess that is too low")
	settle(1, 100, time.Second)
	require.Equal(t, 100, e.Cost("m", 4000))
	require.Equal(t, 4000, e.Cost("another", 4000))

	settle(400, 900, time.Second)
	require.InDelta(t, 900, e.Cost("m", 4000), 10, "what is old counts less and less")

	settle(2000, 0, 0)
	require.Equal(t, 1, e.Cost("m", 4000), "one at least")
}

// TestEstimatesCountTheTimeInFlight: of those in flight at one moment three quarters take long. The error
// of a mean of 64 costs that differ so much is 5 to 20 %.
func TestEstimatesCountTheTimeInFlight(t *testing.T) {
	var e feedback.Estimates
	for range 200 {
		e.Settled("m", 100, 10*time.Second)
		e.Settled("m", 1000, 30*time.Second)
	}
	const mean = (100*10 + 1000*30) / 40
	require.Greater(t, e.Cost("m", 0), mean)
	require.Less(t, e.Cost("m", 0), mean*6/5)
}

func TestEstimatesAreBounded(t *testing.T) {
	var e feedback.Estimates
	known := func() (n int) {
		for i := range 1000 {
			n += e.Cost(fmt.Sprint(i), 0)
		}
		return n
	}
	for i := range 1000 {
		for range 8 {
			e.Settled(fmt.Sprint(i), 1, time.Second)
		}
	}
	require.Equal(t, 256, known())
	for range 100 {
		e.Settled("huge", math.MaxInt, math.MaxInt64)
	}
	require.InDelta(t, math.MaxInt32, e.Cost("huge", 0), 1)
}
