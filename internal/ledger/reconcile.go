package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Doubt is by how many microseconds a reset may be too late: upstreams give resets
// in whole seconds, and an answer travels for a while.
const Doubt = 2_000_000

// lastOf goes back from end, entry by entry, until the entries that it has passed
// cost at least cost together, and returns the begin of the earliest of them. It
// returns end if the cost is not positive. The caller asks for no more than the
// starts to come cost, so lastOf passes no entry that has begun.
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
// [since, end): the costs of those that have begun by the row's time, seen, and the
// costs of those that begin later. Each entry counts as a whole.
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

// begunSince sums the costs of the entries that began after t and have begun by
// the row's time, seen. All starts in them are later than t.
func (r *Row) begunSince(t int64) (sum int64) {
	for _, e := range r.entries {
		if t < e.first && e.first <= r.seen {
			sum += e.n
		}
	}
	return sum
}

// tokensLeft returns how many whole tokens the starts up to the time t have left in
// a bucket at that time, at least 0. Tokens that flow in during the last jitter
// before t do not count. The row must have forgotten no start later than the begin
// of that jitter.
func (r *Row) tokensLeft(u *rule, t int64) int64 {
	inflowEnd := t - u.jitter

	// Take the tokens of the entries that begin by t. Entries that end after inflowEnd count in late: no tokens flow in behind them.
	l := level{r.lost, r.level}
	late := int64(0)
	for i := range r.entries {
		switch e := &r.entries[i]; {
		case e.first > t:
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
// second is not booked. Nothing is booked if the row has forgotten starts of that time.
// A bucket needs no reset, because the row knows when tokens flow in. from and before
// are as in windowLeft.
func (r *Row) bucketLeft(u *rule, left, age int64) (from, before int64) {
	statedAt := r.seen - age
	if statedAt-u.jitter < r.lost {
		return 0, 0
	}

	// Others are not booked for more tokens than the row has now: no bucket is more than empty.
	others := min(r.tokensLeft(u, statedAt)-left, r.tokensLeft(u, r.seen))
	if others > 0 && others > Micros(time.Second)*u.tokens/u.micros {
		// The starts to come give way, until as many tokens have flowed in as others spent.
		from, before = r.seen+1, statedAt+(others*u.micros+u.tokens-1)/u.tokens
		r.spend(statedAt, u, others)
	}

	return from, before
}

// statedWindow returns the window about which the upstream made a statement. The
// statement was made at the time statedAt, and says that the window is reset within
// reset microseconds. since is from when on the window may count own starts, at is
// when others are taken to have spent, and end is when the window ends. The end may
// be too late by Doubt, and by the age of the statement, because the reset may be
// counted from statedAt. isPresent is false if the window may be an earlier one.
func (u *rule) statedWindow(now, statedAt, reset int64) (since, at, end int64, isPresent bool) {
	// A statement about a sliding window is always about the present one. This window ends at the reset, but no later than a span from now.
	if !u.aligned {
		rest := min(reset, u.span)
		return statedAt + max(0, rest-Doubt) - u.span + 1, now + rest - u.span, now + rest, true
	}

	// The present window is not the stated window if it began after statedAt, or still lasts more than twice as long as the reset. A cost that is booked for
	// others must be over within MaxPenalty.
	since, end, _ = u.window(now)
	return since, since, end, statedAt >= since && end-now <= min(2*reset, Micros(store.MaxPenalty))
}

// windowLeft books the cost that other users of the upstream have spent of a
// window. The upstream has said, age microseconds ago, that left is left until the
// reset. If the row has more, others have spent the difference. The cost is booked so
// that it is over when the window is. Nothing is booked if the statement is not about the
// present window, or the row has forgotten starts of that window. Booked starts with
// marks in [from, before) no longer fit. If the interval is empty, all starts fit.
func (r *Row) windowLeft(u *rule, left, reset, age int64) (from, before int64) {
	now, statedAt := r.seen, r.seen-age
	since, at, end, isPresent := u.statedWindow(now, statedAt, reset)
	if !isPresent || r.lost >= since {
		return 0, 0
	}

	// Starts after known are own starts that the upstream has not counted. A cost that was booked for others is no own start: in a sliding window it lies
	// behind at by no more than Doubt and the age.
	known := max(statedAt, at)
	if !u.aligned {
		known = max(statedAt, at+Doubt+age)
	}

	// Take off the own starts that the upstream has not counted: left is what is left now.
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
// The upstream made its statement at a time statedAt, which is Age before now. A
// row does not know starts one by one, so it has bounds:
//
//   - Counted: an upper bound on own starts that the upstream may have counted.
//     All entries that begin by statedAt and touch the window are among them, as a
//     whole. So the cost booked for others is at most the cost that others have
//     spent, and an upstream without other users never costs anything.
//   - Since: a lower bound on own starts that the upstream cannot have counted:
//     the entries that begin after statedAt. They are spent from the quota that
//     was left.
//
// From now until the window ends the row has room for at most Left less Since.
// An entry that begins before statedAt and ends after it lasts for at most a part
// of the window. All its starts are taken to be counted: if others have spent the
// quota that these starts seem to explain, the next answer says so.
//
// If a start that the upstream may have counted is forgotten, there is no upper
// bound, and the statement is ignored. See docs/internals/booking.md.
func (q *Request) Reconcile(quota store.Quota) {
	left, reset, age := int64(max(0, quota.Left)), Micros(min(quota.Reset, store.MaxPenalty)), Micros(max(0, quota.Age))
	s := &q.Searches[0]

	// A told limit comes first: left may be what is left of that limit.
	q.tell(quota.Told)

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
