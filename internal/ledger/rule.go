package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// windowParts is into how many parts a window is cut when its limit is too large to keep
// every start by itself.
const windowParts = 128

// A rule is a charge in microseconds. What a kind of limit is stands in this file, and how it looks for
// a start in earliest.go; the other files ask the rule, and do not know kinds. In Redis it is the same:
// see rule.lua and search.lua.
type rule struct {
	limit   *store.Limit
	kind    store.Kind
	aligned bool  // its windows have edges; else one ends at every moment
	slots   bool  // what is in flight counts, not what starts
	n       int64 // the largest cost that ever fits
	cost    int64
	reserve int64 // what must stay free
	room    int64 // what may be there besides the cost and what must stay free
	span    int64 // no start matters to one a span later; see store.Charge.Span
	jitter  int64
	pace    int64 // see store.Charge
	spread  int64 // see store.Booking
	most    int64 // n, or how much of it a ceiling allows

	// What some kinds have, and others not, as the windows and slots above.
	width  int64 // how long the windows are; 0: there are none, or they differ in length
	unit   int64 // for so long each unit of a cost is alone; 0: units may start together
	pad    int64 // by how much more a ceiling keeps units apart
	tokens int64 // so many flow into a bucket in …; 0: there is no bucket
	micros int64 // … so many microseconds
	peak   int64 // the most in any half-open interval for which entries are kept; 0: no start counts

	learns int64   // see store.Charge.LearningPeriod
	rate   float64 // how much the limit allows in that time
}

// set makes u the rule of a charge. It fills in the one given, because a rule is
// large enough for a copy to be felt.
func (u *rule) set(c *store.Charge, spread time.Duration) {
	u.limit, u.kind = &c.Limit, c.Limit.Kind()
	u.n, u.cost = int64(c.Limit.Capacity()), int64(c.Cost)
	u.reserve, u.most = int64(c.KeepFree), u.n
	u.room = u.n - u.cost - u.reserve
	u.span = Micros(c.Span())
	u.jitter, u.pace, u.spread = Micros(c.Jitter), Micros(c.Pace), Micros(spread)
	u.learns, u.rate = Micros(c.LearningPeriod()), float64(u.n)
	u.setKind(c)
}

// setKind sets what the rule has because of its kind.
func (u *rule) setKind(c *store.Charge) {
	u.aligned, u.slots, u.width, u.unit, u.pad, u.tokens, u.micros, u.peak = false, false, 0, 0, 0, 0, 0, u.n
	switch u.kind {
	case store.KindSlidingWindow:
		u.width = u.span
	case store.KindFixedWindow:
		u.aligned, u.width, u.peak = true, Micros(u.limit.Per()), 2*u.n // at an edge
	case store.KindLeakyBucket:
		u.unit, u.peak = u.span, 1
	case store.KindTokenBucket:
		u.tokens, u.micros = c.Refill()
		u.peak = 2 * u.n // a full one, and what flows in
		u.rate = float64(u.learns) * float64(u.tokens) / float64(u.micros)
	case store.KindConcurrency:
		u.slots = true
	case store.KindUnlimited:
		u.cost, u.peak = 1, 0 // what it costs means nothing
	}
}

// window returns since when starts matter to one at t, until when one at t matters, and for how
// long a start can matter.
func (u *rule) window(t int64) (since, until, keep int64) {
	if u.aligned {
		s, e := u.limit.Window(time.UnixMicro(t))
		since, until = s.UnixMicro(), e.UnixMicro()
		return since, until, until - since
	}
	return t - u.span + 1, t + u.span, u.span
}

// hasWindows reports whether starts are counted in windows.
func (u *rule) hasWindows() bool { return u.aligned || u.width > 0 }

// part returns the piece of the time line around t in which starts may share an
// entry.
func (u *rule) part(t int64) (start, end int64) {
	base, _, keep := u.window(t)
	if !u.aligned {
		base = 0
	}
	width := partOf(keep)
	start = t - (t-base)%width
	return start, start + width
}

// partOf is the width of a part of a window.
func partOf(span int64) int64 { return (span + windowParts - 1) / windowParts }

// length is the time that one booking at t occupies beyond its start.
func (u *rule) length() int64 { return (u.cost-1)*u.unit + u.spread }

// counts reports whether a booking at t still counts.
func (u *rule) counts(t, now int64) bool {
	if !u.aligned {
		t += u.length()
	}
	since, _, _ := u.window(now)
	return t >= since
}

// Micros rounds up: every promise that a store keeps is about more room.
func Micros(d time.Duration) int64 {
	m := d / time.Microsecond
	if m*time.Microsecond < d {
		m++
	}
	return int64(m)
}
