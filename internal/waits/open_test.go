package waits

import (
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// openLoop lets visits come at random, at loads below and above the limit.
func openLoop(t *testing.T) (rows []row) {
	for _, n := range []int{20, 100} {
		for _, load := range soak.Most([]float64{0.5, 0.8, 0.95, 1, 1.2, 1.5}, []float64{0.8, 1.5}) {
			rows = append(rows, open(t, n, load)...)
		}
	}
	return rows
}

// open returns the worst of some seeds.
func open(t *testing.T, n int, load float64) []row {
	line, end := lineOf(n), inFull[time.Duration](300, 60)*time.Second
	var got, most, best, order time.Duration
	over := time.Duration(-1 << 62)
	for seed := range inFull(4, 1) {
		s := newStage(t)
		visits := poisson(load*line.rate(), 0, end, dice(seed))
		perfect := mean(line.perfect(visits))
		s.play(visits, time.Hour, s.limiter(newLimiter(memstore.New(), throttle.PerSecond(n))))
		s.kept(visits, n, time.Second)
		order = max(order, passed(visits))
		bound := time.Duration(timesOpen*float64(perfect)) + moreOpen
		if m := mean(visits); m-bound > over {
			over, got, most, best = m-bound, m, bound, perfect
		}
	}
	name := fmt.Sprintf("open loop, %d/s, %.0f %% load", n, 100*load)
	return []row{
		atMost(name+": mean wait", got, most).also("perfect %v", short(best)),
		atMost(name+": passed by", order, passedOpen),
	}
}
