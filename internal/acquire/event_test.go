package acquire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestEventsOfABudgetAskedBefore: the store was asked for a start before this program
// learned of the penalty. So its answer does not say that the budget is open again.
func TestEventsOfABudgetAskedBefore(t *testing.T) {
	var known closings
	b := store.Budget{Policy: "api"}
	require.True(t, known.add(b, 10*time.Second, time.Minute))

	_, open := known.remove(b, 9*time.Second, 11*time.Second)
	require.False(t, open)

	closed, open := known.remove(b, 20*time.Second, 21*time.Second)
	require.True(t, open)
	require.Equal(t, 11*time.Second, closed)
}
