package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP5_TheFairQueueIsMaxMinFair: what the fair queue serves is what a division by weight gives,
// which knows nothing of turns.
func TestP5_TheFairQueueIsMaxMinFair(t *testing.T) {
	for _, s := range append(shareScenes(), randomShares(1), randomShares(2), randomShares(3)) {
		callers, end := s.sharers(), s.windows(shareWarm+shareWindows)
		var asked, weights []float64
		steady := true
		for i, a := range s.tenants {
			asked = append(asked, a.load*s.part(i)+float64(a.heap))
			weights = append(weights, float64(max(1, a.weight)))
			steady = steady && a.from == 0 && a.to == 0 && a.leave == 0
		}
		if !steady {
			continue
		}
		r := &shareRun{scene: s, callers: callers, end: end}
		starts := fair(callers, s.rate(), end)
		for i, part := range maxMin(asked, weights, s.rate()) {
			want := part * (shareWindows * s.window()).Seconds()
			require.InDelta(t, want, float64(r.served(i, starts)), 0.05*want+2*float64(max(1, s.tenants[i].most)), "%s, share %d", s.name, i)
		}
	}
}

// TestP5_TheFairQueueKnowsNoCredit: a share that was away takes turns with the others at once, and no more.
func TestP5_TheFairQueueKnowsNoCredit(t *testing.T) {
	var callers []sharer
	for i := range 40 {
		callers = append(callers, sharer{cost: 1})
		callers[i].share.ID = 1000
	}
	for range 10 {
		c := sharer{at: 20 * time.Second, cost: 1}
		c.share.ID = 1001
		callers = append(callers, c)
	}
	starts := fair(callers, 1, time.Minute)
	for i := range 10 {
		require.Equal(t, 20*time.Second+time.Duration(2*i)*time.Second, starts[40+i])
	}
}

// maxMin divides a budget's starts among shares by weight: no share gets more than it asks for, and
// its leftover goes to the remaining shares.
func maxMin(asked, weights []float64, served float64) (parts []float64) {
	parts = make([]float64, len(asked))
	content := make([]bool, len(asked))
	for {
		left, sum := served, 0.0
		for i := range asked {
			if content[i] {
				left -= asked[i]
			} else {
				sum += weights[i]
			}
		}

		again := false
		for i := range asked {
			if content[i] {
				continue
			}
			parts[i] = left * weights[i] / sum
			if parts[i] >= asked[i] {
				parts[i], content[i], again = asked[i], true, true
			}
		}

		if !again {
			return parts
		}
	}
}
