package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// What an upstream tells of its limit. A budget under the limit Told is unlimited
// until a note lies in its row; from then on the note is a sliding window, until
// the note is over: see docs/use/bans.md#limits-that-answers-tell.

// A note is a limit as answers have told it. The zero note is none.
type note struct {
	n      int64 // starts in any window, at least 1 and at most mostTold
	window int64 // in microseconds, at least leastWindow and at most longestWindow
	heard  int64 // when an answer told it last
}

const (
	// mostTold bounds the number of a note. A larger number is no limit.
	mostTold = 1 << 30

	// leastWindow and longestWindow bound the window of a note, in microseconds. A
	// limit outside of the bounds is ignored.
	leastWindow   = int64(store.MinTold / time.Microsecond)
	longestWindow = int64(store.MaxTold / time.Microsecond)

	// preferred is for how many microseconds, at the least, a note is preferred to
	// a limit that allows more.
	preferred = 60_000_000

	// noteKept is for how many microseconds and a window a note holds after an
	// answer told it last.
	noteKept = 600_000_000
)

// until returns when the note is over, 0 without a note.
func (m *note) until() int64 {
	if m.n == 0 {
		return 0
	}
	return m.heard + m.window + noteKept
}

// isNote reports whether a limit may be a note.
func isNote(n, window int64) bool {
	return 1 <= n && n <= mostTold && leastWindow <= window && window <= longestWindow
}

// isTighter reports whether n starts in a window are fewer than the note has in
// the same time, or as many that are told for a shorter window.
func (m *note) isTighter(n, window int64) bool {
	rate, held := float64(n)/float64(window), float64(m.n)/float64(m.window)
	return rate < held || rate == held && window < m.window
}

// paceOf returns Limit.Pace of a sliding window, in microseconds.
func paceOf(n, window int64) int64 {
	within := Micros(store.MaxEvenPace)
	if window <= Micros(store.MaxEvenWindow) {
		within = window * 9 / 10
	}
	return within / n
}

// obeyNote makes a rule that leaves its number to the upstream the sliding window
// of the row's note, or forgets a note that is over.
func (r *Row) obeyNote(now int64, u *rule) {
	if !u.tells || r.note.n == 0 {
		return
	}
	if now >= r.note.until() {
		r.note = note{}
		return
	}

	u.kind = store.KindSlidingWindow
	u.n, u.most, u.peak, u.rate = r.note.n, r.note.n, r.note.n, float64(r.note.n)
	u.span = r.note.window + u.jitter + 1
	u.width = u.span
	u.cost = min(u.cost, u.n) // a cost above the limit counts as all of the limit
	u.room = u.n - u.cost - u.reserve
	u.pace = paceOf(u.n, r.note.window)
	if u.adapts {
		u.learns = r.note.window
	}
}

// takeNote takes in that an answer told a limit, and reports whether the row's note
// has changed. A limit that allows more than the note replaces it only when no
// answer has told the note for a window, and for a minute: where answers
// disagree, the tightest counts.
func (r *Row) takeNote(now, n, window int64) bool {
	if !isNote(n, window) {
		return false
	}

	old := r.note
	holds := old.n > 0 && now < old.until()
	switch {
	case holds && old.n == n && old.window == window:
		r.note.heard = now
		return false
	case holds && !old.isTighter(n, window) && now < old.heard+max(old.window, preferred):
		return false
	}

	// Starts from before the note were not counted, so that none of them can be given back.
	if !holds {
		r.frozen = max(r.frozen, now+marked)
	}

	// Nobody counted for a longer window, and a bound on what may have been would close the budget.
	if window > old.window || !holds {
		r.frozen = max(r.frozen, r.lost)
		r.lost = 0
	}

	// Entries of the old window would be kept as coarsely as that needs.
	if window != old.window {
		r.until = now
	}

	r.note = note{n, window, now}
	return true
}

// tell takes in the limit that an answer told of the first charge's budget. The
// rest of the request is under that limit.
func (q *Request) tell(l store.Limit) {
	s := &q.Searches[0]
	if !s.rule.tells {
		return
	}

	s.wake(q.Now)
	s.free = false
	if l.Kind() == store.KindSlidingWindow && s.row.takeNote(q.Now, int64(l.N()), Micros(l.Per())) {
		s.rule.set(&q.Booking.Charges[0], q.Booking.Spread)
		s.row.advance(q.Now, &s.rule)
	}
}

// toldLimit returns the limit of the note, and how long ago an answer told it. The zero
// Limit is none.
func (r *Row) toldLimit(now int64, u *rule) (l store.Limit, ago time.Duration) {
	if !u.tells || r.note.n == 0 {
		return store.Limit{}, 0
	}
	window := time.Duration(r.note.window) * time.Microsecond
	return store.SlidingWindow(int(r.note.n), window), time.Duration(now-r.note.heard) * time.Microsecond
}
