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

// gappingWhere leaves a gap only here and there.
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

// ramping begins in another way.
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
