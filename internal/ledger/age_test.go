package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestP9_EdgeAfterStepBack: starts wait for the begin of a window, or were there just now, and the
// clock is set back by a little, into the window before. They count in their own as well.
func TestP9_EdgeAfterStepBack(t *testing.T) {
	const per = 1_399_000
	edge := int64(676_686_777 * per)
	c := store.Charge{Limit: store.FixedWindow(2, per*time.Microsecond), Cost: 1}
	var u rule
	u.set(&c, 0)
	for _, step := range []int64{1, 1500, Stall} {
		for _, now := range []int64{edge - step - 20_000, edge} {
			r := new(Row)
			r.advance(now, &u)
			r.book(edge, &u)
			r.book(edge, &u)
			r.advance(now-step, &u)
			s := &Search{row: r, rule: u}
			require.Equal(t, edge+per, s.aligned(now-step), "a step of %d at %d", step, now-edge)
		}
	}
}
