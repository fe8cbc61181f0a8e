package ledger

import (
	"cmp"
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Pause closes the budget of the first charge.
func (q *Request) Pause(d time.Duration) {
	s := &q.Searches[0]
	s.wake(q.Now)
	q.penalize(Micros(d), 0, 0)
}

// Refuse closes the budget of the first charge because a request was refused, and returns
// its ceiling before and after.
func (q *Request) Refuse(f store.Refusal) (from, to float64) {
	s := &q.Searches[0]
	s.wake(q.Now)
	if s.rule.learns > 0 && f.Start.Handle.Start != 0 {
		from, to = s.row.learn(f.Start.Handle.Start, &s.rule)
	}
	q.penalize(Micros(f.Length), max(1, Micros(f.Ago)), Micros(cmp.Or(f.Took, f.Ago)))
	return from, to
}

// penalize closes the row for so long, if it is not closed for longer; no time is no penalty.
// Refused and took are as of shut.
func (q *Request) penalize(length, refused, took int64) {
	r := q.Searches[0].row
	if length > 0 && r.shut(length, refused, took) {
		q.useless(0, 0, r.paused, false)
	}
	if q.moved(); r.queue != nil {
		q.note().Closed = append(q.note().Closed, Closed{q.key(0), max(r.seen, r.paused)})
	}
}

// Resume ends all pauses of the first charge's budget, and forgets what was learned.
func (q *Request) Resume() {
	s := &q.Searches[0]
	r := s.row
	if r == &untouched {
		return
	}
	s.wake(q.Now)
	if r.paused > r.seen {
		r.lifts++
		q.useless(0, 0, math.MaxInt64, true)
	}
	if s.rule.peak == 0 {
		r.forgetProbe()
	}

	// A store may keep the row until then, to know better than a node that did not hear that the pause was ended.
	r.until = max(r.until, r.paused)
	r.paused, r.last, r.ceiling = 0, penalty{}, ceiling{}
	q.moved()
}
