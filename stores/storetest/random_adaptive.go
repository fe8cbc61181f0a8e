package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// adaptiveRandomChecks are random runs in which upstreams refuse starts in spite of room.
func adaptiveRandomChecks() []check {
	return seeded("P1_RandomAdaptive", randomSeeds, func(b *bench, seed uint64) {
		b.Helper()
		w := newAdaptiveWorld(b, seed)
		for w.op = range randomOps {
			if w.chance(6) {
				w.refuse()
			} else {
				w.step()
			}

			if w.op%50 == 49 {
				time.Sleep(w.duration(3 * time.Minute)) // ceilings take their time
			}
		}

		w.count()
	})
}

// newAdaptiveWorld returns a world most of whose budgets learn. Its limits are small: under a large one a store
// may join starts, and then find a window fuller than it was.
func newAdaptiveWorld(b *bench, seed uint64) *world {
	w := newWorld(b, seed, exact, false)
	w.settles = false
	for i := range w.budgets {
		w.adapt(&w.budgets[i])
	}
	return w
}

// adapt gives a budget a limit with windows of one length, and mostly has it learn. Other limits are left out: how a store counts
// the rest of a pace or a bucket, while the ceiling rises, is its own affair.
func (w *world) adapt(c *store.Charge) {
	isWindow := func(l store.Limit) bool {
		return (l.Kind() == store.KindSlidingWindow || l.Kind() == store.KindFixedWindow) && l.Per() != 0
	}
	for !isWindow(c.Limit) {
		c.Limit, c.Jitter = w.limit()
	}
	if c.Limit.Kind() != store.KindSlidingWindow {
		c.Pace = 0
	}
	c.Adaptive = !w.chance(10)
}

// refuse tells the store and the truth that the upstream refused one of the latest starts,
// and compares the ceilings. It does nothing if the start is still to come, or if a store may have forgotten
// a part of the window of the start.
func (w *world) refuse() {
	w.Helper()
	if len(w.grants) == 0 {
		return
	}

	g := w.grants[len(w.grants)-1-w.rng.IntN(min(5, len(w.grants)))]
	now := w.clock()
	c := g.booking.Charges[w.rng.IntN(len(g.booking.Charges))]

	// A store that has forgotten a part of the window does not know how full it was.
	isForgotten := func(s stay) bool { return s.at <= g.at && over(c, s) > g.at && over(c, s) <= now }
	isOver := over(c, stay{at: g.at, until: g.at}) <= now
	if g.at > now || isOver || slices.ContainsFunc(w.truth.stays[c.Budget.Key], isForgotten) {
		return
	}

	d := w.duration([]time.Duration{0, 100 * ms, 2 * sec}[w.rng.IntN(3)])
	ago := w.duration(time.Duration(now-g.at) * tick)
	from, to, err := w.store.Refuse(w.Context(), c, store.Refusal{Length: d, Ago: ago, Start: g.grant})
	if err != nil {
		w.failf("Refuse: %v", err)
	}

	wantFrom, wantTo := w.truth.learn(c, g.at, now)
	w.truth.shut(c, now, d, max(tick, ago)) // 0 would be no refusal

	if from != wantFrom || to != wantTo {
		w.failf("refusal of the start at %d in %s (%s) at %d: ceiling from %v to %v, want %v and %v",
			g.at, c.Budget.Policy, sentence(c), now, from, to, wantFrom, wantTo)
	}
}

// settleOne settles one of the latest starts, past or to come, in the store and in
// the truth. It does nothing if there is none, and forgets a start whose limits have changed.
func (w *world) settleOne() {
	w.Helper()
	old, ok := w.take()
	if !ok || !w.current(old.booking) {
		return
	}

	costs := make([]int, len(old.booking.Charges))
	for i, c := range old.booking.Charges {
		costs[i] = w.trueCost(c, old)
	}

	w.settle(old.booking, old.grant, costs...)
	w.truth.settle(old.booking, old.at, w.clock(), costs)

	// Remember the start with its true cost, so that it is replaced or cancelled later.
	old.booking.Charges = slices.Clone(old.booking.Charges)
	for i := range costs {
		c := &old.booking.Charges[i]
		c.Cost = costs[i]
		if c.Cost < 1 || c.Cost > c.Limit.Capacity()-c.KeepFree {
			return // nobody books that again
		}
		if !isOpen(*c) && !slices.Contains(w.truth.stays[c.Budget.Key], stayOf(*c, old.booking.Spread, old.at)) {
			return // it was over before its cost was known: only booked costs are given back
		}
	}

	w.grants = append(w.grants, old)
}

// trueCost is the cost that a start turns out to have: less, the same, or more, even
// above the limit of a window. A pace and a bucket are not overdrawn: there a
// store may be more careful, or forget the excess over a full bucket once
// nothing has happened for as long as it takes to fill the bucket. A window that a cost may overdraw is noted
// in above.
func (w *world) trueCost(c store.Charge, g granted) int {
	cost := w.rng.IntN(c.Cost + 1)
	if w.chance(50) {
		cost = c.Cost + w.rng.IntN(c.Limit.Capacity()+1)
	}
	if w.chance(3) {
		cost = maxCost
	}
	if cost <= c.Cost {
		return cost
	}
	if k := c.Limit.Kind(); k == store.KindLeakyBucket || k == store.KindTokenBucket {
		return w.affordable(c, g, min(cost, c.Limit.Capacity()))
	}

	w.above[c.Budget.Key] = true
	return cost
}

// affordable returns a cost if the limit allows a start of that cost beside the other starts, and otherwise the booked cost.
func (w *world) affordable(c store.Charge, g granted, cost int) int {
	s := stayOf(c, g.booking.Spread, g.at)
	others := slices.Clone(w.truth.stays[c.Budget.Key])
	if i := slices.Index(others, s); i >= 0 {
		others = slices.Delete(others, i, i+1)
	}
	s.cost, c.KeepFree = cost, 0 // a settled cost need not keep anything free
	if !fits(c, others, s) {
		return c.Cost
	}
	return cost
}

// stateQuota has the upstream of a random budget state how much of its quota is left, less or more than
// the starts say, to the store and to the model. A bucket with starts to come is left alone: the contract
// does not say how far ahead a store sees in an overdrawn bucket.
func (w *world) stateQuota() {
	w.Helper()
	c, now := w.budgets[w.rng.IntN(len(w.budgets))], w.clock()
	stays := w.truth.stays[c.Budget.Key]
	if c.Limit.Kind() == store.KindTokenBucket && slices.ContainsFunc(stays, func(s stay) bool { return s.at > now }) {
		return
	}

	// From -1, which counts as 0, to the capacity.
	q := store.Quota{Left: w.rng.IntN(c.Limit.Capacity()+2) - 1, Reset: w.duration(3 * sec)}

	// A store keeps the probe of a penalty longer than other starts, so nothing is stated of the past while the penalty counts.
	if w.chance(50) && !w.slow(c) {
		q.Age = w.duration(3 * sec)
	}

	w.states(c, q)
	w.truth.reconcile(c, q, now)

	// Starts of others that the model booked now may exceed the limit: count does not check this budget any more.
	if len(w.truth.stays[c.Budget.Key]) > len(stays) {
		w.above[c.Budget.Key] = true
	}
}

// A planner makes a random plan.
type planner struct {
	*rand.Rand
	plan
	leavers  int  // how many of a hundred leave
	settled  int  // how many of a hundred are settled
	headroom bool // visits of low priority have a KeepFree
}

// newPlan returns the random plan of a seed, with that many visits.
func newPlan(seed uint64, visits int) *plan {
	p := &planner{Rand: rand.New(rand.NewPCG(seed, 2))}
	p.leavers, p.headroom = []int{0, 30, 60}[p.IntN(3)], p.IntN(2) == 0
	p.settled = []int{0, 0, 50}[p.IntN(3)]
	p.refunds = p.settled > 0

	for i := range 1 + p.IntN(3) {
		p.budgets = append(p.budgets, p.budget(i))
	}

	// Visits come at random times, at a rate that leaves budgets partly idle or overloads them. Some come as a crowd.
	load := []float64{0.6, 0.9, 1.2, 2}[p.IntN(4)]
	apart := time.Duration(float64(p.perCost()) / load)
	for t := time.Duration(0); len(p.visits) < visits; {
		crowd := 1
		if p.IntN(20) == 0 {
			crowd = 1 + p.IntN(20)
		}

		for range min(crowd, visits-len(p.visits)) {
			p.visits = append(p.visits, p.visit(t))
			t += time.Duration(float64(apart) * p.ExpFloat64()).Truncate(tick)
		}

		if crowd > 1 && p.IntN(2) == 0 {
			t += p.length(time.Second)
		}
	}

	// Some budgets are closed for a while, and some of these are opened early.
	for range p.IntN(3) {
		at := p.length(p.plan.end())
		e := turnEvent{at, p.budgets[p.IntN(len(p.budgets))], p.length(2*sec) + ms}
		p.events = append(p.events, e)
		if p.IntN(2) == 0 {
			p.events = append(p.events, turnEvent{at + p.length(e.pause), e.charge, 0})
		}
	}

	slices.SortFunc(p.events, func(a, b turnEvent) int { return cmp.Compare(a.at, b.at) })
	return &p.plan
}

// length returns a random length of at most the given bound.
func (p *planner) length(most time.Duration) time.Duration {
	return time.Duration(p.Int64N(int64(most) + 1)).Truncate(tick)
}

// budget returns a random limit of some 2 to 50 a second.
func (p *planner) budget(i int) store.Charge {
	per := []time.Duration{200 * ms, 500 * ms, sec, sec + tick, 2 * sec, 5 * sec}[p.IntN(6)]
	n := 1 + int(per/(20*ms+p.length(300*ms)))
	c := charge(fmt.Sprint("line ", i), store.Limit{})

	// Sliding windows are drawn most often, half of them with a pace.
	switch p.IntN(8) {
	case 0, 1:
		c.Limit = store.SlidingWindow(n, per)
	case 2, 3:
		c.Limit = store.SlidingWindow(n, per)
		c.Pace = per * 9 / 10
		if per > 2*sec {
			c.Pace = []time.Duration{250 * ms, per/2 + sec}[n%2] // throttle's own, or a longer one
		}
		c.Pace = (c.Pace / time.Duration(n)).Truncate(tick)

	case 4:
		c.Limit = store.FixedWindow(n, per)
	case 5:
		c.Limit = store.LeakyBucket(n, per)
	default:
		c.Limit = store.TokenBucket(n, per, 1+p.IntN(n))
	}

	if p.IntN(3) == 0 {
		c.Jitter = p.length(per / 10)
	}

	return c
}

// perCost is about the mean time between visits at which the budgets are just busy.
func (p *planner) perCost() (d time.Duration) {
	for _, c := range p.budgets {
		d += c.Limit.Per() / time.Duration(c.Limit.N())
	}

	// The mean of the budgets. A visit costs 1.5 on average, and most visits need one of the budgets only.
	return d * 3 / 2 / time.Duration(len(p.budgets)*len(p.budgets))
}

// visit returns a random visit.
func (p *planner) visit(at time.Duration) visit {
	v := visit{at: at, settled: -1}
	v.booking.Horizon, v.booking.MaxWait = horizon, -1
	v.booking.Priority = []store.Priority{store.PriorityNormal, store.PriorityNormal, store.PriorityNormal, store.PriorityHigh, store.PriorityLow}[p.IntN(5)]

	// Most wait for as long as it takes.
	switch p.IntN(20) {
	case 0, 1:
		v.booking.MaxWait = p.length(5 * sec)
	case 2:
		v.booking.MaxWait = 0
	}

	// Most need one budget.
	budgets := 1
	if p.IntN(4) == 0 {
		budgets = 1 + p.IntN(len(p.budgets))
	}

	// Most cost 1, some a little more, and a few as much as fits.
	for _, i := range p.Perm(len(p.budgets))[:budgets] {
		c, most := p.budgets[i], p.budgets[i].Limit.Capacity()
		switch p.IntN(12) {
		case 0:
			c.Cost = 1 + p.IntN(most)
		case 1, 2:
			c.Cost = 1 + p.IntN(min(most, 3))
		}

		if p.headroom && v.booking.Priority == store.PriorityLow && c.Limit.Kind() != store.KindLeakyBucket {
			c.KeepFree = min(most/4, most-c.Cost)
		}

		v.booking.Charges = append(v.booking.Charges, c)
	}

	// Some leave before their start, and some settle their cost after it.
	if p.IntN(100) < p.leavers {
		v.maxWait = p.length(3*sec) + tick
	}
	if p.IntN(100) < p.settled {
		v.settled, v.delay = p.IntN(v.booking.Charges[0].Cost+1), p.length(500*ms)
	}

	return v
}

// limit returns a random limit and a jitter that goes with it.
func (w *world) limit() (store.Limit, time.Duration) {
	if w.odd {
		return w.oddWindow()
	}

	// Short windows, so that many pass. Some lengths are no round numbers, and some limits are large.
	lengths := []time.Duration{50 * ms, 200 * ms, 333333 * tick, sec, sec + tick, 3 * sec}
	per, n := lengths[w.rng.IntN(len(lengths))], 1+w.rng.IntN(20)
	switch {
	case w.chance(15):
		n = 1 + w.rng.IntN(100)
	case w.mood != exact && w.chance(30):
		n = 1 + w.rng.IntN(3000)
	}

	jitter := time.Duration(0)
	if w.chance(60) {
		jitter = w.duration(per / 4)
	}

	switch r := w.rng.IntN(100); {
	case r < 45:
		return store.SlidingWindow(n, per), jitter
	case r < 63:
		return store.FixedWindow(n, per), jitter
	case r < 76:
		return store.LeakyBucket(n, per), jitter
	case r < 83 && w.mood != changing:
		return store.Unlimited(), jitter
	case r < 93:
		return store.TokenBucket(n, per, w.burst(n)), jitter
	case w.mood == changing:
		return store.SlidingWindow(n, 10*per), jitter
	default:
		zone := time.FixedZone("somewhere", 60*60*w.rng.IntN(24)-12*60*60)
		return store.CalendarWindow(n, store.Day, zone), jitter
	}
}

// oddWindow returns a window with fixed edges that divides no second.
func (w *world) oddWindow() (store.Limit, time.Duration) {
	lengths := []time.Duration{333 * ms, 700 * ms, 1399 * ms, 3333333 * tick, 7 * sec, 50021 * tick}
	per, n := lengths[w.rng.IntN(len(lengths))], 1+w.rng.IntN(12)
	if w.mood != exact && w.chance(30) {
		n = 1 + w.rng.IntN(1000)
	}
	jitter := time.Duration(0)
	if w.chance(40) {
		jitter = w.duration(per / 4)
	}
	return store.FixedWindow(n, per), jitter
}

// burst returns a random burst, which is often small beside the n that flow in.
func (w *world) burst(n int) int {
	if w.chance(60) {
		return 1 + w.rng.IntN(10)
	}
	return 1 + w.rng.IntN(n)
}

// booking returns a random booking of one to three budgets.
func (w *world) booking() store.Booking {
	var k store.Booking
	for _, i := range w.rng.Perm(len(w.budgets))[:1+w.rng.IntN(3)] {
		c := w.budgets[i]
		c.Cost = w.cost(c.Limit.Capacity())
		if c.Limit.Kind() != store.KindLeakyBucket && w.chance(20) {
			c.KeepFree = w.rng.IntN(c.Limit.Capacity() - c.Cost + 1)
		}

		k.Charges = append(k.Charges, c)
	}

	if w.chance(15) {
		k.NotBefore = w.duration(sec)
	}
	if w.mood == spreading && w.chance(50) {
		k.Spread = w.duration(20 * ms)
	}

	k.MaxWait = w.maxWait(k)
	return k
}

// cost returns a random cost up to n, more often than not 1.
func (w *world) cost(n int) int {
	switch {
	case w.chance(70):
		return 1
	case w.chance(10):
		return n
	case w.chance(50):
		return 1 + w.rng.IntN(n)
	default:
		return 1 + w.rng.IntN(min(n, 5))
	}
}

// maxWait returns a random MaxWait for a booking, often a time that is just enough or just not.
func (w *world) maxWait(k store.Booking) time.Duration {
	needed := w.truth.earliest(k, w.clock()) - w.clock()
	switch w.rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return tickTimes(needed)
	case 2:
		return max(0, tickTimes(needed-1))
	case 3:
		return w.duration(3 * sec)
	default:
		return -1
	}
}

// duration returns a random time up to a bound. Some are whole milliseconds, or multiples of 50 ms, so that times coincide.
func (w *world) duration(longest time.Duration) time.Duration {
	d := time.Duration(w.rng.Int64N(int64(longest) + 1))
	grain := []time.Duration{tick, ms, 50 * ms}[w.rng.IntN(3)]
	return d.Truncate(grain).Truncate(tick)
}

// advance lets time pass: a moment, a while, or exactly until an earlier start
// comes or no longer counts.
func (w *world) advance() {
	switch r := w.rng.IntN(10); {
	case r < 3:
		time.Sleep(w.duration(5 * ms))
	case r < 6:
		time.Sleep(w.duration(300 * ms))
	case r < 7:
		time.Sleep(w.duration(5 * sec))
	case len(w.grants) > 0:
		g := w.grants[w.rng.IntN(len(w.grants))]
		c := g.booking.Charges[0]
		edge := g.at
		if w.chance(70) {
			edge = over(c, stayOf(c, g.booking.Spread, g.at))
		}

		w.sleepUntil(edge - int64(w.rng.IntN(2)))
	}
}

// keepShallow, in the exact mood, lets all starts of a budget of the booking go by if more than deepest of them count: a store of
// bounded memory might join them.
func (w *world) keepShallow(k store.Booking) {
	if w.mood != exact {
		return
	}
	for _, c := range k.Charges {
		if starts, end := w.truth.depth(c, w.clock()); starts > deepest {
			w.sleepUntil(end)
		}
	}
}

// sleepUntil moves the clock to a time, if that is still to come.
func (w *world) sleepUntil(t int64) { time.Sleep(tickTimes(t - w.clock())) }
