package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Doubt is by how many microseconds a reset may be too late: upstreams give it in whole
// seconds, and an answer travels for a while.
const Doubt = 2_000_000

// Reconcile lowers what is left of the first charge's budget to what its upstream says.
//
// Let the upstream have counted at the time then, which is Age before now. A row does not know starts one by
// one, so it knows bounds:
//
//   - Counted: own starts that the upstream may have counted, an upper bound. All entries that begin by then
//     and touch the window are among them, as a whole. So what is booked for others is at most what others
//     have spent, and an upstream without other users never costs anything.
//   - Since: own starts that the upstream cannot have counted, a lower bound. They are the entries that
//     begin after then. They are spent from what was left.
//
// From now until the window ends the row has room for at most Left less Since. Starts of an entry that
// begins before then and ends after it, at most a part of the window, are taken to be counted: if others have
// spent what these starts seem to explain, the next answer says so.
//
// If a start that the upstream may have counted is forgotten, there is no upper bound, and the statement is
// ignored. See docs/internals/booking.md.
func (q *Request) Reconcile(of store.Quota) {
	left, reset, age := int64(max(0, of.Left)), Micros(min(of.Reset, store.MaxPenalty)), Micros(max(0, of.Age))
	s := &q.Searches[0]

	var from, before int64
	switch u := &s.rule; {
	case u.tokens > 0:
		from, before = s.row.bucketLeft(u, left, age)
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
	now, then := r.seen, r.seen-age
	since, at, end, told := u.statedWindow(now, then, reset)
	if !told || r.lost >= since {
		return 0, 0
	}

	// What is booked for others lies close behind at, and is no start of ours since then.
	known := max(then, at)
	if !u.aligned {
		known = max(then, at+Doubt+age)
	}
	spent, coming := r.between(since, end)
	left = max(0, left-r.begunSince(known))

	if others := u.n - spent - left; others > 0 {
		from, before = r.lastOf(coming-left, end), end
		r.spend(at, u, others)
	}
	return from, before
}

// statedWindow returns the window that a statement is about, whose upstream counted then: since when own
// starts may be counted in it, at which time others are taken to have spent, and when it ends. It returns
// false if the statement is about another window than that of now. The end is late by the doubt at the most, and by
// the age, because Reset may have been true then, as Left was.
func (u *rule) statedWindow(now, then, reset int64) (since, at, end int64, told bool) {
	if !u.aligned {
		rest := min(reset, u.span)
		return then + max(0, rest-Doubt) - u.span + 1, now + rest - u.span, now + rest, true
	}

	since, end, _ = u.window(now)
	return since, since, end, then >= since && end-now <= min(2*reset, Micros(store.MaxPenalty))
}

// bucketLeft is windowLeft for a bucket, which knows by itself when there will
// be more. Less than what flows in within a second is not worth knowing.
func (r *Row) bucketLeft(u *rule, left, age int64) (from, before int64) {
	then := r.seen - age
	if then-u.jitter < r.lost {
		return 0, 0
	}

	// What flowed in or was started since then may leave less than others spent: no bucket is more than empty.
	others := min(r.tokensLeft(u, then)-left, r.tokensLeft(u, r.seen))
	if others > 0 && others > Micros(time.Second)*u.tokens/u.micros {
		from, before = r.seen+1, then+(others*u.micros+u.tokens-1)/u.tokens
		r.spend(then, u, others)
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

// begunSince sums the entries that began after a time, and not after now: all of their starts are later than
// that time.
func (r *Row) begunSince(t int64) (sum int64) {
	for _, e := range r.entries {
		if t < e.first && e.first <= r.seen {
			sum += e.n
		}
	}
	return sum
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

// tokensLeft returns how many whole tokens of a bucket those left at a time that had started by then. That time is
// at least the jitter after what the row has forgotten.
func (r *Row) tokensLeft(u *rule, then int64) int64 {
	l, late := level{r.lost, r.level}, int64(0)
	flown := entry{last: then - u.jitter} // what flows in during the jitter does not count
	for i := range r.entries {
		switch e := &r.entries[i]; {
		case e.first > then:
		case e.last > flown.last:
			late += u.filling(e)
		default:
			l = l.addUp(e, u)
		}
	}

	spent := l.addUp(&flown, u).spent + late*u.micros
	return max(0, u.n-(spent+u.micros-1)/u.micros)
}
