package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Mutants of the order after a penalty.
var probeMutants = []mutant{
	{"all go first", "P11_Probe", "", probing(func(throttle.Charge, []stay, penalty) gap { return gap{} })},
	{"two go first", "P11_ProbeGoesFirst", "", probing(func(c throttle.Charge, stays []stay, p penalty) gap {
		if g := gapOf(c, stays, p); len(slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return !g.holds(s) })) > 1 {
			return g
		}
		return gap{}
	})},
	{"a probe has too little time", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end -= tick.Microseconds() })},
	{"a probe has too much time", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end += tick.Microseconds() })},
	{"nobody follows a probe", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end += micros(time.Hour) })},
	{"a probe is alone from when it begins", "P11_ProbeComesLater", "", probing(func(c throttle.Charge, stays []stay, p penalty) gap {
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
	{"a probe costs 1", "P11_ProbeOfAnyCost", "", probing(func(c throttle.Charge, stays []stay, p penalty) gap {
		return gapOf(c, slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return s.cost > 1 }), p)
	})},
	{"a probe counts no longer than its window", "P11_ProbeOutlives", "no window is that short there", probing(
		func(c throttle.Charge, stays []stay, p penalty) gap {
			now := time.Now().UnixMicro()
			return gapOf(c, slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return over(c, s) <= now }), p)
		})},
	{"a probe of slow starts only", "P11_ProbeGoesFirst", "", gappingWhere(func(c throttle.Charge, stays []stay, p penalty) bool {
		return rampOf(c, stays, p).end != 0
	})},
	{"no probe of buckets", "P11_ProbeGoesFirst", "", gappingAllBut(throttle.KindTokenBucket)},
	{"no probe of windows", "P11_ProbeGoesFirst", "", gappingAllBut(throttle.KindFixedWindow)},
	{"a probe of what is paced", "P11_NoProbe", "", probing(func(c throttle.Charge, stays []stay, p penalty) gap {
		if c.Limit.Kind() == throttle.KindLeakyBucket {
			c.Limit = throttle.PerSecond(1)
		}
		return gapOf(c, stays, p)
	})},
	{"a probe after the first end", "P11_ProbeAfterTheLatest", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		if old, ok := o.ledger.closed[c.Budget.Key]; ok && d > 0 {
			o.ledger.gap = func(other throttle.Charge, stays []stay, p penalty) gap {
				if other.Budget.Key == c.Budget.Key {
					p.end = old
				}
				return gapOf(other, stays, p)
			}
		}
		o.ledger.shut(c, o.clock(), d, ago)
	}}},
	{"what was booked before is no probe", "P11_ProbeWasBookedBefore", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		before := slices.Clone(o.ledger.stays[c.Budget.Key])
		o.ledger.gap = func(other throttle.Charge, stays []stay, p penalty) gap {
			if other.Budget.Key == c.Budget.Key {
				stays = slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return slices.Contains(before, s) })
			}
			return gapOf(other, stays, p)
		}
		o.ledger.shut(c, o.clock(), d, ago)
	}}},
}

// probing lets somebody else go first.
func probing(other func(c throttle.Charge, stays []stay, p penalty) gap) broken {
	return broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		o.ledger.gap = other
		o.ledger.shut(c, o.clock(), d, ago)
	}}
}

// gapping makes the gap another one.
func gapping(change func(*gap)) broken {
	return probing(func(c throttle.Charge, stays []stay, p penalty) gap {
		g := gapOf(c, stays, p)
		if g.end != 0 {
			change(&g)
		}
		return g
	})
}

// gappingWhere leaves a gap only here and there.
func gappingWhere(wanted func(c throttle.Charge, stays []stay, p penalty) bool) broken {
	return probing(func(c throttle.Charge, stays []stay, p penalty) gap {
		if wanted(c, stays, p) {
			return gapOf(c, stays, p)
		}
		return gap{}
	})
}

// gappingAllBut leaves a gap where the limit is of another kind.
func gappingAllBut(kind throttle.Kind) broken {
	return gappingWhere(func(c throttle.Charge, _ []stay, _ penalty) bool { return c.Limit.Kind() != kind })
}
