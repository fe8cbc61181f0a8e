package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Mutants of who goes first after a penalty.
var probeMutants = []mutant{
	{"all go first", "P11_Probe", "", probing(func(throttle.Charge, []stay, int64) gap { return gap{} })},
	{"two go first", "P11_ProbeGoesFirst", "", probing(func(c throttle.Charge, stays []stay, closed int64) gap {
		if g := gapOf(c, stays, closed); len(slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return !g.holds(s) })) > 1 {
			return g
		}
		return gap{}
	})},
	{"a probe has too little time", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end -= tick.Microseconds() })},
	{"a probe has too much time", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end += tick.Microseconds() })},
	{"nobody follows a probe", "P11_ProbeGoesFirst", "", gapping(func(g *gap) { g.end += micros(time.Hour) })},
	{"a probe is alone from when it begins", "P11_ProbeComesLater", "", probing(func(c throttle.Charge, stays []stay, closed int64) gap {
		g, first := gapOf(c, stays, closed), int64(math.MaxInt64)
		for _, s := range stays {
			if g.holds(s) {
				first = min(first, s.at)
			}
		}
		if g.end != 0 {
			g.end = max(g.begin, first) + micros(probeTime)
		}
		return g
	})},
	{"a probe costs 1", "P11_ProbeOfAnyCost", "", probing(func(c throttle.Charge, stays []stay, closed int64) gap {
		return gapOf(c, slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return s.cost > 1 }), closed)
	})},
	{"a probe counts no longer than its window", "P11_ProbeOutlives", "no window is that short there", probing(
		func(c throttle.Charge, stays []stay, closed int64) gap {
			now := time.Now().UnixMicro()
			return gapOf(c, slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return over(c, s) <= now }), closed)
		})},
	{"a probe of slow starts only", "P11_ProbeGoesFirst", "", gappingWhere(func(c throttle.Charge, stays []stay, closed int64) bool {
		return rampOf(c, stays, closed).end != 0
	})},
	{"no probe of buckets", "P11_ProbeGoesFirst", "", gappingAllBut(throttle.KindTokenBucket)},
	{"no probe of windows", "P11_ProbeGoesFirst", "", gappingAllBut(throttle.KindFixedWindow)},
	{"a probe of what is paced", "P11_NoProbe", "", probing(func(c throttle.Charge, stays []stay, closed int64) gap {
		if c.Limit.Kind() == throttle.KindLeakyBucket {
			c.Limit = throttle.PerSecond(1)
		}
		return gapOf(c, stays, closed)
	})},
	{"a probe after the first end", "P11_ProbeAfterTheLatest", "", broken{pause: func(o *oracle, c throttle.Charge, d time.Duration) {
		if old, ok := o.ledger.closed[c.Budget.Key]; ok && d > 0 {
			o.ledger.gap = func(other throttle.Charge, stays []stay, closed int64) gap {
				if other.Budget.Key == c.Budget.Key {
					closed = old
				}
				return gapOf(other, stays, closed)
			}
		}
		o.ledger.pause(c, o.clock(), d)
	}}},
	{"what was booked before is no probe", "P11_ProbeWasBookedBefore", "", broken{pause: func(o *oracle, c throttle.Charge, d time.Duration) {
		before := slices.Clone(o.ledger.stays[c.Budget.Key])
		o.ledger.gap = func(other throttle.Charge, stays []stay, closed int64) gap {
			if other.Budget.Key == c.Budget.Key {
				stays = slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return slices.Contains(before, s) })
			}
			return gapOf(other, stays, closed)
		}
		o.ledger.pause(c, o.clock(), d)
	}}},
}

// probing lets somebody else go first.
func probing(other func(c throttle.Charge, stays []stay, closed int64) gap) broken {
	return broken{pause: func(o *oracle, c throttle.Charge, d time.Duration) {
		o.ledger.gap = other
		o.ledger.pause(c, o.clock(), d)
	}}
}

// gapping makes the gap another one.
func gapping(change func(*gap)) broken {
	return probing(func(c throttle.Charge, stays []stay, closed int64) gap {
		g := gapOf(c, stays, closed)
		if g.end != 0 {
			change(&g)
		}
		return g
	})
}

// gappingWhere leaves a gap only here and there.
func gappingWhere(wanted func(c throttle.Charge, stays []stay, closed int64) bool) broken {
	return probing(func(c throttle.Charge, stays []stay, closed int64) gap {
		if wanted(c, stays, closed) {
			return gapOf(c, stays, closed)
		}
		return gap{}
	})
}

// gappingAllBut leaves a gap where the limit is of another kind.
func gappingAllBut(kind throttle.Kind) broken {
	return gappingWhere(func(c throttle.Charge, _ []stay, _ int64) bool { return c.Limit.Kind() != kind })
}
