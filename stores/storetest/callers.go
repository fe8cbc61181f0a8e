package storetest

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// come lets visitors come, one by one, and compares their first answers. A caller that the move names comes again, and gives up
// the start or the place that it has.
func (p *play) come(m *move) {
	p.Helper()
	var made []*caller
	add := func(k store.Booking) {
		v := p.comes(k)
		p.came = append(p.came, v)
		made = append(made, &caller{ticket: ticket{k, v.first}, visitor: v})
	}

	// Callers that the move names come again, in place of what they hold.
	for _, c := range p.of(m) {
		k := c.booking
		k.Instead, k.Turn, k.Returns = c.grant.Handle, c.grant.Turn, true
		add(k)
	}

	// All others are new.
	for len(m.charges) > 0 && len(made) < max(m.times, len(m.want.answers)) {
		add(p.booking(m))
	}

	for i, want := range m.want.answers {
		p.checkFirst(m, made[i].ticket, want)
	}

	p.name(m, made)
}

// checkFirst compares the first answer to a visitor with a move's expectation.
func (p *play) checkFirst(m *move, first ticket, want answer) {
	p.Helper()
	k, g := first.booking, first.grant

	switch want.kind {
	case "away":
		if g.OK || g.Ready != nil || !want.any && !about(g.Wait, want.high.Duration) {
			p.errorf("booked at %v: OK %t, in line %t, a wait of %v; want a refusal and about %v", p.now(), g.OK, g.Ready != nil, g.Wait, want.high)
		}
		p.checkHolder(m, k, g, true)

	case "soon":
		if g.Wait > want.high.Duration {
			p.errorf("booked at %v: a wait of %v, want at most %v", p.now(), g.Wait, want.high)
		}

	default:
		p.checkAnswer(m, k, g, want)
	}
}

// leave lets a visitor go, if it has not begun.
func (p *play) leave(_ *move, c *caller) {
	if c.visitor.waits() {
		c.visitor.leaves()
	}
}

// change lets a visitor that has not begun book again with other charges.
func (p *play) change(m *move, c *caller) {
	if c.visitor.waits() {
		c.visitor.changes(m.charges...)
	}
}

// comeBack lets a visitor book again in place of its start.
func (p *play) comeBack(_ *move, c *caller) { c.visitor.returns() }

// starts lets time pass until the visitors of a move are over, and returns when they began. There are as many visitors as expected starts, of
// which the last is the latest.
func (p *play) starts(m *move) (all []time.Duration) {
	p.Helper()
	visitors := p.visitors(m)
	if len(visitors) != len(m.want.answers) {
		p.fatalf("%d visitors, want %d", len(visitors), len(m.want.answers))
	}

	// Wait for a second at least beyond the last expected start: a start that is a little late is then reported with its time.
	until := m.want.answers[len(m.want.answers)-1].high.since(p.now()) + max(sec, p.slack.Start)
	p.allOver(until, visitors...)

	for _, v := range visitors {
		all = append(all, v.begun())
	}
	return all
}

// checkBegun waits until visitors are over, and fails if they do not begin at the expected times, in this order.
func (p *play) checkBegun(m *move) {
	p.Helper()
	p.checkTimes(p.starts(m), m.want.answers, p.slack.Order)
}

// checkBegunSet is checkBegun for visitors that begin in any order.
func (p *play) checkBegunSet(m *move) {
	p.Helper()
	starts := p.starts(m)
	slices.Sort(starts)
	p.checkTimes(starts, m.want.answers, 0)
}

// checkTimes fails if a start is not at its expected time. It may be later by the slack, and earlier by the given time.
func (p *play) checkTimes(starts []time.Duration, want []answer, early time.Duration) {
	p.Helper()
	for i, got := range starts {
		if low, high := want[i].low.since(p.now()), want[i].high.since(p.now()); got < low-early || got > high+p.slack.Start {
			p.errorf("visitor %d of %d begins at %v, want %v to %v", i, len(starts), got, low, high)
			return
		}
	}
}

// checkOver lets time pass until the visitors are over, and fails if one still waits at the time of the move.
func (p *play) checkOver(m *move) {
	p.Helper()
	p.allOver(m.time.since(p.now())+p.slack.Start, p.visitors(m)...)
}

// allOver lets time pass until all visitors are over, and fails if one still waits at t.
func (p *play) allOver(t time.Duration, visitors ...*visitor) {
	p.Helper()
	for step := 10 * ms; p.now() < t; step = min(2*step, sec) {
		if !slices.ContainsFunc(visitors, (*visitor).waits) {
			return
		}
		p.at(min(t, p.now()+step))
		synctest.Wait()
	}

	for i, v := range visitors {
		if v.waits() {
			p.fatalf("at %v the visitor %d of %d still waits", p.now(), i, len(visitors))
		}
	}
}

// checkOrder fails if a visitor begins before a visitor that came earlier, by more than the move allows. It passes by visitors that do not
// begin.
func (p *play) checkOrder(m *move) {
	p.Helper()
	early := p.slack.Order
	if m.time != nil {
		early += m.time.Duration
	}

	last := time.Duration(0) // the latest start of the visitors before
	for i, v := range p.visitors(m) {
		switch begun := v.begun(); {
		case begun == never:
		case begun < last-early:
			p.errorf("visitor %d begins at %v, before an earlier one, at %v", i, begun, last)
			return
		default:
			last = max(last, begun)
		}
	}
}

// checkAtMost fails if a closed interval of the given length holds more than n starts.
func (p *play) checkAtMost(m *move) {
	p.Helper()
	var starts []time.Duration
	for _, v := range p.visitors(m) {
		if v.begun() != never {
			starts = append(starts, v.begun())
		}
	}

	slices.Sort(starts)
	for i, n := 0, m.numbers[0]; i+n < len(starts); i++ {
		if starts[i+n]-starts[i] <= m.time.Duration {
			p.errorf("%d visitors begin from %v to %v", n+1, starts[i], starts[i+n])
		}
	}
}

// checkGapless lets time pass until all visitors are over. The visitors that did not leave must start one leaky-bucket interval
// after another, in any order, from the time of the move on. Otherwise it fails.
func (p *play) checkGapless(m *move) {
	p.Helper()
	p.allOver(p.now()+2*time.Minute, p.visitors(m)...)

	var starts []time.Duration
	for _, v := range p.visitors(m) {
		if v.begun() != never {
			starts = append(starts, v.begun())
		}
	}

	slices.Sort(starts)
	apart := m.charges[0].Span()
	for i, got := range starts {
		if want := m.time.Duration + time.Duration(i)*apart; got < want || got > want+p.slack.Start {
			p.errorf("start %d of %d is at %v, want %v: somebody waited, and nobody began", i, len(starts), got, want)
			return
		}
	}
}

// checkNear fails if more than n visitors have a start that is far away: 100 ms beyond the horizon, or later.
func (p *play) checkNear(m *move) {
	p.Helper()
	far := 0
	for _, v := range p.visitors(m) {
		v.mu.Lock()
		if v.grant.OK && v.due-p.now() > horizon+100*ms {
			far++
		}
		v.mu.Unlock()
	}
	if far > m.numbers[0] {
		p.fatalf("at %v %d have a start that is far away", p.now(), far)
	}
}

// checkBusy fails if a budget with callers in line has a near start free for the cheapest of them. Which starts are
// free follows from the starts of all visitors, by the definition of the limit.
func (p *play) checkBusy(_ *move, c store.Charge) {
	p.Helper()
	now := time.Now().UnixMicro()

	// Starts that are booked or used take room. Of the waiters, the cheapest could use the smallest gap.
	l := newLedger()
	cheapest := 0
	for _, v := range p.came {
		v.mu.Lock()
		switch {
		case v.booking.Charges[0].Budget != c.Budget:
		case v.grant.OK && (!v.over || v.start != never):
			l.add(v.booking, p.zero.Add(v.due).UnixMicro())
		case !v.over && (cheapest == 0 || v.booking.Charges[0].Cost < cheapest):
			cheapest = v.booking.Charges[0].Cost
		}

		v.mu.Unlock()
	}

	if cheapest == 0 {
		return
	}

	// A little of the horizon may be free: waiters are called shortly before their starts are near.
	free := l.earliest(store.Booking{Charges: []store.Charge{costing(c, cheapest)}}, now)
	if wait := tickTimes(free - now); wait < horizon-100*ms-p.slack.Start {
		p.errorf("at %v somebody stands in line, and a start is free in %v", p.now(), wait)
	}
}

// crowd lets callers book at the same time, and compares the starts of the callers that are not refused. With the word
// fleeting the callers cancel at once, so the number of starts is not compared.
func (p *play) crowd(m *move) {
	p.Helper()
	callers := max(m.times, len(m.want.answers))
	grants, errs := make([]store.Grant, callers), make([]error, callers)

	var crowd sync.WaitGroup
	for i := range callers {
		// Callers may differ: in the order of their charges, or in the budget that they need besides the first.
		k := p.booking(m)
		k.Charges = slices.Clone(k.Charges)
		switch {
		case m.words["turning"] && i%2 == 1:
			slices.Reverse(k.Charges)
		case m.words["choosing"]:
			k.Charges = []store.Charge{k.Charges[0], k.Charges[1+i%(len(k.Charges)-1)]}
		}

		crowd.Go(func() {
			grants[i], errs[i] = p.store.Book(p.Context(), &k)
			if m.words["fleeting"] {
				p.store.Cancel(&k, grants[i])
			}
		})
	}

	crowd.Wait()
	var starts []time.Duration
	for i, g := range grants {
		switch {
		case errs[i] != nil:
			p.fatalf("%v", errs[i])
		case g.OK:
			starts = append(starts, p.now()+g.Wait)
		}
	}

	// Nobody can say which caller has which start, so only the starts are compared.
	slices.Sort(starts)
	if len(starts) != len(m.want.answers) && !m.words["fleeting"] {
		p.errorf("at %v: %d of %d callers have a start, want %d", p.now(), len(starts), callers, len(m.want.answers))
		return
	}

	for i, want := range m.want.answers {
		if at := want.low.since(p.now()); starts[i] != at {
			p.errorf("start %d of %d is at %v, want %v", i, len(starts), starts[i], at)
			return
		}
	}
}

// ride lets callers come at the same time for room in flight. Each waits in line until it is
// called, and gives up its room at once. There are never too many, and none is forgotten.
func (p *play) ride(m *move) {
	p.Helper()
	var crowd sync.WaitGroup
	var running, most, served atomic.Int64
	for range m.times {
		crowd.Go(func() {
			k, g := p.book(p.booking(m))
			for g.Ready != nil {
				if !p.called(ticket{k, g}) {
					return
				}
				k.Instead = g.Handle
				k, g = p.book(k)
			}

			// Note the most callers that have room at one moment, and let the rest run before this one gives up its room.
			n := running.Add(1)
			for before := most.Load(); n > before && !most.CompareAndSwap(before, n); before = most.Load() {
			}

			runtime.Gosched()
			running.Add(-1)
			served.Add(1)
			p.store.Release(&k, g)
		})
	}

	crowd.Wait()
	if limit := m.charges[0].Limit.N(); most.Load() > int64(limit) || served.Load() != int64(m.times) {
		p.errorf("%d of %d callers were served, up to %d at a time; want all, up to %d", served.Load(), m.times, most.Load(), limit)
	}
}

// RunVectors plays vectors of a store's own, in the language of vectors/README.md, each in a
// subtest, and each case in a bubble with a fleet of its own.
func RunVectors(t *testing.T, file, text string, newFleet func(*testing.T) Fleet) {
	list, err := parseVectors(&reader{file: file, fleet: true}, text)
	if err != nil {
		t.Fatal(err)
	}

	for _, v := range list {
		t.Run(v.name, func(t *testing.T) {
			for i, moves := range v.cases {
				synctest.Test(t, func(t *testing.T) {
					fleet := newFleet(t)
					b := newBench(t, fleet.Program(""), v.name)
					p := &play{bench: b, known: make(map[string][]*caller), fleet: &fleet, programs: map[string]*bench{"": b}}
					p.play(moves, i)
				})
			}
		})
	}
}

// A sharer is a caller of a share that comes, waits for its start, and may leave before it.
type sharer struct {
	at     time.Duration
	share  store.Share
	cost   int
	leaves time.Duration // when it leaves if it has not started, or 0 for never
}

// leavesBy reports whether the caller leaves by the time t, if it has not started.
func (c sharer) leavesBy(t time.Duration) bool { return c.leaves > 0 && c.leaves <= t }

// A fairLane is the callers of one share that wait, in the order in which they came.
type fairLane struct {
	finish float64 // its virtual time: the costs of the starts that it had, over its weight
	waits  []int   // indices of sharers
}

// join adds a caller. served is the finish of the share served last, before its turn: a share that comes back does not catch up
// on the time of its absence.
func (l *fairLane) join(caller int, served float64) {
	if len(l.waits) == 0 {
		l.finish = max(l.finish, served)
	}
	l.waits = append(l.waits, caller)
}

// dropLeft drops callers who have left from the front of the lane. Behind others they change nothing.
func (l *fairLane) dropLeft(callers []sharer, now time.Duration) {
	for len(l.waits) > 0 && callers[l.waits[0]].leavesBy(now) {
		l.waits = l.waits[1:]
	}
}

// isBefore reports whether the first caller of the lane goes before the first caller of another lane, which is nil if there
// is none. Of lanes that have been served alike, the lane whose first caller came first goes first.
func (l *fairLane) isBefore(other *fairLane) bool {
	switch {
	case len(l.waits) == 0:
		return false
	case other == nil:
		return true
	case l.finish != other.finish:
		return l.finish < other.finish
	}
	return l.waits[0] < other.waits[0]
}

// fair is the definition of shares. It serves callers one by one: each keeps the budget busy for its
// cost over the rate, which is the cost of a second. The next caller is always the first of the share
// with the least finish. A share that comes back takes over the finish that the share served last had
// before its turn. Callers are given in the order in which they come. fair returns when each of them
// starts, or never for a caller that does not start before end.
func fair(callers []sharer, rate float64, end time.Duration) (starts []time.Duration) {
	lanes := make(map[uint64]*fairLane)
	served := 0.0 // the finish of the share served last, before its turn
	next := 0     // the first caller that has not come yet
	for range callers {
		starts = append(starts, never)
	}

	for now := time.Duration(0); now < end; {
		// Add all callers that have come by now.
		for ; next < len(callers) && callers[next].at <= now; next++ {
			id := callers[next].share.ID
			if lanes[id] == nil {
				lanes[id] = new(fairLane)
			}
			lanes[id].join(next, served)
		}

		// Find the share that has been served least.
		var first *fairLane
		for _, l := range lanes {
			l.dropLeft(callers, now)
			if l.isBefore(first) {
				first = l
			}
		}

		// Nobody waits: go on with the next caller.
		if first == nil {
			if next == len(callers) {
				break
			}
			now = callers[next].at
			continue
		}

		// Serve the first caller of that share.
		c := callers[first.waits[0]]
		starts[first.waits[0]], first.waits = now, first.waits[1:]
		served = first.finish
		first.finish += float64(c.cost) / float64(max(1, c.share.Weight))
		now += time.Duration(float64(c.cost) / rate * float64(time.Second))
	}

	return starts
}
