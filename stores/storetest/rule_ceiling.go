package storetest

import (
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A ceiling is the definition of a learned limit: how much of a limit was refused, when,
// and of a window of which length. The zero value is none.
type ceiling struct {
	top    float64
	fell   int64
	window time.Duration
}

// isOf reports whether the ceiling is about the charge's limit.
func (l ceiling) isOf(c store.Charge) bool {
	return l.top > 0 && c.LearningPeriod() == l.window
}

// at is the height of the ceiling above the charge's budget: it begins an eighth below
// its top, is back there after a minute and twelve windows, and rises on beyond; after
// four times as long there is none.
func (l ceiling) at(c store.Charge, now int64) float64 {
	whole := allowed(c)
	if !l.isOf(c) {
		return whole
	}
	rising := micros(time.Minute + 12*l.window)
	x := float64(now-l.fell-rising) / float64(rising)
	if x >= 3 {
		return whole
	}
	return min(whole, l.top+float64(l.top/8*x*x*x))
}

// shown is the ceiling in a Status.
func (l ceiling) shown(c store.Charge, now int64) float64 {
	if level := l.at(c, now); level < allowed(c) {
		return thousandths(level)
	}
	return 0
}

// lower returns the charge with the limit that the ceiling leaves of it, but never less
// than it costs.
func (l ceiling) lower(c store.Charge, now int64) store.Charge {
	level := l.at(c, now)
	if !l.isOf(c) || level >= allowed(c) {
		return c
	}

	share := level / allowed(c)
	n := max(1, int(float64(c.Limit.Capacity())*share), c.Cost+c.KeepFree)

	switch c.Limit.Kind() {
	case store.KindSlidingWindow:
		c.Limit = store.SlidingWindow(n, c.Limit.Per())
	case store.KindFixedWindow:
		c.Limit = store.FixedWindow(n, c.Limit.Per())
	case store.KindLeakyBucket: // units are longer by this factor
		unit := time.Duration(float64(pace(c))/share) * tick
		c.Limit = store.LeakyBucket(c.Limit.N(), time.Duration(c.Limit.N())*unit-c.Jitter)
	case store.KindTokenBucket: // less flows into a smaller one
		tokens, each := c.Refill()
		c.Limit = store.TokenBucket(max(1, int(float64(tokens)*share)), time.Duration(each)*tick, n)
	}

	return c
}

// learn lowers the ceiling of a budget after the refusal of a start at a time, and returns the
// ceiling before and after, in thousandths. It lowers nothing if the start was before the last
// lesson, during a penalty or its probe, or if the budget was more than full.
func (l *ledger) learn(c store.Charge, at, now int64) (from, to float64) {
	if c.LearningPeriod() == 0 {
		return 0, 0
	}

	old := l.learnt[c.Budget.Key]
	from = old.at(c, now)
	to = from
	last := l.penalty(c.Budget.Key)

	used := l.used(c, at)
	if at > old.fell && at <= now && (last.end == 0 || at >= last.end+last.probe) && used <= allowed(c) {
		used = max(1, used)

		// A refusal far below the ceiling may have a different cause, so the ceiling falls by a quarter only.
		if used < from/2 {
			used = from * 3 / 4
		}

		next := ceiling{max(1, min(from, used)), now, c.LearningPeriod()}
		l.learnt[c.Budget.Key] = next
		to = min(from, next.at(c, now))
	}

	return thousandths(from), thousandths(to)
}

// used is how much of the limit a start found in use, itself included; of a pace and a
// bucket, of which only the rate is of interest, all.
func (l *ledger) used(c store.Charge, at int64) (sum float64) {
	if k := c.Limit.Kind(); k == store.KindLeakyBucket || k == store.KindTokenBucket {
		return allowed(c)
	}
	for _, s := range l.stays[c.Budget.Key] {
		if s.at <= at && over(c, s) > at {
			sum += float64(s.cost)
		}
	}
	return sum
}

// allowed is how much the limit allows in the window that the charge learns by.
func allowed(c store.Charge) float64 {
	if c.Limit.Kind() != store.KindTokenBucket {
		return float64(c.Limit.N())
	}
	tokens, each := c.Refill()
	return float64(micros(c.LearningPeriod())) * float64(tokens) / float64(each)
}

// thousandths cuts a level off after three decimals.
func thousandths(level float64) float64 { return math.Floor(level*1000) / 1000 }
