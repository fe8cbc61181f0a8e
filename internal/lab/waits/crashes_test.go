package waits

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/store"
)

// crashEvery is how long each process lives.
const crashEvery = 2 * time.Second

// crashes kills a process with 200 waiters at 40/s every 2 s. The first one lives for longer or
// shorter, so that the deaths come at every phase of the windows.
func crashes(t *testing.T, v virtual) []row {
	const lives = 5
	phases := inFull(20, 4)
	least, which := math.MaxInt, ""
	var all []int
	for i := range phases {
		phase := time.Duration(i+1) * lineOf(40).span / time.Duration(phases)
		counts := crashing(t, v, phase, lives)
		all = append(all, slices.Min(counts))
		if n := slices.Min(counts); n < least {
			least, which = n, fmt.Sprintf("%v after a first life of %v", counts, short(phase))
		}
	}
	return []row{
		above(fmt.Sprintf("a process with 200 waiters at 40/s is killed every %v, %d phases: the least starts of one", crashEvery, phases),
			float64(least), startsCrash).also("%s; the least of each phase: %v", which, all),
	}
}

// crashing returns how many starts each of some lives had, after a first one of some length.
func crashing(t *testing.T, v virtual, first time.Duration, lives int) (counts []int) {
	v.stage(t, near, 1, func(s stage, net *redissim.Network) {
		nodes := s.nodes(net, lives+1)
		s.begin = time.Now()
		starts := make([]int, len(nodes))
		var waiting sync.WaitGroup
		var mu sync.Mutex
		for i, n := range nodes {
			begin := time.Duration(0)
			if i > 0 {
				begin = first + time.Duration(i-1)*crashEvery
			}
			end := first + time.Duration(i)*crashEvery
			l := n.limiter(store.PerSecond(40))
			s.at(begin, func() {
				for range 200 {
					waiting.Go(func() {
						if _, err := n.acquire(context.Background(), l, 1); err == nil {
							mu.Lock()
							defer mu.Unlock()
							starts[i]++
						}
					})
				}
			})
			s.at(end, n.die)
		}
		time.Sleep(first + time.Duration(lives)*crashEvery + time.Second)
		waiting.Wait()
		counts = starts[1:]
	})
	return counts
}
