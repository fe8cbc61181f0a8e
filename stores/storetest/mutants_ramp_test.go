package storetest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Mutants of the order after a penalty.
var probeMutants = []mutant{
	{"all go first", "P11_Probe", "", probing(func(store.Charge, []stay, penalty) gap { return gap{} })},
	{"two go first", "P11_ProbeGoesFirst", "", probing(func(c store.Charge, stays []stay, p penalty) gap {
		if g := gapOf(c, stays, p); len(slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return !g.holds(s) })) > 1 {
			return g
		}
		return gap{}
	})},
	{"a probe has too little time", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end -= tick.Microseconds() })},
	{"a probe has too much time", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end += tick.Microseconds() })},
	{"nobody follows a probe", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end += micros(time.Hour) })},
	{"a probe is alone from when it begins", "P11_ProbeComesLater", "", probing(func(c store.Charge, stays []stay, p penalty) gap {
		g, first := gapOf(c, stays, p), int64(math.MaxInt64)
		for _, s := range stays {
			if g.holds(s) {
				first = min(first, s.at)
			}
		}
		if g.end != 0 {
			g.end = max(g.begin, first) + p.probe
		}
		return g
	})},
	{"a probe costs 1", "P11_ProbeOfAnyCost", "", probing(func(c store.Charge, stays []stay, p penalty) gap {
		return gapOf(c, slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return s.cost > 1 }), p)
	})},
	{"a probe counts no longer than its window", "P11_ProbeOutlives", "no window is that short there", probing(
		func(c store.Charge, stays []stay, p penalty) gap {
			now := time.Now().UnixMicro()
			return gapOf(c, slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return over(c, s) <= now }), p)
		})},
	{"a probe of slow starts only", "P11_ProbeGoesFirst", "", gappingWhere(func(c store.Charge, stays []stay, p penalty) bool {
		return rampOf(c, stays, p).end != 0
	})},
	{"no probe of buckets", "P11_ProbeGoesFirst", "", gappingAllBut(store.KindTokenBucket)},
	{"no probe of windows", "P11_ProbeGoesFirst", "", gappingAllBut(store.KindFixedWindow)},
	{"a probe of what is paced", "P11_NoProbe", "", probing(func(c store.Charge, stays []stay, p penalty) gap {
		if c.Limit.Kind() == store.KindLeakyBucket {
			c.Limit = store.PerSecond(1)
		}
		return gapOf(c, stays, p)
	})},
	{"a probe after the first end", "P11_ProbeAfterTheLatest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if old, ok := o.ledger.closed[c.Budget.Key]; ok && d > 0 {
			o.ledger.gap = func(other store.Charge, stays []stay, p penalty) gap {
				if other.Budget.Key == c.Budget.Key {
					p.end = old
				}
				return gapOf(other, stays, p)
			}
		}
		o.ledger.shut(c, o.clock(), d, ago)
	}}},
	{"what was booked before is no probe", "P11_ProbeWasBookedBefore", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		before := slices.Clone(o.ledger.stays[c.Budget.Key])
		o.ledger.gap = func(other store.Charge, stays []stay, p penalty) gap {
			if other.Budget.Key == c.Budget.Key {
				stays = slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return slices.Contains(before, s) })
			}
			return gapOf(other, stays, p)
		}
		o.ledger.shut(c, o.clock(), d, ago)
	}}},
}

// probing lets somebody else go first.
func probing(other func(c store.Charge, stays []stay, p penalty) gap) broken {
	return broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.gap = other
		o.ledger.shut(c, o.clock(), d, ago)
	}}
}

// gapping makes the gap another one.
func gapping(change func(*gap)) broken {
	return probing(func(c store.Charge, stays []stay, p penalty) gap {
		g := gapOf(c, stays, p)
		if g.end != 0 {
			change(&g)
		}
		return g
	})
}

// gappingWhere leaves a gap only for the charges for which wanted is true.
func gappingWhere(wanted func(c store.Charge, stays []stay, p penalty) bool) broken {
	return probing(func(c store.Charge, stays []stay, p penalty) gap {
		if wanted(c, stays, p) {
			return gapOf(c, stays, p)
		}
		return gap{}
	})
}

// gappingAllBut leaves a gap where the limit is of another kind.
func gappingAllBut(kind store.Kind) broken {
	return gappingWhere(func(c store.Charge, _ []stay, _ penalty) bool { return c.Limit.Kind() != kind })
}

// Mutants of how budgets begin again after a penalty.
var rampMutants = []mutant{
	{"no slow start", "P11_SlowStart", "", ramping(unramped)},
	{"no slow start of sliding windows", "P11_SlowStartSliding", "", rampingAllBut(store.KindSlidingWindow)},
	{"no slow start of windows", "P11_SlowStartAligned", "", rampingAllBut(store.KindFixedWindow)},
	{"no slow start of buckets", "P11_SlowStartOfABucket", "", rampingAllBut(store.KindTokenBucket)},
	{"the share stays the same", "P11_SlowStart", "", sharing(func(all []int) []int { return []int{all[0], all[0]} })},
	{"the share grows too early", "P11_SlowStart", "", sharing(func(all []int) []int { return all[1:] })},
	{"the share grows too late", "P11_SlowStart", "", sharing(func(all []int) []int { return slices.Concat(all[:1], all) })},
	{"after the first share all", "P11_SlowStart", "", sharing(func(all []int) []int { return all[:1] })},
	{"slow forever", "P11_SlowStartIsOver", "", sharing(func(all []int) []int {
		return slices.Concat(all, slices.Repeat(all[1:], 100))
	})},
	{"the share is rounded down", "P11_SlowStartWithJitter", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		if r := rampOf(c, stays, p); r.end == 0 || c.Limit.Kind() == store.KindTokenBucket {
			return r
		}
		return shared(c, stays, p, func(n int) []int { return []int{max(1, n/8), max(1, n/2)} })
	})},
	{"the longest window begins at once", "P11_SlowStartOfTheLongestStep", "no window is that long there", ramping(
		func(c store.Charge, stays []stay, p penalty) ramp {
			if c.Limit.Per() >= longestStep {
				return ramp{}
			}
			return rampOf(c, stays, p)
		})},
	{"all windows begin slowly", "P11_NoSlowStart", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		if k := c.Limit.Kind(); p.end != 0 && (k == store.KindSlidingWindow || k == store.KindFixedWindow) {
			return rampOfWindows(c, stays, p.end, shares)
		}
		return rampOf(c, stays, p)
	})},
	{"no penalty, but a slow start", "P11_NoPenalty", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.closed[c.Budget.Key] = max(o.ledger.closed[c.Budget.Key], o.clock())
		o.ledger.shut(c, o.clock(), d, ago)
	}}},
	{"a slow start after the first end", "P11_SlowStartAfterTheLatest", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		old, ok := o.ledger.closed[c.Budget.Key]
		o.ledger.shut(c, o.clock(), d, ago)
		if ok {
			o.ledger.begin(c, old)
		}
	}}},
	{"a slow start when it is said", "P11_SlowStart", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.shut(c, o.clock(), d, ago)
		o.ledger.begin(c, o.clock())
	}}},
	{"a slow start is booked", "P11_SlowStartKeepsThePace", "", rampingByBooking()},
	{"a slow start is seen as booked", "P11_StatusOfASlowStart", "", rampingByBooking()},
	{"what was spent before makes a bucket emptier", "P11_SlowStartOfAnEmpty", "few buckets are empty when a penalty ends there", ramping(
		func(c store.Charge, stays []stay, p penalty) ramp {
			r := rampOf(c, stays, p)
			for _, s := range stays {
				if c.Limit.Kind() == store.KindTokenBucket && s.until < p.end {
					r.stays = append(r.stays, s)
				}
			}
			return r
		})},
	{"a bucket comes back without a token", "P11_SlowStartOfABucket", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if c.Limit.Kind() == store.KindTokenBucket {
			r.stays = full(c, append(r.stays, stay{p.end, p.end, 1}))
		}
		return r
	})},
	{"a bucket never saves up again", "P11_SlowStartOfABucket", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if c.Limit.Kind() == store.KindTokenBucket && r.end != 0 {
			r.end = math.MaxInt64
		}
		return r
	})},
	{"what is booked has a share of its own", "P11_SlowStartBeside", "", ramping(func(c store.Charge, _ []stay, p penalty) ramp {
		return rampOf(c, nil, p)
	})},
	{"shadows do not begin slowly", "P11_SlowStartOfAShadow", "", broken{book: func(o *oracle, b *store.Booking) store.Grant {
		if slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Shadow }) {
			o.ledger.ramp = unramped
		}
		defer func() { o.ledger.ramp = rampOf }()
		return honest(o, b)
	}}},
	{"status does not see a slow start", "P11_StatusOfASlowStart", "", broken{status: func(o *oracle, c store.Charge, st *store.Status) {
		o.ledger.ramp = unramped
		defer func() { o.ledger.ramp = rampOf }()
		*st, _ = o.Status(context.Background(), c)
	}}},
}

// unramped is no slow start.
func unramped(store.Charge, []stay, penalty) ramp { return ramp{} }

// ramping replaces the slow start.
func ramping(other func(c store.Charge, stays []stay, p penalty) ramp) broken {
	return broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.ramp = other
		o.ledger.shut(c, o.clock(), d, ago)
	}}
}

// rampingAllBut begins slowly where the limit is of another kind.
func rampingAllBut(kind store.Kind) broken {
	return ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		if c.Limit.Kind() == kind {
			return ramp{}
		}
		return rampOf(c, stays, p)
	})
}

// sharing gives the first windows other shares.
func sharing(other func(shares []int) []int) broken {
	return ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		if r := rampOf(c, stays, p); r.end == 0 || c.Limit.Kind() == store.KindTokenBucket {
			return r
		}
		return shared(c, stays, p, func(n int) []int { return other(shares(n)) })
	})
}

// shared is the slow start of windows with other shares.
func shared(c store.Charge, stays []stay, p penalty, shares func(n int) []int) ramp {
	window := span(c)
	if c.Limit.Kind() == store.KindFixedWindow {
		window = micros(c.Limit.Per())
	}
	if p.step() < window {
		return rampOfSteps(c, since(stays, p.end-window), p, window, shares)
	}
	return rampOfWindows(c, stays, p.end, shares)
}

// rampingByBooking books what makes a start slow, once and for all.
func rampingByBooking() broken {
	return broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.ramp = unramped
		o.ledger.shut(c, o.clock(), d, ago)
		key := c.Budget.Key
		o.ledger.stays[key] = append(o.ledger.stays[key], rampOf(c, nil, o.ledger.penalty(key)).stays...)
	}}
}

// begin makes the slow start of a budget begin at another time.
func (l *ledger) begin(c store.Charge, at int64) {
	before := l.ramp
	l.ramp = func(other store.Charge, stays []stay, p penalty) ramp {
		if other.Budget.Key == c.Budget.Key {
			p.end = at
		}
		return before(other, stays, p)
	}
}

// bucketsOnly is why a random run need not notice.
const bucketsOnly = "buckets are stated too rarely there"

// Mutants of what an upstream says.
var reconcileMutants = []mutant{
	{"statements ignored", "P11_ReconcileLowers", "", stating(func(*oracle, store.Charge, store.Quota) {})},
	{"nothing left is a penalty", "P11_ReconcileNothing", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if q.Left <= 0 {
			o.ledger.closed[c.Budget.Key] = o.clock() + micros(q.Reset)
			return
		}
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"a statement raises", "P11_ReconcileNeverRaises", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if s, ok := statementOf(c, q, o.clock()); ok {
			o.ledger.stays[c.Budget.Key] = nil
			o.ledger.spend(c, s.at, max(0, int64(c.Limit.N())-s.left))
		}
	})},
	{"each statement lowers", "P11_ReconcileAgain", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if s, ok := statementOf(c, q, o.clock()); ok {
			o.ledger.spend(c, s.at, max(0, int64(c.Limit.N())-s.left))
		}
	})},
	{"what was sent is not known", "P11_ReconcileKnows", "", amending(func(s *statement, now int64) { s.since = now })},
	{"what is to come is taken for sent", "P11_ReconcileNotWhat", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		now := o.clock()
		if s, ok := statementOf(c, q, now); ok {
			for _, o := range o.ledger.stays[c.Budget.Key] {
				if now < o.at && o.at < s.end {
					q.Left += o.cost
				}
			}
		}
		o.ledger.reconcile(c, q, now)
	})},
	{"what went before the window is taken for sent in it", "P11_ReconcileUntil", "", amending(func(s *statement, now int64) {
		s.since = min(s.since, now-micros(time.Minute))
	})},
	{"the reset is trusted", "P11_ReconcileDoubts", "most windows are shorter there", amending(func(s *statement, now int64) {
		s.since = max(s.since, s.at+1)
	})},
	{"a moment too long", "P11_ReconcileLowers", "", amending(func(s *statement, _ int64) { s.at++ })},
	{"a moment too short", "P11_ReconcileLowers", "", amending(func(s *statement, _ int64) { s.at-- })},
	{"one more left", "P11_ReconcileLowers", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		q.Left = max(0, q.Left) + 1
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"below nothing", "P11_ReconcileNothing", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if q.Left >= 0 {
			o.ledger.reconcile(c, q, o.clock())
		}
	})},
	{"longer than a window", "P11_ReconcileNoLongerThanTheWindow", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		o.ledger.reconcile(c, q, o.clock())
		if c.Limit.Kind() == store.KindSlidingWindow && q.Left < c.Limit.N() && micros(q.Reset) > span(c) {
			o.ledger.spend(c, o.clock()+1, 1)
		}
	})},
	{"for a month", "P11_ReconcileNoLongerThanAPenalty", "no window is so long there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if s, ok := statementOf(c, q, o.clock()); ok {
			s.at += micros(max(0, q.Reset-store.MaxPenalty))
			o.ledger.settleUp(c, s, o.clock())
		}
	})},
	{"without a reset", "P11_ReconcileWithout", "a moment rarely matters there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		q.Reset = max(q.Reset, tick)
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"of any window", "P11_ReconcileAnother", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if c.Limit.Kind() == store.KindFixedWindow && q.Reset > 0 {
			q.Reset = store.MaxPenalty
		}
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"a bucket takes its own for others", "P11_ReconcileABucket", bucketsOnly, stating(func(o *oracle, c store.Charge, q store.Quota) {
		if c.Limit.Kind() == store.KindTokenBucket {
			o.ledger.spend(c, o.clock(), int64(max(0, c.Limit.Capacity()-max(0, q.Left))))
			return
		}
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"of all budgets", "P11_ReconcileOfOne", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		for key := range o.ledger.stays {
			other := c
			other.Budget.Key = key
			o.ledger.reconcile(other, q, o.clock())
		}
	})},
	{"nobody moves", "P11_ReconcileMoves", "nobody watches there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"all move", "P11_ReconcileMovesTheLast", "nobody watches there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		_, until := o.ledger.reconcile(c, q, o.clock())
		o.tellBetween(c, 0, until)
	})},
	{"the first move", "P11_ReconcileMovesTheLast", "nobody watches there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if _, until := o.ledger.reconcile(c, q, o.clock()); until > 0 {
			o.tellBetween(c, 0, o.clock()+micros(sec)+1)
		}
	})},
}

// Reconcile implements store.Store.
func (s broken) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	if s.states != nil {
		s.oracle.mu.Lock()
		defer s.oracle.mu.Unlock()
		s.states(s.oracle, c, q)
		return nil
	}
	return s.oracle.Reconcile(ctx, c, q)
}

func stating(states func(*oracle, store.Charge, store.Quota)) broken {
	return broken{states: states}
}

// amending books what others have spent by another statement.
func amending(amend func(s *statement, now int64)) broken {
	return stating(func(o *oracle, c store.Charge, q store.Quota) {
		now := o.clock()
		s, ok := statementOf(c, q, now)
		if !ok {
			o.ledger.reconcile(c, q, now)
			return
		}
		amend(&s, now)
		o.ledger.settleUp(c, s, now)
	})
}

// A sloppy watch says and does something else than the honest one.
type sloppy struct {
	*oracleWatch
	confirm func(v *oracleWatch, honest bool) bool
	stop    func(v *oracleWatch)
}

func (w sloppy) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	ok, err := w.oracleWatch.Confirm(ctx, maxWait)
	if w.confirm != nil {
		ok = w.confirm(w.oracleWatch, ok)
	}
	return ok, err
}

func (w sloppy) Stop() {
	if w.stop != nil {
		w.stop(w.oracleWatch)
		return
	}
	w.oracleWatch.Stop()
}

// confirming answers something else.
func confirming(confirm func(v *oracleWatch, honest bool) bool) broken {
	return broken{watch: func(v *oracleWatch) store.Watch { return sloppy{oracleWatch: v, confirm: confirm} }}
}

// stopping ends something else.
func stopping(stop func(v *oracleWatch)) broken {
	return broken{watch: func(v *oracleWatch) store.Watch { return sloppy{oracleWatch: v, stop: stop} }}
}

// overlooking watches over some of the charges only.
func overlooking(sees func(i int, b store.Booking) bool) broken {
	return broken{watch: func(v *oracleWatch) store.Watch {
		all := v.b
		v.b.Charges = nil
		for i, c := range all.Charges {
			if sees(i, all) {
				v.b.Charges = append(v.b.Charges, c)
			}
		}
		return v
	}}
}

// silently does something while nobody is watched over.
func silently(o *oracle, do func()) {
	watched := o.watched
	o.watched = nil
	do()
	o.watched = watched
}

func pauseOf(o *oracle, c store.Charge, d time.Duration) { _ = o.Pause(context.Background(), c, d) }
func resumeOf(o *oracle, c store.Charge)                 { _ = o.Resume(context.Background(), c) }

// unwatched is why a random run need not notice.
const unwatched = "nobody watches there, nor resumes"

// Mutants of watches, and of pauses that are lifted.
var watchMutants = []mutant{
	{"pauses are no news", "P11_WatchHears", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		silently(o, func() { pauseOf(o, c, d) })
	}}},
	{"confirms always", "P11_WatchHears", unwatched, confirming(func(*oracleWatch, bool) bool { return true })},
	{"confirms never", "P11_WatchUpTo", unwatched, confirming(func(*oracleWatch, bool) bool { return false })},
	{"doubts once", "P11_WatchHears", unwatched, confirming(func(v *oracleWatch, honest bool) bool {
		said := v.at < 0
		if !honest {
			v.at = -1
		}
		return honest || said
	})},
	{"the end is closed", "P11_WatchUpTo", unwatched, confirming(func(v *oracleWatch, honest bool) bool {
		return honest && v.o.ledger.closed[v.b.Charges[0].Budget.Key] != v.at
	})},
	{"the last pause counts", "P11_WatchAnother", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		delete(o.ledger.closed, c.Budget.Key)
		pauseOf(o, c, d)
	}}},
	{"the first budget only", "P11_WatchOfSeveral", unwatched, overlooking(func(i int, _ store.Booking) bool { return i == 0 })},
	{"the last budget only", "P11_WatchOfSeveral", unwatched, overlooking(func(i int, b store.Booking) bool { return i == len(b.Charges)-1 })},
	{"shadows hold", "P11_WatchPasses", unwatched, broken{watch: func(v *oracleWatch) store.Watch {
		v.b.Charges = slices.Clone(v.b.Charges)
		for i := range v.b.Charges {
			v.b.Charges[i].Shadow = false
		}
		return v
	}}},
	{"shadows do not close", "P11_WatchPasses", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		if !c.Shadow {
			pauseOf(o, c, d)
		}
	}}},
	{"only what is new", "P11_PauseBetween", unwatched, broken{watch: func(v *oracleWatch) store.Watch {
		old := v.closed()
		return sloppy{oracleWatch: v, confirm: func(_ *oracleWatch, honest bool) bool { return honest || old }}
	}}},
	{"no news at the beginning", "P11_PauseBetween", unwatched, broken{late: true}},
	{"starts that came are not watched", "P11_WatchAfter", unwatched, confirming(func(v *oracleWatch, honest bool) bool {
		return honest || v.at < v.o.clock()
	})},
	{"what is of the node is not watched", "P11_WatchOfANode", unwatched, overlooking(func(i int, b store.Booking) bool { return !b.Charges[i].Node })},
	{"what is of the fleet is not watched", "P11_WatchOfANode", unwatched, overlooking(func(i int, b store.Booking) bool {
		return b.Charges[i].Node || !slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Node })
	})},
	{"what is in flight is not watched", "P11_WatchOfWhat", unwatched, overlooking(func(i int, b store.Booking) bool { return !inFlight(b.Charges[i]) })},
	{"what will be in flight is not watched", "P11_WatchOfAStart", unwatched, overlooking(func(i int, b store.Booking) bool {
		return !inFlight(b.Charges[i]) || len(b.Charges) == 1
	})},
	{"news block", "P11_News", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		silently(o, func() { pauseOf(o, c, d) })
		for _, v := range o.watched {
			select {
			case v.news <- struct{}{}:
			case <-time.After(time.Minute):
			}
		}
	}}},
	{"stop ends nothing", "P11_WatchEnds", unwatched, stopping(func(*oracleWatch) {})},
	{"stop ends all", "P11_WatchEnds", unwatched, stopping(func(v *oracleWatch) { v.o.watched = nil })},

	{"resume ignored", "P11_ResumeOpens", unwatched, broken{resume: func(*oracle, store.Charge) {}}},
	{"resume of what counts starts only", "P11_ResumeOpensWhat", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		if !inFlight(c) {
			resumeOf(o, c)
		}
	}}},
	{"resume of all", "P11_ResumeOfOne", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		clear(o.ledger.closed)
		resumeOf(o, c)
	}}},
	{"a pause that was lifted comes back", "P11_ResumeThenPause", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		pauseOf(o, c, max(d, time.Minute))
	}}},
	{"resume is no news", "P11_ResumeLets", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		silently(o, func() { resumeOf(o, c) })
	}}},
	{"resume moves nobody up", "P11_ResumeLets", unwatched, confirming(func(v *oracleWatch, honest bool) bool { return honest || !v.closed() })},
	{"resume moves all up, forever", "P11_ResumeLets", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		resumeOf(o, c)
		for mark := range int64(100) {
			o.lifted[mark] = true
		}
	}}},
	{"resume before the watch is forgotten", "P11_ResumeBetween", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		resumeOf(o, c)
		o.lifted = nil
	}}},
	{"resume of what is open is news", "P11_ResumeOfAnOpen", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		resumeOf(o, c)
		o.news(c, true)
	}}},
	{"resume remembers the start that was to go first", "P11_UnlimitedIsResumed", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		stays := o.ledger.stays[c.Budget.Key]
		resumeOf(o, c)
		o.ledger.stays[c.Budget.Key] = stays
	}}},
	{"resume of what has a number only", "P11_UnlimitedIsResumed", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		if !isOpen(c) {
			resumeOf(o, c)
		}
	}}},
	{"what is unlimited is not watched", "P11_UnlimitedTells", unwatched, overlooking(func(i int, b store.Booking) bool { return !isOpen(b.Charges[i]) })},
	{"resume of the fleet only", "P11_ResumeOfANode", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		if !c.Node {
			resumeOf(o, c)
		}
	}}},
}
