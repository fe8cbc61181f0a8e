package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// The short way: the usual booking in a fraction of the steps of a Request.

// Few is an upper bound on the charges of nearly all bookings: more than the
// table of a provider has rows for one request. Stores keep the rows of a booking
// with at most that number of charges on the stack.
const Few = 12

// BookShort books a start now, if all budgets of the booking are plain: sliding
// windows that have room behind all that was booked before, and unlimited
// budgets of which nothing is known. That is the case for most callers. It
// decides like a Request, in a fraction of the steps. It returns false, and has
// done nothing, if a budget is not plain: then a Request must decide. The rows
// are in the order of the charges; the row of an unlimited budget of which
// nothing is known is nil.
func BookShort(now int64, b *store.Booking, rows []*Row, g *store.Grant) (decided bool) {
	charges := b.Charges
	if b.Returns || b.NotBefore != 0 || names(&b.Instead) {
		return false
	}

	// Nothing is changed before all are known to be plain.
	rows = rows[:len(charges)]
	for i := range charges {
		r, c := rows[i], &charges[i]
		if r == nil && c.Limit.Kind() == store.KindUnlimited {
			continue
		}
		if c.Limit.Kind() != store.KindSlidingWindow || c.Shadow || slices.Contains(rows[:i], r) {
			return false
		}

		span, n := shortSpan(c), int64(c.Limit.N())
		if !r.isPlain(now, span) || !r.hasRoom(now, span, n-int64(c.Cost)-int64(c.KeepFree)) {
			return false
		}
	}

	// All budgets have room, so book in all of them.
	stamp, spread := int64(1), Micros(b.Spread)
	for i := range charges {
		r, c := rows[i], &charges[i]
		if r == nil {
			continue
		}

		r.bookPlain(now, shortSpan(c), int64(c.Limit.N()), int64(c.Cost), spread)
		stamp += r.lifts
	}

	g.OK, g.HeldBy, g.Handle.Start, g.Handle.Stamp = true, store.NotHeld, now, stamp
	return true
}

// shortSpan returns Charge.Span of a sliding window, in microseconds.
func shortSpan(c *store.Charge) int64 { return Micros(c.Limit.Per()+c.Jitter) + 1 }

// names reports whether a handle is not the zero handle. To compare the two with
// == takes twice as long.
func names(h *store.Handle) bool {
	return h.Start|h.Place|h.Stamp != 0 || h.Local || h.Node != nil
}

// isPlain reports whether a row under a sliding window holds nothing but starts.
func (r *Row) isPlain(now, span int64) bool {
	return now >= r.seen && // otherwise the clock stepped back
		(span == r.span || now >= r.until) && r.lost <= now-span && // otherwise history is missing: see remember
		(r.paused == 0 || r.slowEnd(span) <= now) &&
		max(r.tails[0], r.tails[1], r.tails[2]) <= now && // otherwise it has to keep behind others
		r.ceiling.top == 0 && r.queue == nil && r.slots == nil && r.leases == nil
}

// slowEnd returns when the probe and the slow start in a sliding window are
// over.
func (r *Row) slowEnd(span int64) int64 {
	return r.paused + max(r.last.probe, int64(len(steps))*min(r.last.step(), span))
}

// hasRoom reports whether a sliding window has room now, whatever is still to
// come, and no entry begins later.
func (r *Row) hasRoom(now, span, room int64) bool {
	e, total := r.entries, r.total
	if k := len(e); k > 0 && e[k-1].first > now {
		return false
	}
	for i := 0; total > room; i++ {
		if i == len(e) || e[i].last+span > now {
			return false
		}
		total -= e[i].n // the entry is over
	}
	return true
}

// sliding is a rule with all that prune has to know of a sliding window.
var sliding rule

// bookPlain does with a plain row what advance and book do, for a start now.
func (r *Row) bookPlain(now, span, n, cost, spread int64) {
	// As in remember: the span and the bound of an older limit count until no entry needs them.
	if now >= r.until || r.isBlank() {
		r.span, r.most = span, n
	} else {
		r.most = max(r.most, n)
	}
	r.seen = now

	if len(r.entries) > 0 && r.isOver(&r.entries[0], now) {
		r.prune(now, &sliding)
	}

	// As in book: under a large limit the starts of one part of the window share an entry.
	shares := now
	if n > windowParts {
		shares -= now % partOf(span)
	}
	r.push(now, now+spread, cost, shares)
	r.until = max(r.until, now+spread+span)
	r.bound()
}
