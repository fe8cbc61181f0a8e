package history

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// TestP11_TheLatestEndCounts, until a pause is lifted or over.
func TestP11_TheLatestEndCounts(t *testing.T) {
	p := RestorePauseEnds(nil)
	require.True(t, p.Empty())
	require.Zero(t, p.End("k"))
	p.Note("k", at(time.Minute), at(0))
	p.Note("k", at(time.Second), at(0))
	p.Note("other", at(time.Second), at(0))
	p.Note("over", at(0), at(0))
	require.Equal(t, at(time.Minute), p.End("k"))
	require.Zero(t, p.End("over"))

	keys := slices.Values([]string{"k", "unknown", "other", "k"})
	require.Equal(t, []wire.Pause{{Key: "k", Left: 58 * time.Second}}, p.Known(keys, at(2*time.Second)))
	require.Len(t, p.Snapshot(), 1, "what is over is forgotten")
	p.Forget("k")
	require.Empty(t, p.Known(keys, at(2*time.Second)))
	require.True(t, p.Empty())
}
