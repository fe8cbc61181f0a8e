package throttle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

func TestEventKindString(t *testing.T) {
	for k, want := range map[throttle.EventKind]string{
		0: "unknown", throttle.Waiting: "waiting", throttle.Started: "started", throttle.Refused: "refused",
		throttle.GaveUp: "gave up", throttle.Stale: "stale", throttle.Late: "late", throttle.Penalized: "penalized",
		throttle.Shadowed: "shadowed", throttle.StoreFailed: "store failed", throttle.FunctionFailed: "function failed",
		throttle.Illegible: "illegible", throttle.Lowered: "lowered", throttle.StillWaiting: "still waiting",
		throttle.Closed: "closed", throttle.Opened: "opened", 16: "unknown", 255: "unknown",
	} {
		require.Equal(t, want, k.String())
	}
}
