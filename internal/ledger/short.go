package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

// mostShort is how many charges a booking has at most that takes the short way.
const mostShort = 4

// BookShort is BookNow for what is plain: a start now, in sliding windows, and in nothing else,
// that have room behind all that was booked before. That is what most callers find. It does
// what a Request would do, in far fewer steps; whatever is not as plain is left to that: then
// it returns false, and nothing was done. The rows are those of the charges, in order.
func BookShort(now int64, b *throttle.Booking, rows []*Row, g *throttle.Grant) (decided bool) {
	if len(rows) > mostShort || b.Returns || b.NotBefore != 0 || b.Instead != (throttle.Handle{}) {
		return false
	}
	var spans [mostShort]int64
	for i, r := range rows { // nothing is changed before all are known to be plain
		c := &b.Charges[i]
		if c.Limit.Kind() != throttle.KindSlidingWindow || c.Shadow || slices.Contains(rows[:i], r) {
			return false
		}
		spans[i] = Micros(c.Limit.Per()+c.Jitter) + 1 // see Charge.Span
		if !r.isPlain(now, spans[i]) || !r.hasRoom(now, spans[i], int64(c.Limit.N()-c.Cost-c.Reserve)) {
			return false
		}
	}
	stamp, spread := int64(1), Micros(b.Spread)
	for i, r := range rows {
		r.bookPlain(now, spans[i], spread, &b.Charges[i])
		stamp += r.lifts
	}
	g.OK, g.Held, g.Handle.Start, g.Handle.Stamp = true, throttle.NotHeld, now, stamp
	return true
}

// isPlain reports whether a row under a sliding window holds nothing but starts.
func (r *Row) isPlain(now, span int64) bool {
	return now >= r.seen && // else the clock stepped back
		(span == r.span || now >= r.until) && r.lost <= now-span && // else history is missing: see remember
		(r.paused == 0 || r.slowEnd(span) <= now) &&
		max(r.tails[0], r.tails[1], r.tails[2]) <= now && // else it has to keep behind others
		r.ceiling.top == 0 && r.queue == nil && r.slots == nil && r.leases == nil
}

// slowEnd is when the probe and the slow start in a sliding window are over.
func (r *Row) slowEnd(span int64) int64 {
	return r.paused + max(r.last.probe, int64(len(steps))*min(r.last.step(), span))
}

// hasRoom reports whether a sliding window has room now, whatever is still to come, and
// no entry begins later.
func (r *Row) hasRoom(now, span, room int64) bool {
	e, total := r.entries, r.total
	if k := len(e); k > 0 && e[k-1].first > now {
		return false
	}
	for i := 0; total > room; i++ {
		if i == len(e) || e[i].last+span > now {
			return false
		}
		total -= e[i].n // it is over
	}
	return true
}

// sliding is all that prune has to know of a sliding window.
var sliding = rule{kind: throttle.KindSlidingWindow}

// bookPlain is what advance and book do with a row that is plain, for a start now.
func (r *Row) bookPlain(now, span, spread int64, c *throttle.Charge) {
	n := int64(c.Limit.N())
	if now >= r.until {
		r.span, r.most = span, n
	} else {
		r.most = max(r.most, n)
	}
	r.seen = now
	if len(r.entries) > 0 && r.isOver(&r.entries[0], now) {
		r.prune(now, &sliding)
	}
	shares := now
	if n > windowParts {
		shares -= now % partOf(span)
	}
	r.push(now, now+spread, int64(c.Cost), shares)
	r.until = max(r.until, now+spread+span)
	r.bound()
}
