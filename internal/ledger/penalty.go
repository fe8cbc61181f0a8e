package ledger

import (
	"cmp"
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// What an upstream's refusals do to a budget. A penalty closes it for a time:
// see docs/internals/bans.md. A ceiling lowers its limit: see docs/use/bans.md#learn-from-refusals.

const (
	// LeastProbe and longestProbe bound for how many microseconds one start is
	// alone after a penalty: its answer may say that the ban goes on.
	LeastProbe   = 250_000
	longestProbe = 5_000_000

	// longestGrown is an upper bound on a penalty that grows because it was met
	// again and again, in microseconds.
	longestGrown = int64(time.Hour / time.Microsecond)

	// longestStep is the longest step of a slow start, in microseconds.
	longestStep = int64(20 * time.Second / time.Microsecond)
)

// step returns the longest step of the slow start after the penalty.
func (p *penalty) step() int64 { return min(p.length/2, longestStep) }

// remembered returns for how long after the end of the penalty a refusal has to
// do with it.
func (p *penalty) remembered() int64 { return max(p.step(), p.probe) }

// repeated returns how often the last penalty was met again, until it is
// forgotten.
func (r *Row) repeated(now int64) int {
	if now >= r.paused+r.last.remembered() {
		return 0
	}
	return int(max(0, r.last.times-1))
}

// grown returns an upper bound on a penalty of that length that is met again: as
// many times the length as the length has whole seconds.
func grown(length int64) int64 {
	length = min(length, longestGrown)
	return min(length*(length/Micros(time.Second)), longestGrown)
}

// shut closes the row for a length of time, in microseconds, and reports whether
// the row is closed for longer than before. The reason is a refused request that
// was sent refused microseconds ago, and whose answer took the time took. If
// refused is 0 there was no such request: somebody pauses the budget. The store
// may have been away since the answer came.
//
// A request that was sent after the last penalty has met that again. So has one
// sent in the last half of the penalty, because clocks drift. A request that was
// sent before belongs to the penalty, and its answer came late.
func (r *Row) shut(length, refused, took int64) bool {
	now, old := r.seen, r.paused
	if now >= r.paused+r.last.remembered() {
		r.last = penalty{}
	}

	p := penalty{length: length, times: min(refused, 1)}

	// A penalty that is met again lasts twice as long, within bounds.
	late := refused > 0 && now-refused < old-r.last.length/2
	if refused > 0 && r.last.times > 0 && now >= old && !late {
		p.length, p.times = max(length, min(2*r.last.length, grown(length))), r.last.times+1
	}

	// The first start afterwards is alone until its answer can be there.
	p.probe = max(LeastProbe, min(2*took, longestProbe, p.length))
	r.paused = max(old, now+p.length)

	// Two penalties that overlap are one, with the longer times of both.
	if late || now < old {
		p.length, p.probe, p.times = max(p.length, r.last.length), max(p.probe, r.last.probe), max(p.times, r.last.times)
	}
	r.last = p
	return r.paused > old
}

// isFree reports whether an unlimited budget with this row books without a look
// at the row: no penalty closes the budget, and the time of the probe after the
// last penalty is over. See docs/internals/unlimited.md.
func (r *Row) isFree(now int64) bool { return r.paused == 0 || r.paused+r.last.probe <= now }

const (
	// A ceiling rises back to the level that was refused within risingWindows
	// windows and risingLeast microseconds.
	risingWindows = 12
	risingLeast   = 60_000_000

	fall  = 8 // a refusal lowers the ceiling by this part of the refused level
	risen = 4 // after this many times as long the ceiling is forgotten
)

// rising returns how long the ceiling takes to come back to its top.
func (c *ceiling) rising() int64 { return risingLeast + risingWindows*c.window }

// isOf reports whether there is a ceiling for a rule.
func (c *ceiling) isOf(u *rule) bool {
	return c.top > 0 && u.learns > 0 && u.learns == c.window
}

// forgotten returns when the ceiling means nothing any more, 0 without a
// ceiling.
func (c *ceiling) forgotten() int64 {
	if c.top == 0 {
		return 0
	}
	return c.fell + risen*c.rising()
}

// at returns the height of the ceiling: a cubic that is flat around its top, as
// in the congestion control CUBIC. The conversions keep every machine from
// rounding a product and a sum in one step, because Redis does not.
func (c *ceiling) at(now int64) float64 {
	x := max(-1, float64(now-c.fell-c.rising())/float64(c.rising()))
	return c.top + float64(c.top/fall*x*x*x)
}

// obey lowers a rule to the row's ceiling, or forgets a ceiling that has risen
// to the limit.
func (r *Row) obey(now int64, u *rule) {
	if !r.ceiling.isOf(u) {
		return
	}
	level := r.ceiling.at(now)
	if level >= u.rate || now >= r.ceiling.forgotten() {
		r.ceiling = ceiling{}
		return
	}

	// Lower each number of the rule to the ceiling's part of the limit; a leaky bucket gets longer distances in place of a lower number.
	share := level / u.rate
	u.most = max(1, int64(float64(u.n)*share))
	u.room = min(u.room, max(0, u.room-(u.n-u.most)))
	u.tokens = min(u.tokens, max(1, int64(float64(u.tokens)*share)))
	u.pad = int64(float64(u.unit)/share) - u.unit
}

// used returns how much of the limit was in use when the start at mark came, the
// start included. It returns 0 if the refusal of that start is no evidence: more
// than the limit was in use, the start has not come, or it lies in a fixed
// window that is over for long. A leaky bucket and a token bucket count by their
// rate alone. Where a part of the window is forgotten, that part is taken to
// have been as full as the rest.
func (r *Row) used(mark int64, u *rule) float64 {
	if mark > r.seen {
		return 0
	}
	if !u.hasWindows() {
		return u.rate
	}

	if u.aligned {
		last, _, _ := u.window(r.seen)
		if before, _, _ := u.window(last - 1); mark < before {
			return 0
		}
	}

	since, _, _ := u.window(mark)
	sum := 0.0
	for _, e := range r.entries {
		switch {
		case e.last < since || e.first > mark:
		case e.last <= mark:
			sum += float64(e.n)

		// Of an entry that reaches beyond the mark, the part up to the mark counts.
		default:
			sum += math.Ceil(float64(e.n) * (float64(mark-e.first+1) / float64(e.last-e.first+1)))
		}
	}

	// More than the limit was in use, so the refusal says nothing of the limit.
	if sum > u.rate {
		return 0
	}

	// The forgotten part of the window is taken to have been as full as the rest.
	if r.lost >= since {
		sum *= float64(mark-since+1) / float64(max(1, mark-r.lost))
	}

	return max(1, sum)
}

// believed returns to which level a refusal at a level of use lowers a ceiling
// that was at from. A refusal below half of that may have a different reason.
func believed(level, from float64) float64 {
	if level < from/2 {
		return from * 3 / 4
	}
	return level
}

// learn lowers the ceiling, if the refusal of the start at mark is evidence, and
// returns the height before and after, with three decimals.
func (r *Row) learn(mark int64, u *rule) (from, to float64) {
	from = u.rate
	if r.ceiling.isOf(u) {
		from = r.ceiling.at(r.seen)
	}

	// A start from before the last fall of the ceiling, or from before the end of the probe, says nothing new.
	to = from
	if level := r.used(mark, u); level > 0 && mark > r.ceiling.fell && (r.paused == 0 || mark >= r.paused+r.last.probe) {
		r.ceiling = ceiling{max(1, min(from, believed(level, from))), r.seen, u.learns}
		to = min(from, r.ceiling.at(r.seen))
	}
	return cutOff(from), cutOff(to)
}

// cutOff leaves three decimals.
func cutOff(level float64) float64 { return math.Floor(level*1000) / 1000 }

// Pause closes the budget of the first charge for a duration. Of several pauses
// and penalties the latest end counts.
func (q *Request) Pause(d time.Duration) {
	s := &q.Searches[0]
	s.wake(q.Now)
	q.penalize(Micros(d), 0, 0)
}

// Refuse closes the budget of the first charge because a request was refused,
// and returns its ceiling before and after.
func (q *Request) Refuse(f store.Refusal) (from, to float64) {
	s := &q.Searches[0]
	s.wake(q.Now)
	if s.rule.learns > 0 && f.Start.Handle.Start != 0 {
		from, to = s.row.learn(f.Start.Handle.Start, &s.rule)
	}
	q.penalize(Micros(f.Length), max(1, Micros(f.Ago)), Micros(cmp.Or(f.Took, f.Ago)))
	return from, to
}

// penalize closes the row of the first charge for a length of time, if the row
// is not closed for longer already. A length of 0 is no penalty. See shut for
// refused and took.
func (q *Request) penalize(length, refused, took int64) {
	r := q.Searches[0].row
	if length > 0 && r.shut(length, refused, took) {
		q.useless(0, 0, r.paused, false)
	}

	q.moved()
	if r.queue != nil {
		q.note().Closed = append(q.note().Closed, Closed{q.key(0), max(r.seen, r.paused)})
	}
}

// Resume ends all pauses and penalties of the first charge's budget, and forgets
// its ceiling and its note.
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

	// A store may keep the row until the old end, to know better than a node that
	// did not hear of the resumption.
	r.until = max(r.until, r.paused)
	r.paused, r.last, r.ceiling, r.note = 0, penalty{}, ceiling{}, note{}
	q.moved()
}

// forgetProbe takes all starts out of an unlimited budget's row, unless the
// budget lately had a limit under which these count.
func (r *Row) forgetProbe() {
	if r.most == 0 {
		r.entries, r.total = nil, 0
	}
}
