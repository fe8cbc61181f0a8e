package benchmarks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

// newCrew starts processes of this program that carry out orders together. They end with b.
func newCrew(b *testing.B, processes int) crew.Members {
	b.Helper()
	members, err := crew.Muster(context.Background(), role, make([]struct{}, processes))
	require.NoError(b, err)
	b.Cleanup(func() {
		for _, m := range members {
			m.Dismiss()
			require.Empty(b, m.Errors())
		}
	})
	return members
}

// do lets all members carry out the order at once and returns what they report.
// The time is that of the slowest.
func do(b *testing.B, members crew.Members, o order) done {
	b.Helper()
	var word string
	for i, m := range members {
		o.Process = i
		require.NoError(b, m.Tell(o))
		require.NoError(b, m.Hear(&word))
	}
	require.NoError(b, members.Tell("go"))
	var all done
	for _, m := range members {
		var d done
		require.NoError(b, m.Hear(&d))
		all.Calls += d.Calls
		all.Trips += d.Trips
		all.Took, all.Median = max(all.Took, d.Took), max(all.Median, d.Median)
	}
	return all
}
