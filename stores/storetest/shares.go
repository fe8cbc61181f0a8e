package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Shares checks that a store shares a budget out among the shares of its callers, as
// [store.Share] says: every share gets its part, a share that asks for little does not wait for the
// others, all of the limit is used, and Status tells who waits. It compares what happens with a fair queue that serves callers one by one.
// It plays the scenes for whose names play returns true, or all scenes if play is nil.
func Shares(t *testing.T, slack Slack, newStore func(*testing.T) store.Store, play func(name string) bool) {
	for _, s := range shareScenes() {
		if play == nil || play(s.name) {
			t.Run("P5_Shares"+s.name, func(t *testing.T) { s.play(t, slack, newStore) })
		}
	}
}

// RandomShares is Shares for a random scene. A failure names the seed.
func RandomShares(t *testing.T, slack Slack, newStore func(*testing.T) store.Store, seed uint64) {
	randomShares(seed).play(t, slack, newStore)
}

// play lets all callers come to a store, and compares their starts with the fair queue's.
func (s shareScene) play(t *testing.T, slack Slack, newStore func(*testing.T) store.Store) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newStore(t), "P5_Shares")
		b.slack = slack
		r := &shareRun{bench: b, scene: s, callers: s.sharers(), end: s.windows(shareWarm + shareWindows)}
		r.carryOut()
		r.compare()
	})
}

// A shareRun is one scene of shares carried out.
type shareRun struct {
	*bench
	scene    shareScene
	callers  []sharer
	visitors []*visitor
	told     []shareTold // the store's reports on shares, by time
	end      time.Duration
}

// carryOut lets all of the callers come. Those that still wait in the end leave.
func (r *shareRun) carryOut() {
	r.Helper()
	moments := asksAt
	for _, c := range r.callers {
		// At some moments the store is asked about the shares.
		for ; len(moments) > 0 && r.scene.windows(moments[0]) <= c.at; moments = moments[1:] {
			r.at(r.scene.windows(moments[0]))
			r.asks()
		}

		r.at(c.at)
		v := r.comes(store.Booking{Charges: []store.Charge{r.scene.charge(c)}, MaxWait: store.AnyWait, Horizon: shareHorizon})
		r.visitors = append(r.visitors, v)
		if c.leavesBy(r.end) {
			time.AfterFunc(c.leaves-r.now(), func() { close(v.left) })
		}
	}

	r.at(r.end)
	synctest.Wait()

	// Nobody stays behind in the bubble of the test.
	for i, v := range r.visitors {
		if !r.callers[i].leavesBy(r.end) && v.waits() {
			close(v.left)
		}
	}

	synctest.Wait()
}

// compare compares the starts and the reports with the definitions.
func (r *shareRun) compare() {
	r.Helper()
	var starts []time.Duration
	for _, v := range r.visitors {
		starts = append(starts, v.begun())
	}
	r.checkReports()
	r.checkLimit(starts)
	r.checkOrder(starts)
	r.checkLightShares(starts)

	// Each share has its part of what is used.
	used := r.checkUse(starts)
	r.checkParts(starts, fair(r.callers, r.scene.rate()*used, r.end))
}

// checkLimit fails if a window holds more than the limit.
func (r *shareRun) checkLimit(starts []time.Duration) {
	r.Helper()
	var order []int
	for i, at := range starts {
		if at != never {
			order = append(order, i)
		}
	}

	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(starts[i], starts[j]) })

	// Move a window over the starts, and keep the sum of its costs. Starts that are a window or more apart share none. Starts are whole ticks.
	first, sum := 0, 0
	for _, i := range order {
		sum += r.callers[i].cost
		for starts[i]-starts[order[first]] > r.scene.window()-tick {
			sum -= r.callers[order[first]].cost
			first++
		}
		if sum > r.scene.n {
			r.fatalf("%s: starts from %v to %v cost %d, and the limit is %d", r.scene.name, starts[order[first]], starts[i], sum, r.scene.n)
		}
	}
}

// checkParts fails if the starts of a share over ten windows differ from the fair queue's by more than 5 % and two
// callers. want has the fair queue's starts. Where callers come and go, the starts may differ by those within the horizon, too:
// these are booked before the callers come or go.
func (r *shareRun) checkParts(starts, want []time.Duration) {
	r.Helper()
	for i, a := range r.scene.tenants {
		got, due := r.served(i, starts), r.served(i, want)
		tolerance := 0.05*float64(due) + 2*float64(max(1, a.most))
		switch {
		case r.scene.random:
			tolerance += r.scene.rate() * shareHorizon.Seconds()
		case !r.scene.isSteady():
			tolerance += r.scene.part(i) * shareHorizon.Seconds()
		}

		if off := float64(got - due); max(off, -off) > tolerance {
			r.errorf("%s: the share %d of %d, %+v, got %d in %d windows, want %d",
				r.scene.name, i, len(r.scene.tenants), a, got, shareWindows, due)
		}
	}
}

// checkUse fails if less than 98 % of the fair queue's starts are used. Where costs differ, and in a random scene, 88 % are
// enough, and checkUse returns the part that is used, at most 1. In all other cases it returns 1.
func (r *shareRun) checkUse(starts []time.Duration) float64 {
	r.Helper()
	want := fair(r.callers, r.scene.rate(), r.end)

	got, due, isUneven := 0, 0, r.scene.random
	for i, a := range r.scene.tenants {
		got, due = got+r.served(i, starts), due+r.served(i, want)
		isUneven = isUneven || a.most > 1
	}

	least := 0.98
	if isUneven {
		least = 0.88
	}
	if used := float64(got) / float64(due); used < least {
		r.errorf("%s: starts cost %d in %d windows, the fair queue's %d", r.scene.name, got, shareWindows, due)
	} else if isUneven {
		return min(1, used)
	}

	return 1
}

// checkLightShares fails if a caller of a light share waits too long. A share is light if it asks for at most a tenth of
// its part of the limit. Its caller may wait 0.3 s, in a random scene 0.35 s, and as long as the share's part takes to
// bring the caller's cost. Callers of the first windows are left out: a budget that was idle starts a whole window's
// cost at once.
func (r *shareRun) checkLightShares(starts []time.Duration) {
	r.Helper()
	for i, a := range r.scene.tenants {
		isLight := 0 < a.load && a.load <= 0.1 && a.heap == 0
		if !isLight {
			continue
		}

		for j, c := range r.callers {
			longest := 300*ms + time.Duration(float64(c.cost)/r.scene.part(i)*float64(sec)) + r.slack.Start
			if r.scene.random {
				longest += 50 * ms
			}

			// Leave out callers of other shares, those that may leave before their start, and those that come too early or too late.
			staysInShare := c.share.ID == r.scene.shareID(i) && c.leaves == 0
			comesInTime := c.at >= r.scene.windows(shareWarm) && c.at+longest <= r.end
			if !staysInShare || !comesInTime {
				continue
			}

			switch {
			case starts[j] == never:
				r.fatalf("%s: a caller of the light share %d came at %v and has not started at %v", r.scene.name, i, c.at, r.end)
			case starts[j]-c.at > longest:
				r.fatalf("%s: a caller of the light share %d came at %v and starts at %v, %v later; want at most %v",
					r.scene.name, i, c.at, starts[j], starts[j]-c.at, longest)
			}
		}
	}
}

// checkOrder fails if a caller starts before an earlier caller of its share by more than the horizon. By less it may: a start
// that is booked stays where it is if a later caller finds a start that was given back.
func (r *shareRun) checkOrder(starts []time.Duration) {
	r.Helper()
	last := make(map[uint64]int) // by share, the caller that starts last of those before
	for j, c := range r.callers {
		if starts[j] == never {
			continue
		}

		if i, ok := last[c.share.ID]; ok && starts[j] < starts[i]-shareHorizon-r.slack.Order {
			r.errorf("%s: a caller of the share %d came at %v and starts at %v, before one that came at %v and starts at %v",
				r.scene.name, c.share.ID, c.at, starts[j], r.callers[i].at, starts[i])
			return
		}

		if i, ok := last[c.share.ID]; !ok || starts[j] > starts[i] {
			last[c.share.ID] = j
		}
	}
}

// served sums the costs of the i-th tenant's callers that started after the first windows.
func (r *shareRun) served(i int, starts []time.Duration) (cost int) {
	for j, at := range starts {
		if at >= r.scene.windows(shareWarm) && at < r.end && r.callers[j].share.ID == r.scene.shareID(i) {
			cost += r.callers[j].cost
		}
	}
	return cost
}

// A shareTold is a store's report on the shares of a budget at one moment, and the true report, by ID.
type shareTold struct {
	at            time.Duration
	told          map[uint64]store.ShareStatus
	waits, booked map[uint64]int // the costs of the callers in line, and of the callers that have had their turn
	weights       map[uint64]int
}

// asksAt are the windows after which the store is asked for its report.
var asksAt = []float64{6, 7.3, 9}

// asks asks the store about the shares of the budget, and notes the answer with the true report. It fails if the store
// names a wrong number of callers.
func (r *shareRun) asks() {
	r.Helper()
	synctest.Wait()

	st, err := r.store.Status(r.Context(), r.scene.charge(sharer{cost: 1}))
	if err != nil {
		r.fatalf("Status at %v: %v", r.now(), err)
	}

	// The store's report, by share.
	a := shareTold{
		at: r.now(), told: make(map[uint64]store.ShareStatus),
		waits: make(map[uint64]int), booked: make(map[uint64]int), weights: make(map[uint64]int),
	}
	for i, s := range st.Shares {
		if i > 0 && s.ID <= st.Shares[i-1].ID {
			r.fatalf("%s: the shares at %v are not by ID: %v", r.scene.name, a.at, st.Shares)
		}
		a.told[s.ID] = s
	}

	// The true report, by share.
	callers := 0
	for i, v := range r.visitors {
		c := &r.callers[i]
		a.weights[c.share.ID] = max(1, c.share.Weight)
		v.mu.Lock()

		switch {
		case v.grant.OK || v.start != never:
			a.booked[c.share.ID] += c.cost
		case !v.over:
			a.waits[c.share.ID] += c.cost
			callers++
		}

		v.mu.Unlock()
	}

	if st.Callers != callers {
		r.errorf("%s: at %v the store tells of %d callers in line, and there are %d", r.scene.name, a.at, st.Callers, callers)
	}

	r.told = append(r.told, a)
}

// checkReports fails if a report names a wrong cost or weight of the callers that wait, by share. Of the shares that wait all
// the time, it also compares the cost that was served between two reports.
func (r *shareRun) checkReports() {
	r.Helper()
	for i, a := range r.told {
		if len(a.told) == 0 && len(a.waits) == 1 && a.waits[0] > 0 {
			continue // only callers without a share wait
		}

		for id, waits := range a.waits {
			s := a.told[id]
			if s.Waiting != waits || s.Weight != a.weights[id] {
				r.errorf("%s: at %v the store tells %+v of the share %d, of weight %d, of which %d wait", r.scene.name, a.at, s, id, a.weights[id], waits)
			}
			if i == 0 || r.scene.random || !r.isAlways(id) {
				continue
			}

			// What was served between two reports is known only if the share waits all the time.
			before := r.told[i-1]
			if got, want := s.Served-before.told[id].Served, a.booked[id]-before.booked[id]; got != want {
				r.errorf("%s: from %v to %v the share %d was served %d, and the store tells %d", r.scene.name, before.at, a.at, id, want, got)
			}
		}

		// A share without waiters must not be in the report.
		for id, s := range a.told {
			if a.waits[id] != s.Waiting {
				r.errorf("%s: at %v the store tells %+v, and nobody of that share waits", r.scene.name, a.at, s)
			}
		}
	}
}

// isAlways reports whether callers of a share wait between the times at which the store is asked: they ask for far more than their part.
func (r *shareRun) isAlways(id uint64) bool {
	for i, a := range r.scene.tenants {
		if r.scene.shareID(i) == id {
			return a.load >= 2 && a.from == 0 && a.to == 0 && a.leave == 0
		}
	}
	return false
}

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
	random  bool   // a scene of a seed, in which a rare event may happen
}

// A tenant is the callers of one share.
type tenant struct {
	weight    int
	load      float64 // how much the callers ask for, as a multiple of the share's part
	least     int     // the least cost of a caller
	most      int     // the highest cost of a caller
	heap      int     // how many more callers come at the begin
	from, to  float64 // the windows between which the callers come. If to is 0, they come until the end.
	leave     int     // how many of a hundred leave after 0.6 to 2.6 s
	everybody bool    // all that still wait at to leave
	shareless bool    // the callers have no share
}

// shareScenes are the scenes of the contract.
func shareScenes() []shareScene {
	// A light tenant asks for a tenth of its part, and a heavy one for four times its part.
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
		{name: "LightBesideCallersWithoutShare", n: 40, tenants: []tenant{light, {heap: 1000, shareless: true}}},
		{name: "Weights", n: 80, tenants: []tenant{{weight: 1, load: 3}, {weight: 2, load: 3}, {weight: 4, load: 3}}},
		{name: "LeavesTheRest", n: 60, tenants: []tenant{{load: 0.2}, {load: 0.6}, {load: 5}}},
		{name: "Ten", n: 100, tenants: some(10, ten)},
		{name: "Hundred", n: 300, tenants: some(100, hundred)},
		{name: "Costs", n: 3000, tenants: some(4, costs)},
		{name: "NoCreditFromBeingAway", n: 60, tenants: []tenant{{load: 3, to: 3}, {load: 3}, {load: 3}, {load: 3, from: 6}}},
		{name: "NoDebtOfThoseThatLeave", n: 60, tenants: []tenant{{load: 3, leave: 60}, {load: 3}}},
		{name: "AllLeave", n: 60, tenants: []tenant{{heap: 500, to: 5, everybody: true}, heavy, heavy}},
		{name: "HalfLeave", n: 600, tenants: []tenant{light, {weight: 2, load: 4, leave: 50}}},
		{name: "HalfLeaveWithoutShare", n: 600, tenants: []tenant{{load: 3, leave: 50, shareless: true}}},
	}
}

// some returns n tenants, which of makes.
func some(n int, of func(int) tenant) (all []tenant) {
	for i := range n {
		all = append(all, of(i))
	}
	return all
}

// randomShares returns the random scene of a seed.
func randomShares(seed uint64) shareScene {
	r := rand.New(rand.NewPCG(seed, 7))
	s := shareScene{name: fmt.Sprint(seed), n: []int{40, 100, 200}[r.IntN(3)], phase: seed, random: true}

	// A third of the scenes has costs of up to 50 under a large limit.
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

// charge returns the charge of a caller.
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
	weights := 0
	for _, a := range s.tenants {
		weights += max(1, a.weight)
	}
	return s.rate() * float64(max(1, s.tenants[i].weight)) / float64(weights)
}

const (
	openingShare   = 2  // the share of the first callers
	openingCallers = 20 // how many these are
)

// shareID is the share of the i-th tenant, or 0 if its callers have none.
func (s shareScene) shareID(i int) uint64 {
	if s.tenants[i].shareless {
		return 0
	}
	return uint64(i) + 1000
}

// sharers returns all callers, in the order in which they come. The tenants come after an opening, whose callers are of a
// further share and use one whole window evenly. Without the opening the first callers would use the idle budget at once, and
// its room would come back at once in each later window.
func (s shareScene) sharers() (all []sharer) {
	// The callers of the first window.
	for i := range openingCallers {
		all = append(all, sharer{at: s.windows(float64(i) / openingCallers), cost: s.n / openingCallers, share: store.Share{ID: openingShare}})
	}

	r := rand.New(rand.NewPCG(s.phase, 8))
	for i, a := range s.tenants {
		least := max(1, a.least)
		most := max(least, a.most)

		// The window of the opening comes before the tenant's windows.
		from, to := s.windows(1+a.from), s.windows(1+cmp.Or(a.to, shareWarm+shareWindows-1))
		add := func(at time.Duration) {
			c := sharer{at: at.Truncate(tick), share: store.Share{ID: s.shareID(i), Weight: a.weight}, cost: least + r.IntN(most-least+1)}
			if r.IntN(100) < a.leave {
				c.leaves = c.at + 600*ms + time.Duration(r.Int64N(int64(2*sec))).Truncate(tick)
			}
			if a.everybody {
				c.leaves = to
			}

			all = append(all, c)
		}

		// A heap comes at one moment, and a load evenly.
		for range a.heap {
			add(from)
		}

		if a.load > 0 {
			// The mean cost divided by the cost per second that the tenant asks for.
			apart := float64(least+most) / 2 / (a.load * s.part(i)) * float64(sec)
			for at := float64(from) + r.Float64()*apart; at < float64(to); at += apart {
				add(time.Duration(at))
			}
		}
	}

	slices.SortStableFunc(all, func(a, b sharer) int { return cmp.Compare(a.at, b.at) })
	return all
}

// isSteady reports whether the callers of all tenants come all the time, and stay.
func (s shareScene) isSteady() bool {
	return !slices.ContainsFunc(s.tenants, func(a tenant) bool {
		return a.from > 0 || a.to > 0 || a.leave > 0 || a.everybody || a.heap > 0
	})
}
