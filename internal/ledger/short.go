package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

// BookShort is BookNow where that is plain: the start is now, in sliding windows, and in
// nothing else, that have room behind all that was booked before. That is what most callers
// find. The rows are those of the charges, in order. It does what a Request would do, in far
// fewer steps; whatever is not as plain is left to that. Then it returns false, and nothing was done.
func BookShort(now int64, b *throttle.Booking, rows []*Row, g *throttle.Grant) (decided bool) {
	if b.Returns || b.NotBefore != 0 || b.Instead != (throttle.Handle{}) {
		return false
	}
	for i, r := range rows {
		if !r.isPlain(now, &b.Charges[i]) || slices.Contains(rows[:i], r) {
			return false
		}
	}
	g.OK, g.Held, g.Handle.Start, g.Handle.Stamp = true, throttle.NotHeld, now, 1
	spread := Micros(b.Spread)
	for i, r := range rows {
		r.bookPlain(now, spread, &b.Charges[i])
		g.Handle.Stamp += r.lifts
	}
	return true
}

// isPlain reports whether all that is to be done with a row for a charge is to append to it.
func (r *Row) isPlain(now int64, c *throttle.Charge) bool {
	if c.Limit.Kind() != throttle.KindSlidingWindow || c.Shadow {
		return false
	}
	span := slidingSpan(c)
	return now >= r.seen && // else the clock stepped back
		(span == r.span || now >= r.until) && r.lost <= now-span && // else history is missing: see remember
		r.ceiling.top == 0 &&
		r.queue == nil && r.slots == nil && r.leases == nil &&
		(r.paused == 0 || r.slowEnd(span) <= now) &&
		max(r.tails[0], r.tails[1], r.tails[2]) <= now && // else it has to keep behind others
		r.hasRoom(now, span, int64(c.Limit.N()-c.Cost-c.Reserve))
}

// slowEnd is when a row is as if it had never been closed: the probe and the slow start in a
// sliding window are over.
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

// sliding is what prune has to know of a charge.
var sliding = rule{kind: throttle.KindSlidingWindow}

// bookPlain books a start now: what advance and book do with a row that is plain.
func (r *Row) bookPlain(now, spread int64, c *throttle.Charge) {
	span, n := slidingSpan(c), int64(c.Limit.N())
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

// slidingSpan is the span of a charge for a sliding window.
func slidingSpan(c *throttle.Charge) int64 { return Micros(c.Span()) }
