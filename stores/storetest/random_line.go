package storetest

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/store"
)

const (
	lineSeeds  = 12
	lineVisits = 150
)

// randomLineChecks are the random runs about lines that belong to the contract.
func randomLineChecks() []check {
	return seeded("P5_RandomLine", lineSeeds, func(b *bench, seed uint64) { randomLine(b, seed, lineVisits) })
}

// RandomLine lets a number of random visits come to a store and wait, and compares what
// happens with the perfect queue. A failure names the seed. Run includes some seeds of it.
func RandomLine(t *testing.T, slack Slack, newStore func(*testing.T) store.Store, seed uint64, visits int) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newStore(t), "P5_RandomLine")
		b.slack = slack
		randomLine(b, seed, visits)
	})
}

// A lineRun is one plan carried out.
type lineRun struct {
	*bench
	seed     uint64
	plan     *plan
	visitors []*visitor
	want     []time.Duration // the perfect queue's starts, by visit
}

// randomLine carries out a random plan, and compares the starts with the perfect queue's.
func randomLine(b *bench, seed uint64, visits int) {
	b.Helper()
	r := &lineRun{bench: b, seed: seed, plan: newPlan(seed, visits)}
	r.carryOut()
	r.compare()
	r.nothingIsLeft()
}

// carryOut carries out the plan, and fails if a visit still waits some time after the perfect queue is
// done.
func (r *lineRun) carryOut() {
	r.Helper()
	events := r.plan.events
	happen := func(until time.Duration) {
		for len(events) > 0 && events[0].at <= until {
			e := events[0]
			events = events[1:]

			r.at(e.at)
			if e.pause == 0 {
				r.resume(e.charge)
			} else {
				r.pause(e.charge, e.pause)
			}

			synctest.Wait()
		}
	}

	// Visits and pauses happen in the order of their times.
	for _, v := range r.plan.visits {
		happen(v.at)
		r.at(v.at)
		synctest.Wait()
		r.visitors = append(r.visitors, r.visits(v))
	}

	happen(store.MaxAhead)
	refused := make(map[int]bool)
	for i, v := range r.visitors {
		refused[i] = v.refused
	}

	// The perfect queue must know who was refused: such visitors take no room.
	r.want = perfect(r.plan, r.zero, refused)
	r.failIfWaiting(r.patience())
}

// patience returns the time by which all visits must be over. It allows for two losses against the perfect queue: a pace wastes
// a part of a limit if costs differ, and room that is given back while all near starts are booked may stay unused.
func (r *lineRun) patience() time.Duration {
	end := max(r.plan.end(), slices.Max(r.want))
	for _, c := range r.plan.budgets {
		end += c.Limit.Per() + horizon
	}

	end += end/10 + r.slack.Start
	if r.plan.refunds {
		end *= 2
	}
	return end
}

// failIfWaiting fails if a visit still waits at a time.
func (r *lineRun) failIfWaiting(end time.Duration) {
	r.Helper()
	r.at(end)
	synctest.Wait()

	for i, v := range r.visitors {
		if v.waits() {
			r.failf("the visit %d (%s) still waits, at the time %v; the perfect queue begins it at %v",
				i, describe(r.plan.visits[i].booking), end, r.want[i])
		}
	}
}

// visits lets the visitor of a visit come, leave in time, and settle its cost.
func (r *lineRun) visits(v visit) *visitor {
	r.Helper()

	// The cost of the first charge may turn out to be different, a while after the start.
	var begins func(*visitor)
	if v.settled >= 0 {
		costs := []int{v.settled}
		for _, c := range v.booking.Charges[1:] {
			costs = append(costs, c.Cost)
		}

		begins = func(w *visitor) {
			known, stop := bubble.After(v.delay)
			defer stop()

			select {
			case <-known:
				w.b.settle(w.booking, w.grant, costs...)
			case <-w.b.Context().Done():
			}
		}
	}

	w := r.comesAnd(v.booking, begins)
	if v.maxWait > 0 {
		time.AfterFunc(v.maxWait, func() { close(w.left) })
	}

	return w
}

// compare compares what happened with the definitions.
func (r *lineRun) compare() {
	r.Helper()
	r.checkLawful()
	r.checkOrder()
	r.checkBusy()
}

// checkLawful fails if a limit is broken, if a visit begins while a budget is closed, or if a visit that does not wait
// begins later than it came.
func (r *lineRun) checkLawful() {
	r.Helper()
	l := newLedger()
	for i, v := range r.visitors {
		if v.start == never {
			continue
		}

		k, at := r.plan.visits[i].booking, r.zero.Add(v.start).UnixMicro()
		if came := r.plan.visits[i].at; k.MaxWait == 0 && v.start > came {
			r.failf("the visit %d, which does not wait, came at %v and begins at %v", i, came, v.start)
		}

		// Count the settled costs: the booked ones were given back.
		k.Charges = slices.Clone(k.Charges)
		if s := r.plan.visits[i].settled; s >= 0 {
			k.Charges[0].Cost = s
		}

		l.add(k, at)
		for _, e := range r.plan.events {
			isClosed := e.pause > 0 && e.at < v.start && v.start < r.opens(e)
			if isClosed && uses(k, e.charge) {
				r.failf("the visit %d begins at %v, and %s is closed until %v", i, v.start, e.charge.Budget.Policy, r.opens(e))
			}
		}
	}

	for _, c := range r.plan.budgets {
		if text := l.excess(c); text != "" {
			r.failf("%s", text)
		}
	}
}

// opens is when a pause is over, by itself or because it is ended.
func (r *lineRun) opens(e turnEvent) time.Duration {
	end := e.at + e.pause
	for _, o := range r.plan.events {
		if o.pause == 0 && o.charge.Budget == e.charge.Budget && o.at >= e.at {
			end = min(end, o.at)
		}
	}
	return end
}

// uses reports whether a booking needs a budget.
func uses(k store.Booking, c store.Charge) bool {
	return slices.ContainsFunc(k.Charges, func(o store.Charge) bool { return o.Budget == c.Budget })
}

// checkOrder compares each pair of visits a and b that need the same single budget, where a has the higher priority, or the same and
// came first. It fails if b begins before a. Any order is right in three cases:
//   - Both lost a start and came back.
//   - a came later or came back, and b had its start before a stood in line.
//   - a came later, and had its start before b had one.
//
// If a came first and had its start before b, b may have got a start that was given back: it may begin earlier by the horizon and a pace.
func (r *lineRun) checkOrder() {
	r.Helper()
	for j, b := range r.visitors {
		for i, a := range r.visitors {
			// Compare only visits that begin, and that need the same single budget.
			ofA, ofB := r.plan.visits[i].booking, r.plan.visits[j].booking
			bothBegin := i != j && a.start != never && b.start != never
			sameBudget := len(ofA.Charges) == 1 && len(ofB.Charges) == 1 && ofA.Charges[0].Budget == ofB.Charges[0].Budget
			if !bothBegin || !sameBudget {
				continue
			}

			// Compare only pairs of which a should begin before b.
			aIsLater := i > j
			bGoesFirst := ofA.Priority < ofB.Priority || ofA.Priority == ofB.Priority && aIsLater
			if bGoesFirst {
				continue
			}

			// The earliest start of b that is right.
			least := a.start - r.slack.Order
			bWasEarly := (a.lost || aIsLater) && b.since <= a.stood
			aHadStart := a.since <= b.since
			switch {
			case a.lost && b.lost, bWasEarly, aHadStart && aIsLater:
				continue
			case aHadStart:
				least -= horizon + ofA.Charges[0].Pace*time.Duration(ofA.Charges[0].Cost)
			}

			if b.start < least {
				r.failf("the visit %d (%s), which came at %v, begins at %v, before %d (%s), which came at %v and begins at %v",
					j, describe(ofB), r.plan.visits[j].at, b.start, i, describe(ofA), r.plan.visits[i].at, a.start)
			}
		}
	}
}

// checkBusy fails if the costs that began until some time are much less than those of the perfect queue until a little
// earlier. They may be less by one costly request, and by one more for each pause and resume. It leaves out budgets that visits need beside
// other budgets, because their arrivals in one line depend on the other lines, and budgets in which costs are settled, because room
// is given back when near starts are booked. Of these only the end is compared, in carryOut.
func (r *lineRun) checkBusy() {
	r.Helper()
	for _, c := range r.plan.budgets {
		isLeftOut := slices.ContainsFunc(r.plan.visits, func(v visit) bool {
			return uses(v.booking, c) && (len(v.booking.Charges) > 1 || v.settled >= 0)
		})
		if isLeftOut {
			continue
		}

		// At each start of the perfect queue, compare the costs that have begun in both queues. The store's may be a tenth
		// less, and a twentieth later.
		late := horizon + r.slack.Start + 50*ms + c.Pace*time.Duration(c.Limit.N())
		for i, at := range r.want {
			if at == never || r.visitors[i].start == never || !uses(r.plan.visits[i].booking, c) {
				continue
			}

			want := r.begun(c, r.want, at)
			got := r.begun(c, r.starts(), at+late+at/20)
			if got < want-want/10-c.Limit.Capacity()*(1+len(r.plan.events)) {
				r.failf("the starts of %s until %v cost %d, the perfect queue's until %v %d", sentence(c), at+late+at/20, got, at, want)
			}
		}
	}
}

// starts returns when the visits began.
func (r *lineRun) starts() (all []time.Duration) {
	for _, v := range r.visitors {
		all = append(all, v.start)
	}
	return all
}

// begun sums the costs of the visits that need the budget of c and begin by t, according to starts. It leaves out visits that did not begin
// in the store.
func (r *lineRun) begun(c store.Charge, starts []time.Duration, t time.Duration) (cost int) {
	for i, at := range starts {
		if k := r.plan.visits[i].booking; at != never && at <= t && r.visitors[i].start != never && uses(k, c) {
			cost += k.Charges[0].Cost
		}
	}
	return cost
}

// nothingIsLeft fails if a Status still shows something ten windows and a minute after all visits are over. A Wait may be as long as the
// jitter.
func (r *lineRun) nothingIsLeft() {
	r.Helper()
	longest := slices.MaxFunc(r.plan.budgets, func(a, b store.Charge) int { return cmp.Compare(a.Limit.Per(), b.Limit.Per()) })
	r.at(r.now() + 10*longest.Limit.Per() + time.Minute)
	for _, c := range r.plan.budgets {
		st, err := r.store.Status(r.Context(), c)
		if err != nil || st.Used != 0 || st.Waiting != 0 || st.Wait > c.Jitter || st.Paused != 0 {
			r.failf("status of %s when all are gone: %+v, %v", sentence(c), st, err)
		}
	}
}

// failf ends the run and says how to repeat it.
func (r *lineRun) failf(format string, args ...any) {
	r.Helper()
	r.fatalf("seed %d: "+format, append([]any{r.seed}, args...)...)
}
