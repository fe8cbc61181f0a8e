package memstore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/sharetest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestP5_Shares: the shares of callers get their parts.
func TestP5_Shares(t *testing.T) {
	soak.WithoutRace(t)
	storetest.Shares(t, storetest.Slack{}, newStore, nil)
}

// TestP5_RandomShares is TestP5_Shares for random scenes.
func TestP5_RandomShares(t *testing.T) {
	soak.WithoutRace(t)
	for seed := range uint64(soak.Most(60, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { storetest.RandomShares(t, storetest.Slack{}, newStore, seed) })
	}
}

// TestP5_ManyShares: no number of shares makes one of them starve.
func TestP5_ManyShares(t *testing.T) {
	soak.WithoutRace(t)
	sharetest.ManyShares(t, newStore, 0.1, 300, 10, 300, false, 40)
	sharetest.ManyShares(t, newStore, 0.1, 300, 10, 300, true, 40)
	sharetest.ManyShares(t, newStore, 0.1, 1000, 3, 1000, false, 40)
}

// TestP5_OneByOne: a share with one caller at a time, which comes again when it has started, has its part beside a heap, whatever its weight is. A
// limit above 128 lets starts go together in each 128th of its window, and one caller has one start of those.
func TestP5_OneByOne(t *testing.T) {
	soak.WithoutRace(t)
	const seconds, parts = 40, 128
	for _, rate := range []int{20, 40, 100, 1000} {
		for _, weight := range []int{1, 10} {
			for _, heap := range []int{10, 1000} {
				t.Run(fmt.Sprintf("%d a second, weight %d, heap of %d", rate, weight, heap), func(t *testing.T) {
					single, rest := sharetest.OneByOne(t, newStore, rate, weight, heap, seconds)
					all := float64(single + rest)
					t.Logf("%.1f of %.1f a second", float64(single)/seconds, all/seconds*float64(weight)/float64(weight+1))
					part := all * float64(weight) / float64(weight+1)
					if rate > parts {
						part = min(part, seconds*parts/1.035) // a window and its jitter
					}
					require.InDelta(t, part, single, 2)
				})
			}
		}
	}
}

// TestP5_FairBound: what two shares that always have callers start, over their weights, differs by at most one caller of each.
func TestP5_FairBound(t *testing.T) {
	for seed := range uint64(soak.Most(40, 6)) {
		sharetest.FairBound(t, newStore, seed, 20, 0)
	}
}
