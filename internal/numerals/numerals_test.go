package numerals_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/numerals"
)

func TestCount(t *testing.T) {
	require.Equal(t, "0 policies", numerals.Count(0, "policy", "policies"))
	require.Equal(t, "1 policy", numerals.Count(1, "policy", "policies"))
	require.Equal(t, "2 policies", numerals.Count(2, "policy", "policies"))
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		require.Equal(t, want, numerals.Thousands(n))
	}
}
