package downstream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLimitsAreOfOneService: queries above their limit are refused, and orders are not refused because of them.
func TestLimitsAreOfOneService(t *testing.T) {
	s := New(Options{})
	for range QueriesAtOnce {
		wait, _ := s.arrive(true)
		require.Zero(t, wait)
	}

	wait, answered := s.arrive(true)
	require.NotZero(t, wait, "a query too many")
	wait, _ = s.arrive(false)
	require.Zero(t, wait, "an order while too many queries are in flight")

	// Both queries above the limit are in flight until they are answered.
	answered()
	wait, _ = s.arrive(true)
	require.NotZero(t, wait, "the limit is in use")
}
