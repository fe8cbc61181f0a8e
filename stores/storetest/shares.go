package storetest

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Shares checks that a store shares a budget out among the shares of its callers, as
// [store.Share] says: every share gets its part, a share that asks for little does not wait for the
// others, all of the limit is used, and Status tells who waits. It compares what happens with a fair queue that serves callers one by one.
// It plays the scenes whose names are for play, or all scenes if play is nil.
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
	asks := asksAt
	for _, c := range r.callers {
		for ; len(asks) > 0 && r.scene.windows(asks[0]) <= c.at; asks = asks[1:] {
			r.at(r.scene.windows(asks[0]))
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

	for i, v := range r.visitors {
		if !r.callers[i].leavesBy(r.end) && v.waits() {
			close(v.left)
		}
	}

	synctest.Wait()
}

// compare holds what happened against the definitions.
func (r *shareRun) compare() {
	r.Helper()
	var starts []time.Duration
	for _, v := range r.visitors {
		starts = append(starts, v.begun())
	}
	r.areTold()
	r.isLawful(starts)
	r.isInOrder(starts)
	r.isSoon(starts)
	r.areParts(starts, fair(r.callers, r.scene.rate()*r.isUsed(starts), r.end))
}

// isLawful: no window holds more than the limit.
func (r *shareRun) isLawful(starts []time.Duration) {
	r.Helper()
	var order []int
	for i, at := range starts {
		if at != never {
			order = append(order, i)
		}
	}

	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(starts[i], starts[j]) })
	first, sum := 0, 0
	for _, i := range order {
		for sum += r.callers[i].cost; starts[i]-starts[order[first]] > r.scene.window()-tick; first++ {
			sum -= r.callers[order[first]].cost
		}
		if sum > r.scene.n {
			r.fatalf("%s: starts from %v to %v cost %d, and the limit is %d", r.scene.name, starts[order[first]], starts[i], sum, r.scene.n)
		}
	}
}

// areParts: each share's starts over ten windows are the fair queue's, within 5 % and two
// of its callers. Starts within the horizon are booked already when callers come and go; the room they
// leave of that, if they ask for little, is a large part of what one other share gets.
func (r *shareRun) areParts(starts, want []time.Duration) {
	r.Helper()
	for i, a := range r.scene.tenants {
		got, fair := r.served(i, starts), r.served(i, want)
		most := 0.05*float64(fair) + 2*float64(max(1, a.most))
		switch {
		case r.scene.random:
			most += r.scene.rate() * shareHorizon.Seconds()
		case !r.scene.isSteady():
			most += r.scene.part(i) * shareHorizon.Seconds()
		}

		if off := float64(got - fair); max(off, -off) > most {
			r.errorf("%s: the share %d of %d, %+v, got %d in %d windows, want %d",
				r.scene.name, i, len(r.scene.tenants), a, got, shareWindows, fair)
		}
	}
}

// isUsed: of the fair queue's starts, 98 % are used; 88 % if costs differ, as without shares, or in a random
// scene. It returns how much was used if that is less than all.
func (r *shareRun) isUsed(starts []time.Duration) float64 {
	r.Helper()
	want := fair(r.callers, r.scene.rate(), r.end)

	got, fair, least := 0, 0, 0.98
	for i, a := range r.scene.tenants {
		got, fair = got+r.served(i, starts), fair+r.served(i, want)
		if a.most > 1 || r.scene.random {
			least = 0.88
		}
	}

	if used := float64(got) / float64(fair); used < least {
		r.errorf("%s: starts cost %d in %d windows, the fair queue's %d", r.scene.name, got, shareWindows, fair)
	} else if least < 0.98 {
		return min(1, used)
	}

	return 1
}

// isSoon: callers of a share that asks for a tenth of its part start within 0.3 s and the time
// that their cost takes of the part. In the first windows there may be no room: a budget that was
// idle lets a window's starts go at once.
func (r *shareRun) isSoon(starts []time.Duration) {
	r.Helper()
	for i, a := range r.scene.tenants {
		if a.load == 0 || a.load > 0.1 || a.heap > 0 {
			continue
		}

		for j, c := range r.callers {
			most := 300*ms + time.Duration(float64(c.cost)/r.scene.part(i)*float64(sec)) + r.slack.Start
			if r.scene.random {
				most += 50 * ms
			}

			switch {
			case c.share.ID != r.scene.shareID(i) || c.leaves > 0 || c.at < r.scene.windows(shareWarm) || c.at+most > r.end:
			case starts[j] == never:
				r.fatalf("%s: a caller of the light share %d came at %v and has not started at %v", r.scene.name, i, c.at, r.end)
			case starts[j]-c.at > most:
				r.fatalf("%s: a caller of the light share %d came at %v and starts at %v, %v later; want at most %v",
					r.scene.name, i, c.at, starts[j], starts[j]-c.at, most)
			}
		}
	}
}

// isInOrder: within a share the first to come is the first served. A start that is booked already stays
// where it is if a later caller finds a start that was given back.
func (r *shareRun) isInOrder(starts []time.Duration) {
	r.Helper()
	last := make(map[uint64]int)
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
func (r *shareRun) served(i int, starts []time.Duration) (sum int) {
	for j, at := range starts {
		if at >= r.scene.windows(shareWarm) && at < r.end && r.callers[j].share.ID == r.scene.shareID(i) {
			sum += r.callers[j].cost
		}
	}
	return sum
}
