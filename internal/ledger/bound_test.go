package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP10_EveryChangeBoundsARow: a full row stays within its bounds when forgotten starts are
// made up for, when a start is cancelled in the middle of a block, and while many nodes have leases
// whose callers have left the line.
func TestP10_EveryChangeBoundsARow(t *testing.T) {
	const span = 1000
	full := func() *Row {
		r := &Row{span: span, most: 2}
		for i := range int64(MaxEntries) {
			at := 10_000_000 + 100_000*i
			r.add(at, at+3*span, 4)
		}
		r.seen = 9_000_000
		return r
	}
	checkBound := func(r *Row) {
		require.LessOrEqual(t, len(r.entries), MaxEntries)
		b, err := r.MarshalBinary()
		require.NoError(t, err)
		require.NoError(t, new(Row).UnmarshalBinary(b))
	}
	checkBound(full())

	longer := full()
	longer.lost, longer.until = 8_999_000, 1<<40
	u := rule{span: Micros(time.Second), n: 5, peak: 5}
	longer.remember(longer.seen, &u)
	checkBound(longer)

	block := full()
	paced := rule{span: span, unit: span, n: 10, cost: 1}
	require.True(t, block.remove(10_000_000+2*span, &paced))
	checkBound(block)

	left := full()
	for i := range int64(300) {
		left.lease(Node{ID: 1<<52 + i, Lease: 30_000_000})
	}
	checkBound(left)
}
