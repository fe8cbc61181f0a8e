package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Doubt is by how many microseconds a reset may be too late: upstreams give resets
// in whole seconds, and an answer travels for a while.
const Doubt = 2_000_000

// lastOf returns from when on the last starts before end cost at least cost
// together: the begin of the entry of the first of these starts. It returns end if
// the cost is not positive. The starts to come cost at least as much, so that no
// start that has come is among them.
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

// between returns two sums over the entries that reach into the interval
// [since, end): the costs of entries that have begun, and the costs of entries to
// come. Each entry counts as a whole.
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

// begunSince sums the entries that began after t, and not after now: all starts
// in them are later than t.
func (r *Row) begunSince(t int64) (sum int64) {
	for _, e := range r.entries {
		if t < e.first && e.first <= r.seen {
			sum += e.n
		}
	}
	return sum
}

// tokensLeft returns how many whole tokens the starts up to the time then have
// left in a bucket at that time, at least 0. Tokens that flow in during the last
// jitter before then do not count. The row must have forgotten no start later than
// the begin of that jitter.
func (r *Row) tokensLeft(u *rule, then int64) int64 {
	inflowEnd := then - u.jitter

	// Take the tokens of the entries up to then. Entries that end after inflowEnd count in late: no tokens flow in behind them.
	l := level{r.lost, r.level}
	late := int64(0)
	for i := range r.entries {
		switch e := &r.entries[i]; {
		case e.first > then:
		case e.last > inflowEnd:
			late += u.filling(e)
		default:
			l = l.addUp(e, u)
		}
	}

	// An entry without starts brings the level to inflowEnd.
	spent := l.addUp(&entry{last: inflowEnd}, u).spent + late*u.micros
	return max(0, u.n-(spent+u.micros-1)/u.micros)
}

// spend books the cost that others have spent, as a start at the time at.
func (r *Row) spend(at int64, u *rule, cost int64) {
	v := *u
	v.cost = cost
	r.book(at, &v)
}

// bucketLeft books the cost that other users of the upstream have spent of a token
// bucket. The upstream has said, age microseconds ago, that left tokens are left. If the
// row has more, others have spent the difference. A difference that flows in within a
// second is not booked, nor any if the row has forgotten starts of that time. A bucket
// needs no reset, because the row knows when tokens flow in. from and before are as in
// windowLeft.
func (r *Row) bucketLeft(u *rule, left, age int64) (from, before int64) {
	then := r.seen - age
	if then-u.jitter < r.lost {
		return 0, 0
	}

	// Others are not booked for more tokens than the row has now: no bucket is more than empty.
	others := min(r.tokensLeft(u, then)-left, r.tokensLeft(u, r.seen))
	if others > 0 && others > Micros(time.Second)*u.tokens/u.micros {
		// The starts to come give way, until as many tokens have flowed in as others spent.
		from, before = r.seen+1, then+(others*u.micros+u.tokens-1)/u.tokens
		r.spend(then, u, others)
	}

	return from, before
}

// statedWindow returns the window about which the upstream made a statement. The
// statement was true at the time then, and says that the window is reset within
// reset microseconds. since is from when on the window may count own starts, at is
// when others are taken to have spent, and end is when the window ends. The end may
// be too late by Doubt, and by the age of the statement, because the reset may be
// counted from then. isPresent is false if the window may be an earlier one.
func (u *rule) statedWindow(now, then, reset int64) (since, at, end int64, isPresent bool) {
	// A statement about a sliding window is always about the present one, which ends at the reset, and a span from now at the latest.
	if !u.aligned {
		rest := min(reset, u.span)
		return then + max(0, rest-Doubt) - u.span + 1, now + rest - u.span, now + rest, true
	}

	// The present window is not the stated window if it began after then, or still lasts more than twice as long as the reset. A cost that is booked for
	// others must be over within MaxPenalty.
	since, end, _ = u.window(now)
	return since, since, end, then >= since && end-now <= min(2*reset, Micros(store.MaxPenalty))
}

// windowLeft books the cost that other users of the upstream have spent of a
// window. The upstream has said, age microseconds ago, that left is left until the
// reset. If the row has more, others have spent the difference. The cost is booked so
// that it is over when the window is. Nothing is booked if the statement is not about the
// present window, or the row has forgotten starts of that window. Booked starts with
// marks in [from, before) no longer fit. All starts fit if the interval is empty.
func (r *Row) windowLeft(u *rule, left, reset, age int64) (from, before int64) {
	now, then := r.seen, r.seen-age
	since, at, end, isPresent := u.statedWindow(now, then, reset)
	if !isPresent || r.lost >= since {
		return 0, 0
	}

	// Starts after known are own starts that the upstream has not counted. A cost that was booked for others is no own start: in a sliding window it lies
	// behind at by no more than Doubt and the age.
	known := max(then, at)
	if !u.aligned {
		known = max(then, at+Doubt+age)
	}

	// Own starts that the upstream has not counted are spent from what was left then.
	spent, coming := r.between(since, end)
	left = max(0, left-r.begunSince(known))

	// Others have spent what own starts have not spent and what is not left. The last booked starts may not fit any more.
	if others := u.n - spent - left; others > 0 {
		from, before = r.lastOf(coming-left, end), end
		r.spend(at, u, others)
	}

	return from, before
}

// Reconcile lowers the room of the first charge's budget to what its upstream
// says is left, after it has recorded a limit that the same answer told. It notes
// the starts that no longer fit. It lowers only the room of windows, if the quota
// has a reset, and of token buckets: see bucketLeft. What follows is about windows.
//
// Let the upstream have counted at the time then, which is Age before now. A row
// does not know starts one by one, so it has bounds:
//
//   - Counted: an upper bound on own starts that the upstream may have counted.
//     All entries that begin by then and touch the window are among them, as a
//     whole. So the cost booked for others is at most the cost that others have
//     spent, and an upstream without other users never costs anything.
//   - Since: a lower bound on own starts that the upstream cannot have counted:
//     the entries that begin after then. They are spent from the quota that was
//     left.
//
// From now until the window ends the row has room for at most Left less Since.
// Starts of an entry that begins before then and ends after it, at most a part
// of the window, are taken to be counted: if others have spent the quota that
// these starts seem to explain, the next answer says so.
//
// If a start that the upstream may have counted is forgotten, there is no upper
// bound, and the statement is ignored. See docs/internals/booking.md.
func (q *Request) Reconcile(of store.Quota) {
	left, reset, age := int64(max(0, of.Left)), Micros(min(of.Reset, store.MaxPenalty)), Micros(max(0, of.Age))
	s := &q.Searches[0]

	// A told limit comes first: it may be the limit of which so much is left.
	q.tell(of.Told)

	var from, before int64
	switch u := &s.rule; {
	case u.tokens > 0:
		from, before = s.row.bucketLeft(u, left, age)
	case reset > 0 && u.hasWindows():
		from, before = s.row.windowLeft(u, left, reset, age)
	}

	// The callers of starts that no longer fit book anew, and the waiters in line have less room.
	if from < before {
		q.noteUseless(0, from, before, true)
	}
	q.noteMoved()
}
