package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A lineMutant breaks one rule of the line. The oracle has no line, so it is made of
// memstore. The checks whose names begin with the prefix must notice, and so must the
// random runs, unless blind says why not.
type lineMutant struct {
	name   string
	prefix string
	blind  string
	store  func() store.Store
}

// A brokenLine is a store of which some methods were replaced.
type brokenLine struct {
	store.Store
	book   func(s store.Store, b *store.Booking) store.Grant
	cancel func(s store.Store, b *store.Booking, g store.Grant)
	settle func(s store.Store, b *store.Booking, g store.Grant, costs []int)
	status func(st *store.Status)
}

func (s brokenLine) Book(_ context.Context, b *store.Booking) (store.Grant, error) {
	if s.book == nil {
		return plainBook(s.Store, b), nil
	}
	return s.book(s.Store, b), nil
}

func (s brokenLine) Cancel(b *store.Booking, g store.Grant) {
	if s.cancel == nil {
		s.Store.Cancel(b, g)
		return
	}
	s.cancel(s.Store, b, g)
}

func (s brokenLine) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if s.settle == nil {
		return s.Store.Settle(ctx, b, g, costs)
	}
	s.settle(s.Store, b, g, costs)
	return nil
}

func (s brokenLine) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	st, err := s.Store.Status(ctx, c)
	if s.status != nil {
		s.status(&st)
	}
	return st, err
}

// plainBook books as the store does.
func plainBook(s store.Store, b *store.Booking) store.Grant {
	g, _ := s.Book(context.Background(), b)
	return g
}

// brokenBy makes a fresh store that is broken so.
func brokenBy(broken brokenLine) func() store.Store {
	return func() store.Store {
		s := broken
		s.Store = memstore.New()
		return s
	}
}

// wanting books something that the caller did not ask for.
func wanting(change func(*store.Booking)) func() store.Store {
	return brokenBy(brokenLine{book: func(s store.Store, b *store.Booking) store.Grant {
		other := *b
		change(&other)
		return plainBook(s, &other)
	}})
}

// inLine says something else of a place in line.
func inLine(change func(g *store.Grant)) func() store.Store {
	return brokenBy(brokenLine{book: func(s store.Store, b *store.Booking) store.Grant {
		g := plainBook(s, b)
		if g.Ready != nil {
			change(&g)
		}
		return g
	}})
}

var lineMutants = []lineMutant{
	{"books beyond the horizon", "Store_HorizonBooks", "the starts are the same where nothing changes", wanting(func(b *store.Booking) {
		b.Horizon = 0
	})},
	{"a horizon twice as far", "Store_HorizonBooks", "it is a matter of degree", wanting(func(b *store.Booking) {
		b.Horizon *= 2
	})},
	{"a horizon that is a little too near", "Store_HorizonOf", "it is a matter of degree", wanting(func(b *store.Booking) {
		b.Horizon = max(0, b.Horizon-tick)
	})},
	{"priority ignored", "P5_LineByPriority", "", wanting(func(b *store.Booking) {
		b.Priority = store.PriorityNormal
	})},
	{"priority turned around", "P5_LineByPriority", "", wanting(func(b *store.Booking) {
		b.Priority = -b.Priority
	})},
	{"low is as good as normal", "P5_LineByPriority", "", wanting(func(b *store.Booking) {
		b.Priority = max(b.Priority, store.PriorityNormal)
	})},
	{"arrival forgotten", "P5_LineReturns", "", wanting(func(b *store.Booking) {
		b.Returns = false
		if b.Instead != (store.Handle{}) {
			b.Turn = nil
		}
	})},
	{"newcomers pass", "P5_Line", "", wanting(func(b *store.Booking) {
		b.Returns = true
	})},
	{"refuses every caller that would stand in line", "Store_Horizon", "a refused caller does not wait", brokenBy(brokenLine{
		book: func(s store.Store, b *store.Booking) store.Grant {
			g := plainBook(s, b)
			if g.Ready != nil && b.MaxWait >= 0 {
				s.Cancel(b, g)
				g.Ready = nil
			}
			return g
		},
	})},
	{"lines up a caller that does not wait", "Store_HorizonAnd", "", wanting(func(b *store.Booking) {
		if b.MaxWait == 0 {
			b.MaxWait = -1
		}
	})},
	{"MaxWait ignored in line", "Store_HorizonAndMaxWait", "refusals are not compared", wanting(func(b *store.Booking) {
		if b.MaxWait > 0 {
			b.MaxWait = -1
		}
	})},
	{"no guess", "Store_Horizon", "guesses are not compared", inLine(func(g *store.Grant) { g.Wait = 0 })},
	{"wrong holder", "Store_Horizon", "holders are not compared", inLine(func(g *store.Grant) { g.HeldBy = -1 })},
	{"no turn", "Store_Horizon", "", inLine(func(g *store.Grant) { g.Turn = nil })},
	{"penalty not told", "P11_LineOfAClosed", "what is said is not compared", inLine(func(g *store.Grant) { g.Paused = false })},
	{"calls at once", "P5_Line", "", inLine(func(g *store.Grant) {
		called := make(chan struct{})
		close(called)
		g.Ready, g.Turn = called, nil
	})},
	{"leavers stay", "P7_Line", "", brokenBy(brokenLine{cancel: func(s store.Store, b *store.Booking, g store.Grant) {
		if g.OK {
			s.Cancel(b, g)
		}
	}})},
	{"starts of leavers stay", "P7_Line", "what is near is little", brokenBy(brokenLine{cancel: func(s store.Store, b *store.Booking, g store.Grant) {
		if !g.OK {
			s.Cancel(b, g)
		}
	}})},
	{"refunds are late", "P7_LineAndRefund", "the end is about the same", brokenBy(brokenLine{
		settle: func(store.Store, *store.Booking, store.Grant, []int) {},
	})},
	{"the line is not counted", "Store_StatusCounts", "only the end is compared", brokenBy(brokenLine{status: func(st *store.Status) {
		st.Waiting = min(st.Waiting, 8)
	}})},
	{"the line is booked", "Store_StatusCounts", "only the end is compared", brokenBy(brokenLine{status: func(st *store.Status) {
		st.Booked = st.Waiting
	}})},
	{"the line waits for nothing", "Store_StatusWaits", "only the end is compared", brokenBy(brokenLine{status: func(st *store.Status) {
		st.Wait = min(st.Wait, horizon)
	}})},
	{"a waiter is lost", "P", "", losing(9)},
	{"a waiter is called late", "P", "", delaying()},
	{"out of order", "P5_LineOf", "", shuffling()},
}

// losing never calls one in so many.
func losing(one int64) func() store.Store {
	return func() store.Store {
		var places atomic.Int64
		return brokenLine{Store: memstore.New(), book: func(s store.Store, b *store.Booking) store.Grant {
			g := plainBook(s, b)
			if g.Ready != nil {
				if places.Add(1)%one == 0 {
					g.Ready = make(chan struct{})
				}
			}
			return g
		}}
	}
}

// delaying lets 300 ms pass between the end of a wait and the start.
func delaying() func() store.Store {
	return brokenBy(brokenLine{book: func(s store.Store, b *store.Booking) store.Grant {
		other := *b
		if b.Turn != nil {
			other.NotBefore, other.Charges = horizon+300*ms, slices.Clone(b.Charges)
			for i := range other.Charges {
				other.Charges[i].Jitter += tick // not what is booked
			}
		}
		return plainBook(s, &other)
	}})
}

// shuffling gives a place in line to a caller as if it were another's.
func shuffling() func() store.Store {
	return func() store.Store {
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(1, 1))
		return brokenLine{Store: memstore.New(), book: func(s store.Store, b *store.Booking) store.Grant {
			other := *b
			mu.Lock()
			defer mu.Unlock()
			other.Priority = store.Priority(rng.IntN(3) - 1)
			return plainBook(s, &other)
		}}
	}
}

// Of each mutant of the line, a check that is named for the broken promise fails.
func TestEveryMutantOfTheLineIsCaughtByName(t *testing.T) {
	soak.WithoutRace(t)
	for _, m := range lineMutants {
		t.Run(m.name, func(t *testing.T) {
			require.True(t, caught(t, vectorsOf("lines"), m.prefix, m.store), "no check %s… failed", m.prefix)
		})
	}
}

// Of each mutant of the line that random runs can see, a random run fails.
func TestEveryMutantOfTheLineIsCaughtAtRandom(t *testing.T) {
	soak.WithoutRace(t)
	for _, m := range lineMutants {
		if m.blind != "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			require.True(t, caught(t, randomLineChecks(), "P5_RandomLine", m.store))
		})
	}
}

// Mutants of what is said, given back, closed, and told.
var otherMutants = []mutant{
	{"no handle", "P1", "", saying(func(g *store.Grant) { g.Handle = store.Handle{} })},
	{"wait too long", "P1", "", saying(func(g *store.Grant) { g.Wait += tick })},
	{"never held", "Store_Held", "", saying(func(g *store.Grant) { g.HeldBy = -1 })},
	{"always the first held", "Store_Held", "", saying(func(g *store.Grant) { g.HeldBy = min(g.HeldBy, 0) })},
	{"never paused", "P11_Held", "", saying(func(g *store.Grant) { g.Paused = false })},
	{"always paused", "Store_Held", "", saying(func(g *store.Grant) { g.Paused = g.HeldBy >= 0 })},

	{"shadow holds", "Store_Shadow", "", charging(func(c *store.Charge) { c.Shadow = false })},
	{"shadow says nothing", "Store_Shadow", "", saying(func(g *store.Grant) { g.Over = nil })},
	{"shadow does not count", "Store_Shadow", "", charging(func(c *store.Charge) {
		if c.Shadow {
			c.Budget.Key = [16]byte{1}
			c.Limit = store.PerSecond(c.Limit.N() + 1000)
		}
	})},

	{"cancel ignored", "P7_Cancel", "", broken{cancel: func(*oracle, *store.Booking, store.Grant) {}}},
	{"cancel of the first budget only", "P6_Cancel", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		first := *b
		first.Charges = b.Charges[:1]
		o.ledger.remove(first, o.booked[g.Handle.Start].at, o.clock())
	}}},
	{"cancel of what is to come only", "P7_CancelAPast", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		if o.booked[g.Handle.Start].at > o.clock() {
			o.Cancel(b, g)
		}
	}}},
	{"cancel of what is past only", "P7_CancelAPlace", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		if o.booked[g.Handle.Start].at <= o.clock() {
			o.Cancel(b, g)
		}
	}}},
	{"cancel of 1 only", "P7_CancelGivesBackTheCost", "", broken{cancel: func(o *oracle, b *store.Booking, g store.Grant) {
		at := o.booked[g.Handle.Start].at
		o.Cancel(b, g)
		for _, c := range b.Charges {
			if c.Cost > 1 {
				o.ledger.add(store.Booking{Charges: []store.Charge{costing(c, c.Cost-1)}, Spread: b.Spread}, at)
			}
		}
	}}},
	{"Instead ignored", "P7_Instead", "", asking(func(b *store.Booking) { b.Instead = store.Handle{} })},
	{"Instead given back after the search", "P7_InsteadGivesBackFirst", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		other := *b
		other.Instead = store.Handle{}
		g := honest(o, &other)
		o.giveBack(b.Instead)
		return g
	}}},
	{"Instead kept by a refusal", "P7_InsteadIsGivenBack", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		old := o.booked[b.Instead.Start]
		g := honest(o, b)
		if !g.OK {
			o.ledger.add(old.booking, old.at)
			o.booked[b.Instead.Start] = old
		}
		return g
	}}},

	{"pause ignored", "P11_Pause", "", broken{pause: func(*oracle, store.Charge, time.Duration, time.Duration) {}}},
	{"last pause counts", "P11_Latest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.closed[c.Budget.Key] = o.clock() + micros(d)
	}}},
	{"first pause counts", "P11_Latest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if o.ledger.closed[c.Budget.Key] <= o.clock() {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"pauses add up", "P11_Latest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.shut(c, max(o.clock(), o.ledger.closed[c.Budget.Key]), d, ago)
	}}},
	{"pause a moment too short", "P11_Pause", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.shut(c, o.clock()-1, d, ago)
	}}},
	{"pause of everybody", "P11_Other", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		for _, name := range []string{"a", "b", "budget 0", "budget 1", "budget 2", "budget 3"} {
			o.ledger.shut(charge(name, c.Limit), o.clock(), d, ago)
		}
	}}},
	{"pause moves booked starts", "P11_Booked", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		end := o.clock() + micros(d)
		o.ledger.shut(c, o.clock(), d, ago)
		for i, s := range o.ledger.stays[c.Budget.Key] {
			if s.at > o.clock() && s.at < end {
				o.ledger.stays[c.Budget.Key][i].at = end
				o.ledger.stays[c.Budget.Key][i].until += end - s.at
			}
		}
	}}},

	{"status counts forever", "Store_Status", "", broken{status: func(o *oracle, c store.Charge, st *store.Status) {
		st.Used = -st.Waiting
		for _, s := range o.ledger.stays[c.Budget.Key] {
			st.Used += s.cost
		}
	}}},
	{"status takes costs for callers", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Callers = st.Waiting
	}}},
	{"status sees nobody waiting", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Waiting = 0
	}}},
	{"status sees nothing booked", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Booked = 0
	}}},
	{"status counts a start when its time is over", "Store_StatusOf", "a status is compared where no start may be used later", broken{status: func(o *oracle, c store.Charge, st *store.Status) {
		for _, s := range o.ledger.stays[c.Budget.Key] {
			if s.at <= o.clock() && s.until > o.clock() {
				st.Used, st.Booked = st.Used-s.cost, st.Booked+s.cost
			}
		}
	}}},
	{"status hides the pause", "P11_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Paused = 0
	}}},
	{"status forgets the wait", "Store_Status", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) {
		st.Wait = 0
	}}},
	{"status spends", "Store_StatusChanges", "", broken{status: func(o *oracle, c store.Charge, _ *store.Status) {
		honest(o, &store.Booking{Charges: []store.Charge{costing(c, 1)}})
	}}},
}

// Mutants of budgets that only a penalty closes.
var unlimitedMutants = []mutant{
	{"unlimited is a large number", "P3_UnlimitedHoldsNothing", "", ofKind(store.KindUnlimited, func(c *store.Charge) {
		c.Limit, c.Cost, c.KeepFree = store.PerSecond(250), min(c.Cost, 250), 0
	})},
	{"unlimited is a window that nobody fills", "P11_UnlimitedRemembersNothing", "", ofKind(store.KindUnlimited, func(c *store.Charge) {
		c.Limit, c.Cost, c.KeepFree = store.PerSecond(maxCost), 1, 0
	})},
	{"unlimited is never closed", "P11_UnlimitedIsClosed", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if !isOpen(c) {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"unlimited is closed once", "P11_UnlimitedIsClosed", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if _, was := o.ledger.closed[c.Budget.Key]; !was || !isOpen(c) {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"no probe of what is unlimited", "P11_UnlimitedHasAProbe", "", gappingAllBut(store.KindUnlimited)},
	{"a start of an open budget is kept", "P11_UnlimitedRemembersNothing", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		at := o.clock() + micros(g.Wait)
		for _, c := range b.Charges {
			if s := stayOf(c, b.Spread, at); g.OK && isOpen(c) && !slices.Contains(o.ledger.stays[c.Budget.Key], s) {
				o.ledger.stays[c.Budget.Key] = append(o.ledger.stays[c.Budget.Key], s)
			}
		}
		return g
	}}},
	{"a status counts what is unlimited", "P3_UnlimitedHoldsNothing", "", broken{status: func(o *oracle, c store.Charge, st *store.Status) {
		for _, e := range o.booked {
			for _, own := range e.booking.Charges {
				if isOpen(c) && own.Budget.Key == c.Budget.Key {
					st.Used++
				}
			}
		}
	}}},
}

// neverRefused is why a random run need not notice.
const neverRefused = "no upstream refuses there"

// Mutants of what refusals teach.
var adaptiveMutants = []mutant{
	{"refusals teach nothing", "P1_CeilingOfASlidingWindow", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		level := o.ledger.learnt[c.Budget.Key].at(c, o.clock())
		return level, level
	}}},
	{"each refusal of a crowd teaches", "P1_CeilingIsEvidenceOnce", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		if old := o.ledger.learnt[c.Budget.Key]; at <= old.fell {
			delete(o.ledger.closed, c.Budget.Key)
			at = old.fell + 1
		}
		return o.ledger.learn(c, at, max(at, o.clock()))
	}}},
	{"a probe teaches", "P1_CeilingIsEvidenceOnce", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		if closed := o.ledger.closed[c.Budget.Key]; at >= closed {
			delete(o.ledger.closed, c.Budget.Key)
			defer func() { o.ledger.closed[c.Budget.Key] = closed }()
		}
		return o.ledger.learn(c, at, o.clock())
	}}},
	{"a budget that is more than full teaches", "P1_CeilingNoEvidenceAboveTheLimit", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		stays := o.ledger.stays[c.Budget.Key]
		o.ledger.stays[c.Budget.Key] = nil
		defer func() { o.ledger.stays[c.Budget.Key] = stays }()
		return o.ledger.learn(c, at, o.clock())
	}}},
	{"a refusal in an empty window is believed", "P1_CeilingAtLessThanHalf", neverRefused, broken{refuse: func(o *oracle, c store.Charge, at int64) (from, to float64) {
		used, now := o.ledger.used(c, at), o.clock()
		from, _ = o.ledger.learn(c, at, now)
		next := o.ledger.learnt[c.Budget.Key]
		next.top = used
		o.ledger.learnt[c.Budget.Key] = next
		return from, next.at(c, now)
	}}},
	{"nobody obeys", "P1_CeilingOfASlidingWindow", neverRefused, broken{book: func(o *oracle, b *store.Booking) store.Grant {
		for i := range b.Charges {
			b.Charges[i].Adaptive = false
		}
		return honest(o, b)
	}}},
	{"all obey", "P1_CeilingOnlyForAdaptive", neverRefused, broken{book: func(o *oracle, b *store.Booking) store.Grant {
		for i := range b.Charges {
			b.Charges[i].Adaptive = b.Charges[i].Limit.Kind() != store.KindUnlimited
		}
		return honest(o, b)
	}}},
}

// Mutants of what the next penalty makes of the last one.
var penaltyMutants = []mutant{
	{"a penalty never grows", "P11_PenaltyMetAgain", "", banning(func(p penalty, now, length, refused int64) penalty {
		p.times = 0
		return p.then(now, length, refused, refused)
	})},
	{"a penalty grows three times", "P11_PenaltyMetAgain", "", banning(func(p penalty, now, length, refused int64) penalty {
		if now >= p.end && now < p.forgotten() {
			p.length = p.length * 3 / 2
		}
		return p.then(now, length, refused, refused)
	})},
	{"a penalty grows beyond an hour", "P11_PenaltyGrowsToItsOwn", "no penalty lasts long there", growing(func(p penalty, length int64) int64 {
		return min(2*p.length, length*(length/micros(sec)))
	})},
	{"a second grows", "P11_PenaltyGrowsToItsOwn", "", growing(func(p penalty, _ int64) int64 { return min(2*p.length, micros(longestGrown)) })},
	{"a longer penalty is not believed", "P11_PenaltyIsSaid", "", banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if next.times > 1 && now >= p.end {
			next.length = min(2*p.length, next.length)
			next.end = now + next.length
		}
		return next
	})},
	{"late answers count as met again", "P11_PenaltyOfLate", "", banning(func(p penalty, now, length, refused int64) penalty {
		return p.then(now, length, min(refused, 1), min(refused, 1))
	})},
	{"clocks do not drift", "P11_PenaltyOfLate", "", banning(func(p penalty, now, length, refused int64) penalty {
		if now-refused < p.end {
			refused = now
		}
		return p.then(now, length, refused, refused)
	})},
	{"a neighbour's refusal counts, too", "P11_PenaltyOfLate", "", banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if refused > 0 && now < p.end {
			next.times = p.times + 1
		}
		return next
	})},
	{"a penalty is never forgotten", "P11_PenaltyIsForgotten", "", remembering(func(p penalty, _ int64) bool { return true })},
	{"a penalty is forgotten with its end", "P11_PenaltyIsForgotten", "", remembering(func(p penalty, now int64) bool { return now < p.end })},
	{"a penalty is forgotten before its probe answers", "P11_PenaltyMetByASlow", "", remembering(func(p penalty, now int64) bool {
		return now < p.end+p.step()
	})},
	{"an operator's pause is a refusal", "P11_PenaltyByHand", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.shut(c, o.clock(), d, max(ago, tick))
	}}},
	{"a resumed penalty is remembered", "P11_PenaltyForgottenByResume", "nobody resumes there", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		key := c.Budget.Key
		_, known := o.ledger.closed[key]
		o.ledger.shut(c, o.clock(), d, ago)
		if last := o.before[key]; !known && last.times > 0 && ago > 0 {
			p := o.ledger.bans[key]
			p.length, p.times = max(p.length, 2*last.length), last.times+1
			p.end = o.clock() + p.length
			o.ledger.bans[key], o.ledger.closed[key] = p, p.end
		}
		o.before[key] = o.ledger.bans[key]
	}}},
	{"the probe is always as short", "P11_ProbeAsLong", "", gapping(func(g *gap) { g.end = g.begin + micros(shortestProbe) })},
	{"the probe is as long as answers take, without end", "P11_ProbeAsLong", "", probeFor(func(length, refused int64) int64 {
		return max(micros(shortestProbe), min(2*refused, length))
	})},
	{"the probe is longer than the penalty", "P11_ProbeAsLong", "", probeFor(func(_, refused int64) int64 {
		return max(micros(shortestProbe), min(2*refused, micros(longestProbe)))
	})},
	{"the last answer decides about the probe", "P11_ProbeOfTheSlowest", "", banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if length > 0 {
			next.probe = probeOf(length, refused)
		}
		return next
	})},
	{"a short penalty has a long slow start", "P11_SlowStartAfterASecond", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		p.length = max(p.length, micros(40*sec))
		return rampOf(c, stays, p)
	})},
	{"steps as long as the penalty", "P11_SlowStartAfterASecond", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		p.length *= 2
		return rampOf(c, stays, p)
	})},
	{"long windows have no slow start", "P11_SlowStartOfLong", "no window is that long there", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		if c.Limit.Per() > longestStep {
			return ramp{}
		}
		return rampOf(c, stays, p)
	})},
	{"a step has the share of a window", "P11_SlowStartAfterASecond", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if r.step > 0 {
			r.parts = 1
			for i := range r.stays[max(0, len(r.stays)-2):] {
				s := &r.stays[len(r.stays)-2+i]
				s.cost = c.Limit.N() - shares(c.Limit.N())[i]
			}
		}
		return r
	})},
	{"a reserve is not shared out", "P11_SlowStartOfStepsWithAReserve", "few leave so much free there", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if r.step > 0 {
			r.stays = append(r.stays, stay{at: r.begin, until: r.end, cost: c.KeepFree - part(c.KeepFree, r.parts)})
		}
		return r
	})},
	{"a step ends with its window", "P11_SlowStartOfStepsAcross", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if _, to := window(store.FixedWindow(1, max(tick, c.Limit.Per())), r.begin); r.step > 0 && c.Limit.Kind() == store.KindFixedWindow {
			r.end = min(r.end, to)
		}
		return r
	})},
	{"nobody says how often", "P11_PenaltyMetAgain", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) { st.Repeated = 0 }}},
}

// banning makes another penalty of the last one.
func banning(then func(p penalty, now, length, refused int64) penalty) broken {
	return broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if d <= 0 {
			return
		}
		key := c.Budget.Key
		p := then(o.ledger.penalty(key), o.clock(), micros(d), micros(ago))
		o.ledger.bans[key], o.ledger.closed[key] = p, p.end
	}}
}

// growing gives a penalty that is met again a different length.
func growing(grown func(p penalty, length int64) int64) broken {
	return banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if next.times > p.times && p.times > 0 {
			next.length = max(length, grown(p, length))
			next.end = now + next.length
		}
		return next
	})
}

// remembering forgets a penalty when known is false.
func remembering(known func(p penalty, now int64) bool) broken {
	return banning(func(p penalty, now, length, refused int64) penalty {
		if !known(p, now) {
			return penalty{}.then(now, length, refused, refused)
		}
		next := p.then(now, length, refused, refused)
		if now >= p.forgotten() && refused > 0 && p.times > 0 {
			next.length, next.times = max(length, min(2*p.length, grown(length))), p.times+1
			next.end = now + next.length
		}
		return next
	})
}

// probeFor gives a probe another time.
func probeFor(long func(length, refused int64) int64) broken {
	return banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		next.probe = long(next.length, refused)
		if now < p.end {
			next.probe = max(next.probe, p.probe)
		}
		return next
	})
}
