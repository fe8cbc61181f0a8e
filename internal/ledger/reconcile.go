package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// doubt is by how much a reset may be too late: upstreams give it in whole
// seconds, and an answer travels for a while.
const doubt = 2_000_000

// Reconcile lowers what is left of the first charge's budget to what its upstream says.
// See docs/internals/booking.md.
func (q *Request) Reconcile(of throttle.Quota) {
	left, reset, age := int64(max(0, of.Left)), Micros(min(of.Reset, throttle.MaxPenalty)), Micros(max(0, of.Age))
	s := &q.Searches[0]
	var from, before int64
	switch u := &s.rule; {
	case u.tokens > 0:
		from, before = s.row.bucketLeft(u, left)
	case reset > 0 && u.hasWindows():
		from, before = s.row.windowLeft(u, left, reset, age)
	}
	if from < before {
		q.useless(0, from, before, true)
	}
	q.moved()
}

// windowLeft books what others have spent of a window, if less is left of it than
// we believe: so that it is over when the window is. It returns which starts do not fit
// any more.
func (r *Row) windowLeft(u *rule, left, reset, age int64) (from, before int64) {
	var since, at, end int64 // the window, and when the others are taken to have spent
	if now := r.seen; !u.aligned {
		end = now + min(reset, u.span)
		since, at = max(now, end-doubt)-u.span+1, end-u.span
		if age > 0 { // what has started since was not known to the upstream; what others spent lies at about at
			mine, _ := r.between(max(at+doubt, now-age)+1, now+1)
			left = max(0, left-mine)
		}
	} else {
		since, end, _ = u.window(now)
		at = now
		if end-now > min(2*reset, Micros(throttle.MaxPenalty)) {
			return 0, 0
		}
	}
	spent, coming := r.between(since, end)
	if others := u.n - spent - left; others > 0 {
		from, before = r.lastOf(coming-left, end), end
		r.spend(at, u, others)
	}
	return from, before
}

// bucketLeft is windowLeft for a bucket, which knows by itself when there will
// be more. Less than what flows in within a second is not worth knowing.
func (r *Row) bucketLeft(u *rule, left int64) (from, before int64) {
	others := r.tokensLeft(u) - left
	if others > 0 && others > Micros(time.Second)*u.tokens/u.micros {
		from, before = r.seen+1, r.seen+(others*u.micros+u.tokens-1)/u.tokens
		r.spend(r.seen, u, others)
	}
	return from, before
}

// spend books what others have spent.
func (r *Row) spend(at int64, u *rule, n int64) {
	v := *u
	v.cost = n
	r.book(at, &v)
}

// between sums what has started since a time, and what is to come before an end.
func (r *Row) between(since, end int64) (spent, coming int64) {
	for _, e := range r.entries {
		switch {
		case e.last < since || e.first >= end:
		case e.first <= r.seen:
			spent += e.n
		default:
			coming += e.n
		}
	}
	return spent, coming
}

// lastOf returns when the last starts before an end begin that cost so much
// together. So much is to come.
func (r *Row) lastOf(cost, end int64) int64 {
	from := end
	for i := len(r.entries) - 1; i >= 0 && cost > 0; i-- {
		if e := r.entries[i]; e.first < end {
			from = e.first
			cost -= e.n
		}
	}
	return from
}

// tokensLeft returns how many whole tokens of a bucket those leave that have
// started.
func (r *Row) tokensLeft(u *rule) int64 {
	l, late := level{r.lost, r.level}, int64(0)
	flown := entry{last: r.seen - u.jitter} // until then; what flows in during the jitter does not count
	for i := range r.entries {
		switch e := &r.entries[i]; {
		case e.first > r.seen:
		case e.last > flown.last:
			late += u.filling(e)
		default:
			l = l.addUp(e, u)
		}
	}
	spent := l.addUp(&flown, u).spent + late*u.micros
	return max(0, u.n-(spent+u.micros-1)/u.micros)
}
