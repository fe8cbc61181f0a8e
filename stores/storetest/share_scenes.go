package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

const (
	shareHorizon = 250 * ms // throttle's own for callers with a share
	shareWindows = 10       // every share has its part over this number of windows
	shareWarm    = 2        // after this number of windows
	shareJitter  = 35 * ms
)

// A shareScene is callers of several shares that come to one budget of n a second.
type shareScene struct {
	name    string
	n       int
	tenants []tenant
	phase   uint64 // of the random numbers
	random  bool   // nobody has seen it: a rare event may happen
}

// A tenant is the callers of one share.
type tenant struct {
	weight     int
	load       float64 // how much they ask for, of the share's part if all shares asked for enough
	least      int     // the least cost of a caller
	most       int     // the highest
	heap       int     // how many more come at the begin
	from, to   float64 // they come between these windows; to 0: until the end
	leave      int     // how many of a hundred leave after 0.6 to 2.6 s
	everybody  bool    // so do all that still wait at to
	withoutOne bool    // they have no share
}

// shareScenes are the scenes of the contract.
func shareScenes() []shareScene {
	light, heavy := tenant{load: 0.1}, tenant{load: 4}
	heap := tenant{heap: 2000}
	ten := func(i int) tenant {
		return tenant{weight: 1 + i*7/9, load: []float64{0.1, 10, 0.5, 2, 0.9, 1.5, 5, 0.3, 1, 3}[i%10]}
	}
	hundred := func(i int) tenant {
		return tenant{weight: []int{1, 2, 4, 8}[i%4], load: []float64{0.2, 2, 0.9, 3, 0.5, 1.5, 4}[i%7]}
	}
	costs := func(i int) tenant {
		return tenant{weight: 1 + i%3, load: []float64{0.1, 3, 2, 1.5}[i%4], least: 1 + i%2, most: []int{1, 50, 10, 50}[i%4]}
	}

	return []shareScene{
		{name: "LightBesideAHeap", n: 40, tenants: []tenant{light, heap}},
		{name: "LightBesideAHeapFast", n: 160, tenants: []tenant{light, heap}},
		{name: "LightBesideCallersWithoutShare", n: 40, tenants: []tenant{light, {heap: 1000, withoutOne: true}}},
		{name: "Weights", n: 80, tenants: []tenant{{weight: 1, load: 3}, {weight: 2, load: 3}, {weight: 4, load: 3}}},
		{name: "LeavesTheRest", n: 60, tenants: []tenant{{load: 0.2}, {load: 0.6}, {load: 5}}},
		{name: "Ten", n: 100, tenants: some(10, ten)},
		{name: "Hundred", n: 300, tenants: some(100, hundred)},
		{name: "Costs", n: 3000, tenants: some(4, costs)},
		{name: "NoCreditFromBeingAway", n: 60, tenants: []tenant{{load: 3, to: 3}, {load: 3}, {load: 3}, {load: 3, from: 6}}},
		{name: "NoDebtOfThoseThatLeave", n: 60, tenants: []tenant{{load: 3, leave: 60}, {load: 3}}},
		{name: "AllLeave", n: 60, tenants: []tenant{{heap: 500, to: 5, everybody: true}, heavy, heavy}},
		{name: "HalfLeave", n: 600, tenants: []tenant{light, {weight: 2, load: 4, leave: 50}}},
		{name: "HalfLeaveWithoutShare", n: 600, tenants: []tenant{{load: 3, leave: 50, withoutOne: true}}},
	}
}

// some returns n tenants.
func some(n int, of func(int) tenant) (all []tenant) {
	for i := range n {
		all = append(all, of(i))
	}
	return all
}

// randomShares returns a random scene.
func randomShares(seed uint64) shareScene {
	r := rand.New(rand.NewPCG(seed, 7))
	s := shareScene{name: fmt.Sprint(seed), n: []int{40, 100, 200}[r.IntN(3)], phase: seed, random: true}
	dear := 1
	if r.IntN(3) == 0 {
		s.n, dear = 3000, 50
	}

	for range []int{2, 3, 10, 30}[r.IntN(4)] {
		a := tenant{weight: []int{0, 1, 2, 4, 8}[r.IntN(5)], load: []float64{0.1, 0.5, 0.9, 2, 4}[r.IntN(5)], most: 1 + r.IntN(dear)}
		a.leave = []int{0, 0, 0, 50}[r.IntN(4)]

		switch r.IntN(8) {
		case 0:
			a.heap, a.load = 50+r.IntN(500), 4
		case 1, 2:
			a.from = r.Float64() * shareWindows / 2
			a.to = a.from + 3 + r.Float64()*shareWindows/2
		}

		s.tenants = append(s.tenants, a)
	}

	return s
}

// charge is the charge of a caller.
func (s shareScene) charge(c sharer) store.Charge {
	k := charge("shares", store.PerSecond(s.n))
	k.Jitter, k.Pace = shareJitter, (900 * ms / time.Duration(s.n)).Truncate(tick)
	k.Cost, k.Share = c.cost, c.share
	return k
}

// rate is how much the budget serves in a second.
func (s shareScene) rate() float64 { return float64(s.n) / s.window().Seconds() }

// window is how long a start counts.
func (s shareScene) window() time.Duration { return sec + shareJitter + tick }

// windows returns the length of n windows.
func (s shareScene) windows(n float64) time.Duration {
	return time.Duration(n * float64(s.window())).Truncate(tick)
}

// part is a tenant's part of the rate if all ask for more than their parts.
func (s shareScene) part(i int) float64 {
	sum := 0
	for _, a := range s.tenants {
		sum += max(1, a.weight)
	}
	return s.rate() * float64(max(1, s.tenants[i].weight)) / float64(sum)
}

// opening is the share of the first callers, and shareOpening how many they are.
const (
	opening      = 2
	shareOpening = 20
)

// shareID is the share of the i-th tenant.
func (s shareScene) shareID(i int) uint64 {
	if s.tenants[i].withoutOne {
		return 0
	}
	return uint64(i) + 1000
}

// sharers returns all callers, in the order in which they come. Those of one tenant come evenly. Before
// them others use a whole window evenly: of an idle budget the first callers would have all
// at once, and room would come back at once ever after.
func (s shareScene) sharers() (all []sharer) {
	for i := range shareOpening {
		all = append(all, sharer{at: s.windows(float64(i) / shareOpening), cost: s.n / shareOpening, share: store.Share{ID: opening}})
	}

	r := rand.New(rand.NewPCG(s.phase, 8))
	for i, a := range s.tenants {
		least := max(1, a.least)
		from, to := s.windows(1+a.from), s.windows(cmp.Or(a.to, shareWarm+shareWindows-1)+1)
		comes := func(at time.Duration) {
			c := sharer{at: at.Truncate(tick), share: store.Share{ID: s.shareID(i), Weight: a.weight}, cost: least + r.IntN(max(least, a.most)-least+1)}
			if r.IntN(100) < a.leave {
				c.leaves = c.at + 600*ms + time.Duration(r.Int64N(int64(2*sec))).Truncate(tick)
			}
			if a.everybody {
				c.leaves = to
			}

			all = append(all, c)
		}

		for range a.heap {
			comes(from)
		}

		if a.load > 0 {
			gap := float64(least+max(least, a.most)) / 2 / (a.load * s.part(i)) * float64(sec)
			for at := float64(from) + r.Float64()*gap; at < float64(to); at += gap {
				comes(time.Duration(at))
			}
		}
	}

	slices.SortStableFunc(all, func(a, b sharer) int { return cmp.Compare(a.at, b.at) })
	return all
}

// isSteady reports whether all come all the time.
func (s shareScene) isSteady() bool {
	return !slices.ContainsFunc(s.tenants, func(a tenant) bool {
		return a.from > 0 || a.to > 0 || a.leave > 0 || a.everybody || a.heap > 0
	})
}
