package waits

import (
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// apisOf returns a table where each path has 20 a second, and all together 100,
// and the paths.
func apisOf(n int) (policies []throttle.Policy, paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf("api/%d", i))
	}
	return []throttle.Policy{
		{Name: "all", Match: "api.example.com/", Limit: store.PerSecond(100)},
		{Name: "each", Match: "api.example.com/", Key: throttle.RawPath, Limit: store.PerSecond(20)},
	}, paths
}

// besideHot lets thousands wait for one API while others use half of the limit
// that they share with it.
func besideHot(t *testing.T) (rows []row) {
	policies, paths := apisOf(11)
	for _, deep := range inFull([]int{3000, 10_000}, []int{3000}) {
		s := newStage(t)
		end := inFull[time.Duration](120, 30) * time.Second
		dice := dice(deep)
		others := poisson(50, 0, end, dice)
		for i := range others {
			others[i].api = 1 + dice.IntN(10)
		}
		visits := join(crowd(deep), others)
		s.play(visits, end+2*time.Second, s.transport(newTransport(upstream{stage: s}, memstore.New(), policies...), paths...))
		s.kept(visits, 100, time.Second)
		beside := only(visits, func(v *visit) bool { return v.api > 0 })
		// A visit that never started waits at least until the end.
		for i := range visits {
			if v := &visits[i]; v.api > 0 && !v.started() {
				beside = append(beside, visit{came: v.came, start: s.now()})
			}
		}
		rows = append(rows, atMost(fmt.Sprintf("beside an API %d deep: p99", deep), quantile(beside, 0.99), waitBeside).
			also("mean %v, the deep one has %.1f/s", short(mean(beside)), float64(len(only(visits, func(v *visit) bool { return v.api == 0 })))/s.now().Seconds()))
	}
	return rows
}

// skewed gives ten APIs 120 % of the limit that they share. The k-th has a share
// of 1/k: the first two have more than their own limits allow.
func skewed(t *testing.T) (rows []row) {
	const apis = 10
	policies, paths := apisOf(apis)
	wide, each := lineOf(100), lineOf(20)
	sum := 0.0
	for k := 1; k <= apis; k++ {
		sum += 1 / float64(k)
	}
	for seed := range inFull(4, 1) {
		s := newStage(t)
		end := inFull(120, soak.Most[time.Duration](60, 20)) * time.Second
		dice := dice(seed)
		visits := poisson(1.2*wide.rate(), 0, end, dice)
		for i := range visits {
			x, k := dice.Float64()*sum, 1
			for x > 1/float64(k) && k < apis {
				x -= 1 / float64(k)
				k++
			}
			visits[i].api = k - 1
		}
		best := shared(wide, each, apis, visits)
		s.play(visits, end, s.transport(newTransport(upstream{stage: s}, memstore.New(), policies...), paths...))
		s.kept(visits, 100, time.Second)
		from := 5 * time.Second
		got, possible := used(spends(visits), from, end, 100, wide.span), used(spends(best), from, end, 100, wide.span)
		small := func(v *visit) bool { return v.api >= 2 && v.start < end }
		rows = append(rows,
			atLeast(fmt.Sprintf("ten skewed APIs (seed %d): used of what is possible", seed), got/possible, usedSkewed).
				also("%s of %s", percent(got), percent(possible)),
			atMost("the APIs below their limits: mean wait", mean(only(visits, small)), waitSmall).
				also("p99 %v; perfect %v, p99 %v", short(quantile(only(visits, small), 0.99)),
					short(mean(only(best, small))), short(quantile(only(best, small), 0.99))))
	}
	return rows
}
