package waits

import (
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
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

// openCosts is openLoop for visits that cost 1 to 10.
func openCosts(t *testing.T) (rows []row) {
	for _, n := range []int{20, 100} {
		for _, load := range soak.Most([]float64{0.5, 0.65, 0.8, 0.9, 0.95, 1, 1.2, 1.5}, []float64{0.8, 1.5}) {
			rows = append(rows, openOf(t, n, load, 10, memory(n))[0])
		}
	}
	return rows
}

// openCostsRedis is openCosts on Redis.
func openCostsRedis(t *testing.T, v virtual) (rows []row) {
	for _, n := range []int{20, 100} {
		for _, load := range []float64{0.8} { // the others are as in memory
			rows = append(rows, openOf(t, n, load, 10, func(t *testing.T, visits []visit) {
				v.stage(t, near, 1, func(s stage, net *redissim.Network) {
					l := s.newNode(net).limiter(store.PerSecond(n))
					s.begin = time.Now()
					s.play(visits, time.Hour, s.limiter(l))
				})
			})[0])
			rows[len(rows)-1].what += ", Redis"
		}
	}
	return rows
}

// memory lets visits come to a store in memory.
func memory(n int) func(*testing.T, []visit) {
	return func(t *testing.T, visits []visit) {
		s := newStage(t)
		s.play(visits, time.Hour, s.limiter(newLimiter(memstore.New(), store.PerSecond(n))))
	}
}

func open(t *testing.T, n int, load float64) []row { return openOf(t, n, load, 1, memory(n)) }

// openOf returns the worst of some seeds.
func openOf(t *testing.T, n int, load float64, dearest int, play func(*testing.T, []visit)) []row {
	line, end := lineOf(n), inFull[time.Duration](300, 60)*time.Second
	var got, most, best, order time.Duration
	over := time.Duration(-1 << 62)
	for seed := range inFull(4, 1) {
		random := dice(seed)
		visits := poisson(load*line.rate()*2/float64(1+dearest), 0, end, random)
		for i := range visits {
			visits[i].more = random.IntN(dearest)
		}
		perfect := mean(line.perfect(visits))
		play(t, visits)
		stage{t: t}.kept(visits, n, time.Second)
		order = max(order, passed(visits))
		bound := time.Duration(timesOpen*float64(perfect)) + moreOpen
		if m := mean(visits); m-bound > over {
			over, got, most, best = m-bound, m, bound, perfect
		}
	}
	name := fmt.Sprintf("open loop, %d/s, %.0f %% load", n, 100*load)
	if dearest > 1 {
		name += fmt.Sprintf(", costs 1 to %d", dearest)
	}
	return []row{
		atMost(name+": mean wait", got, most).also("perfect %v, %.2f times", short(best), float64(got)/float64(max(best, 1))),
		atMost(name+": passed by", order, passedOpen),
	}
}
