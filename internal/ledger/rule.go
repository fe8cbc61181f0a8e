package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// windowParts is into how many parts a window is cut when its limit is too large to keep
// every start by itself.
const windowParts = 128

// A rule is a charge in microseconds.
type rule struct {
	limit   *throttle.Limit
	kind    throttle.Kind
	n       int64 // the largest cost that ever fits
	cost    int64
	reserve int64 // what must stay free
	room    int64 // what may be there besides the cost and what must stay free
	span    int64 // no start matters to one a span later; LeakyBucket: what one unit occupies; see throttle.Charge.Span
	jitter  int64
	pace    int64 // see throttle.Charge
	spread  int64 // see throttle.Booking
	tokens  int64 // Bucket: so many flow in …
	micros  int64 // … in so many microseconds
	most    int64 // n, or how much of it a ceiling allows
	pad     int64 // Paced: by how much more a ceiling keeps units apart

	learns int64   // see throttle.Charge.LearnsPer
	rate   float64 // how much the limit allows in that time
}

// set makes u the rule of a charge. It fills in the one given, because a rule is
// large enough for a copy to be felt.
func (u *rule) set(c *throttle.Charge, spread time.Duration) {
	u.limit, u.kind = &c.Limit, c.Limit.Kind()
	u.n, u.cost = int64(c.Limit.Capacity()), int64(c.Cost)
	u.reserve, u.most, u.pad = int64(c.Reserve), u.n, 0
	u.room = u.n - u.cost - u.reserve
	u.span = Micros(c.Span())
	u.jitter, u.pace, u.spread = Micros(c.Jitter), Micros(c.Pace), Micros(spread)
	if u.kind == throttle.KindUnlimited {
		u.cost = 1 // what it costs means nothing
	}
	if u.kind == throttle.KindTokenBucket {
		u.tokens, u.micros = c.Refill()
	}
	if u.learns = Micros(c.LearnsPer()); u.learns > 0 {
		u.rate = u.allows()
	}
}

// allows is how much the limit allows in the window that an adaptive charge learns by.
func (u *rule) allows() float64 {
	if u.kind == throttle.KindTokenBucket {
		return float64(u.learns) * float64(u.tokens) / float64(u.micros)
	}
	return float64(u.n)
}

// window returns the fixed or calendar window that holds t.
func (u *rule) window(t int64) (start, end int64) {
	s, e := u.limit.Window(time.UnixMicro(t))
	return s.UnixMicro(), e.UnixMicro()
}

// part returns the piece of the time line around t in which starts may share an
// entry.
func (u *rule) part(t int64) (start, end int64) {
	base, span := int64(0), u.span
	if u.kind == throttle.KindFixedWindow {
		base, end = u.window(t)
		span = end - base
	}
	width := partOf(span)
	start = t - (t-base)%width
	return start, start + width
}

// partOf is the width of a part of a window.
func partOf(span int64) int64 { return (span + windowParts - 1) / windowParts }

// length is the time that one booking at t occupies beyond its start.
func (u *rule) length() int64 {
	if u.kind == throttle.KindLeakyBucket {
		return (u.cost-1)*u.span + u.spread
	}
	return u.spread
}

// counts reports whether a booking at t still counts.
func (u *rule) counts(t, now int64) bool {
	end := t + u.length() + u.span
	if u.kind == throttle.KindFixedWindow {
		_, end = u.window(t)
	}
	return now < end
}

// Micros rounds up: every promise that a store keeps is about more room.
func Micros(d time.Duration) int64 {
	m := d / time.Microsecond
	if m*time.Microsecond < d {
		m++
	}
	return int64(m)
}
