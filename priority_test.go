package throttle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

func TestPriorityString(t *testing.T) {
	for p, want := range map[throttle.Priority]string{
		throttle.Low: "low", throttle.Normal: "normal", throttle.High: "high", 2: "priority 2", -2: "priority -2",
	} {
		require.Equal(t, want, p.String())
	}
}
