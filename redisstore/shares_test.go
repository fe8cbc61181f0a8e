package redisstore_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// nearShares is the horizon of callers with a share in these tests.
const nearShares = 250 * time.Millisecond

var noShares = os.Getenv("NOSHARES") != ""

// A tenant is the callers of one share.
type tenant struct {
	weight, cost int
	load         float64       // as a part of the whole limit
	heap         int           // so many come at the begin, and all others in closed loops: load does not count
	nodes        []int         // where its callers come, by turns; nil: everywhere
	from, to     time.Duration // when it is there; to 0: until the end
	priority     throttle.Priority
}

// A fleetOfTenants is tenants that want one budget.
type fleetOfTenants struct {
	perSecond int
	nodes     int
	length    time.Duration
	tenants   []tenant
}

// A tenantResult is what a tenant got.
type tenantResult struct {
	got   int             // costs of starts between the begin and the end of what is measured
	asked int             // costs of callers that came before the end
	waits []time.Duration // of those that started
}

// play lets the tenants come, and returns what each got from warm on.
func (f *fleetOfTenants) play(t *testing.T, warm time.Duration) (all []tenantResult) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		nodes := nodesOf(t, server, f.nodes)
		for _, n := range nodes {
			atRest(t, n.Listen())
		}
		begin := time.Now()
		walkers := make([][]*walker, len(f.tenants))
		next := make([]float64, len(f.tenants)) // what is still to come, as a part of one caller
		for now := time.Duration(0); now < f.length; now += 10 * time.Millisecond {
			for i, x := range f.tenants {
				if now < x.from || x.to > 0 && now >= x.to {
					continue
				}
				c := charge("shared", throttle.PerSecond(f.perSecond))
				c.Cost, c.Pace = x.cost, time.Duration(float64(time.Second)/float64(f.perSecond)*0.95)
				if c.Share = (throttle.Share{ID: uint64(100 + i), Weight: x.weight}); noShares {
					c.Share = throttle.Share{}
				}
				if next[i] += x.load * float64(f.perSecond) / float64(x.cost) / 100; x.heap > 0 && now == x.from {
					next[i] = float64(x.heap)
				}
				for ; next[i] >= 1; next[i]-- {
					n := len(walkers[i]) % len(nodes)
					if x.nodes != nil {
						n = x.nodes[len(walkers[i])%len(x.nodes)]
					}
					walkers[i] = append(walkers[i], comesNear(t, nodes[n], nearShares, x.priority, c))
				}
			}
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		end := time.Now()
		for i, list := range walkers {
			r := tenantResult{}
			for _, w := range list {
				r.asked += f.tenants[i].cost
				select {
				case <-w.over:
				default:
					w.leave()
					continue
				}
				require.NoError(t, w.err)
				if w.start.Sub(begin) >= warm && w.start.Before(end) {
					r.got += f.tenants[i].cost
				}
				r.waits = append(r.waits, w.start.Sub(w.came))
			}
			slices.Sort(r.waits)
			all = append(all, r)
		}
		for _, list := range walkers {
			for _, w := range list {
				<-w.over
			}
		}
		time.Sleep(time.Second)
	})
	return all
}

// parts returns the max-min fair part of each tenant, in costs a second.
func (f *fleetOfTenants) parts() []float64 {
	left, got := float64(f.perSecond), make([]float64, len(f.tenants))
	open := make([]bool, len(f.tenants))
	for i := range open {
		open[i] = true
	}
	for {
		weights := 0.0
		for i, x := range f.tenants {
			if open[i] {
				weights += float64(x.weight)
			}
		}
		if weights == 0 {
			return got
		}
		filled := false
		for i, x := range f.tenants {
			want := x.load * float64(f.perSecond)
			if open[i] && x.heap == 0 && want <= left*float64(x.weight)/weights {
				open[i], got[i], filled = false, want, true
				left -= want
				break
			}
		}
		if !filled {
			for i, x := range f.tenants {
				if open[i] {
					open[i], got[i] = false, left*float64(x.weight)/weights
				}
			}
		}
	}
}

// TestShares_MaxMin: each share gets its part of the budget, by weight, however much it asks for, and what one leaves is for
// the others.
func TestShares_MaxMin(t *testing.T) {
	heap := func(weight, cost int, nodes ...int) tenant {
		return tenant{weight: weight, cost: cost, heap: 1500 / cost, nodes: nodes}
	}
	small := func(weight int) tenant { return tenant{weight: weight, cost: 1, heap: 350 * weight} }
	for name, f := range map[string]fleetOfTenants{
		"two that are equal":   {100, 2, 12 * time.Second, []tenant{heap(1, 1), heap(1, 1)}},
		"one on each node":     {100, 2, 12 * time.Second, []tenant{heap(1, 1, 0), heap(3, 1, 1)}},
		"weights":              {100, 3, 12 * time.Second, []tenant{heap(1, 1), heap(2, 1), heap(4, 1), heap(8, 1)}},
		"costs":                {200, 3, 12 * time.Second, []tenant{heap(1, 1), heap(1, 5), heap(1, 20)}},
		"what one leaves":      {100, 3, 12 * time.Second, []tenant{{weight: 1, cost: 1, load: 0.1}, heap(1, 1), {weight: 2, cost: 1, load: 0.2}, heap(1, 1)}},
		"ten, of some too few": {200, 3, 12 * time.Second, []tenant{small(1), small(1), small(1), small(1), small(1), small(1), small(1), small(2), {weight: 1, cost: 1, load: 0.02}, {weight: 1, cost: 1, load: 0.05}}},
	} {
		t.Run(name, func(t *testing.T) {
			const warm = 2 * time.Second
			all := f.play(t, warm)
			sum := 0.0
			for i, part := range f.parts() {
				got := float64(all[i].got) / (f.length - warm).Seconds()
				sum += got
				t.Logf("%d: weight %d, cost %d: %.2f a second, its part is %.2f; waits %v", i, f.tenants[i].weight, f.tenants[i].cost, got, part, longest(all[i].waits))
				require.InEpsilon(t, part, got, 0.05, "tenant %d", i)
			}
			t.Logf("%.1f %% used", 100*sum/float64(f.perSecond))
			require.Greater(t, sum, 0.98*float64(f.perSecond))
		})
	}
}

func longest(waits []time.Duration) string {
	if len(waits) == 0 {
		return "none"
	}
	return fmt.Sprint(waits[len(waits)/2].Round(time.Millisecond), " ", waits[len(waits)-1].Round(time.Millisecond))
}

// TestShares_ALightOneBesideAHeap: a caller of a share that asks for little does not wait for the heap of another.
func TestShares_ALightOneBesideAHeap(t *testing.T) {
	f := fleetOfTenants{100, 2, 12 * time.Second, []tenant{{weight: 1, cost: 1, heap: 10_000}, {weight: 1, cost: 1, load: 0.05, from: time.Second}}}
	all := f.play(t, 2*time.Second)
	w := all[1].waits
	t.Logf("waits: %v, p99 %v, longest %v, of %d", w[len(w)/2], w[len(w)*99/100], w[len(w)-1], len(w))
	require.Less(t, w[len(w)-1], 320*time.Millisecond)
	require.Greater(t, all[0].got+all[1].got, 970)
}
