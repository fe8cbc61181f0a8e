package ledger

import (
	"cmp"
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Time passes over a row: what is forgotten, what stays, and what happens when
// the clock steps back. The entry point is advance.

// marked bounds, in microseconds, how far ahead of the clock a mark from before a
// step is still told from a mark after it. Few queues of a short limit are longer,
// and a larger bound would keep more places taken.
const marked = 10_000_000

// Stall is the largest small step of a clock, in microseconds: as large as the
// delays among which larger steps are found out.
const Stall = 50_000

// pinUntil freezes all starts that are booked, and marks that are later than the
// last booked start by no more than later: they stay booked when they are
// cancelled. Without entries it does nothing.
func (r *Row) pinUntil(later int64) {
	if k := len(r.entries); k > 0 {
		r.frozen = max(r.frozen, r.entries[k-1].last+later)
	}
}

// widenPending joins the entries to come, and has them begin now.
func (r *Row) widenPending(now int64) {
	k := len(r.entries) - 1
	if k < 0 || r.entries[k].last <= now {
		return
	}

	// An entry that begins now is joined, too: no two entries begin together.
	for k > 0 && (r.entries[k-1].last > now || r.entries[k-1].first >= now) {
		r.join(k - 1)
		k--
	}
	r.entries[k].first = min(r.entries[k].first, now)
}

// carryOver makes one entry, up to now, of the entries that are over, from the
// index first on. The upstream's window that has counted their starts may still
// last, although it is over by the clock that was set.
func (r *Row) carryOver(now int64, first int) {
	last := r.after(now) - 1
	if last < first {
		return
	}
	for i := last; i > first; i-- {
		r.join(i - 1)
	}
	r.entries[first].last = now
}

// step moves the row to a clock that shows less than before, as if no time had
// passed since. Entries to come are widened to begin now: their callers have
// slept for an unknown time. The upstream's windows stay where they are, so
// after a small step back the entries of the present window, and entries to
// come, still reach to where they were. Otherwise starts at the edge of a window
// would count in the window before it alone. All starts are frozen.
func (r *Row) step(now int64, u *rule) {
	shift := now - r.seen

	// All entries begin earlier by the shift. Only the entries before the index reach end earlier, too. The entries before the index present lie in
	// fixed windows that are over.
	reach := len(r.entries)
	present := 0
	if u.aligned {
		start, _, _ := u.window(r.seen)
		present = r.after(start)
	}

	// The upstream's window goes on, so entries of the present window reach as far as before.
	if u.aligned && -shift <= Stall {
		reach = present
	}

	for i := range r.entries {
		e := &r.entries[i]
		e.first += shift
		if i < reach {
			e.last += shift
		}
	}

	// The end of a pause and all other times of the row keep their distance to now. Zero stands for no time.
	for _, t := range r.times() {
		if *t != 0 {
			*t += shift
		}
	}

	// A lease lasts as long as before, so its end moves with the clock.
	for i := range r.leases {
		r.leases[i].until += shift
		if r.leases[i].asked != 0 {
			r.leases[i].asked += shift
		}

		// The node comes at one of its starts, which does not move with the clock.
		r.leases[i].comes = 0
	}

	// The times of the lines move with the clock, too.
	if l := r.queue; l != nil {
		l.asked += shift
		if l.until != 0 {
			l.until += shift
		}
	}

	if s := r.slots; s != nil {
		s.asked += shift
	}

	// A mark is a time of the clock by which it was booked. A mark from before this
	// step may point to the start of a different caller now, so freeze the starts.
	// Such a mark is later than the last entry, which has moved, by at most the shift.
	r.pinUntil(min(-shift, max(r.span, marked)))

	// The upstream's fixed window may have counted the starts that are over now.
	if u.aligned {
		r.carryOver(now, present)
	}

	r.widenPending(now)
}

// atMost returns an upper bound on the starts in a length of time: the sum of
// the bounds of the spans that cover it. Beyond maxCount it makes no difference.
func (r *Row) atMost(length int64) int64 {
	spans := (length + r.span - 1) / r.span
	if spans > maxCount/max(r.most, 1) {
		return maxCount
	}
	return spans * r.most
}

// isBlank reports whether the row neither has nor has forgotten a start that a
// limit counts.
func (r *Row) isBlank() bool { return r.most == 0 || len(r.entries) == 0 && r.lost == 0 }

// remember makes the row complete for as long back as the rule needs. History
// that is missing is replaced by an upper bound on its starts, at the latest
// moment at which they can have been. remember also sets for how long the row
// keeps entries from now on.
func (r *Row) remember(now int64, u *rule) {
	// Slots have no past.
	if u.slots {
		return
	}
	if u.tokens > 0 {
		r.recount(u)
	}

	// The rule needs the starts from since on, and the row has forgotten the starts up to lost. At most atMost of these lie in the missing part.
	since, _, keep := u.window(now)
	if missing := r.lost - since + 1; missing > 0 {
		if n := r.atMost(missing); n > 0 {
			r.add(r.lost, r.lost, n)
			r.bound()
		}
		r.lost, r.level = since-1, 0
	}

	// Starts in blocks of a different unit cannot be told apart, so freeze them.
	if u.unit > 0 && keep != r.span && r.span > 0 {
		r.pinUntil(0)
	}

	switch {
	// No entry needs the span and the bound of an older limit any more.
	case now >= r.until || r.isBlank():
		r.span, r.most = keep, u.peak

	case keep > r.span:
		r.span, r.most = keep, max(r.atMost(keep), u.peak)

	default:
		r.most = max(r.most, u.peak)
	}

	// This limit needs the whole span, so the span is kept for as long from now on.
	if keep == r.span {
		r.until = max(r.until, now+keep)
	}
}

// isOver reports whether an entry is over for all starts to come: none of them can
// share an interval with the entry, or has to stay behind it as behind a probe.
func (r *Row) isOver(e *entry, now int64) bool {
	return e.last+r.span <= now && (e.last < r.paused || now >= r.paused+r.last.probe)
}

// prune drops the entries that matter to no start to come.
func (r *Row) prune(now int64, u *rule) {
	k := 0
	for k < len(r.entries) && r.isOver(&r.entries[k], now) && r.entries[k].blockEnd(u.unit+u.pad, u.n) <= now {
		r.forget(&r.entries[k], u)
		k++
	}
	if k > 0 {
		r.drop(k)
	}
}

// forgetDead forgets the nodes and waiters that have been silent for too long.
func (r *Row) forgetDead(now int64) {
	r.expireLeases(now)
	if r.queue != nil {
		r.queue.forgetSilent(now)
	}
	if r.slots != nil && now-r.slots.asked > silence {
		r.slots.beyond = 0
	}
}

// advance brings the row to the time now, and makes it fit for the rule. It may
// give the rule the number of the row's note, and lower it to the row's ceiling.
// It forgets entries, nodes and waiters that do not matter any more.
func (r *Row) advance(now int64, u *rule) {
	// The clock was set back: move all times of the row with it.
	if now < r.seen {
		r.step(now, u)
	}

	// The note and the ceiling decide the numbers of the rule, which say for how long the row must remember starts.
	r.obeyNote(now, u)
	r.obey(now, u)
	r.remember(now, u)

	r.seen = now
	r.prune(now, u)
	if r.queue != nil || r.slots != nil || r.leases != nil {
		r.forgetDead(now)
	}
}

// What an upstream's refusals do to a budget. A penalty closes it for a time:
// see docs/internals/bans.md. A ceiling lowers its limit: see docs/use/bans.md#learn-from-refusals.

const (
	// MinProbe and maxProbe bound for how many microseconds one start is
	// alone after a penalty: its answer may say that the ban goes on.
	MinProbe = 250_000
	maxProbe = 5_000_000

	// maxGrown is an upper bound on a penalty that grows because it was met
	// again and again, in microseconds.
	maxGrown = int64(time.Hour / time.Microsecond)

	// maxStep is the longest step of a slow start, in microseconds.
	maxStep = int64(20 * time.Second / time.Microsecond)
)

// step returns the longest step of the slow start after the penalty.
func (p *penalty) step() int64 { return min(p.length/2, maxStep) }

// remembered returns for how long after the end of the penalty a refusal still
// belongs to the penalty.
func (p *penalty) remembered() int64 { return max(p.step(), p.probe) }

// repeated returns how often the last penalty was met again, or 0 once the penalty
// is forgotten.
func (r *Row) repeated(now int64) int {
	if now >= r.paused+r.last.remembered() {
		return 0
	}
	return int(max(0, r.last.times-1))
}

// grown returns an upper bound on what a penalty of this length grows to when it
// is met again: as many times the length as the length has whole seconds, but no
// more than maxGrown. It is 0 for a length below a second, which does not grow.
func grown(length int64) int64 {
	length = min(length, maxGrown)
	return min(length*(length/Micros(time.Second)), maxGrown)
}

// shut closes the row for a length of time, in microseconds, and reports whether
// the row is closed for longer than before. The reason is a refused request that
// was sent refused microseconds ago. The answer took the time took, which may be
// less, because the store may have been away since. If refused is 0 there was no
// such request: somebody pauses the budget.
//
// A request that was sent after the last penalty, or in its last half because
// clocks drift, has met the penalty again. A request that was sent earlier belongs
// to the last penalty, and its answer came late.
func (r *Row) shut(length, refused, took int64) bool {
	now, old := r.seen, r.paused

	// The last penalty is so long ago that a new one is the first.
	if now >= r.paused+r.last.remembered() {
		r.last = penalty{}
	}

	// A refusal is met once, a pause not at all.
	p := penalty{length: length, times: min(refused, 1)}

	// A penalty that is met again lasts twice as long, within bounds.
	late := refused > 0 && now-refused < old-r.last.length/2
	if refused > 0 && r.last.times > 0 && now >= old && !late {
		p.length, p.times = max(length, min(2*r.last.length, grown(length))), r.last.times+1
	}

	// The first start afterwards is alone until its answer can be there: for twice the time of the last answer, within bounds.
	p.probe = max(MinProbe, min(2*took, maxProbe, p.length))
	r.paused = max(old, now+p.length)

	// A penalty during another, or from a late answer, is the same penalty: keep the longer times and the higher count of the two.
	if late || now < old {
		p.length, p.probe, p.times = max(p.length, r.last.length), max(p.probe, r.last.probe), max(p.times, r.last.times)
	}
	r.last = p
	return r.paused > old
}

// isFree reports whether the row keeps no start of an unlimited budget waiting: no
// penalty lasts, and the time of the probe after the last penalty is over. See
// docs/internals/unlimited.md.
func (r *Row) isFree(now int64) bool { return r.paused == 0 || r.paused+r.last.probe <= now }

const (
	// A ceiling rises back to the level that was refused within risingWindows
	// windows and minRising microseconds.
	risingWindows = 12
	minRising     = 60_000_000

	fall  = 8 // a refusal lowers the ceiling by this part of the refused level
	risen = 4 // after this many times as long the ceiling is forgotten
)

// rising returns how long the ceiling takes to come back to its top.
func (c *ceiling) rising() int64 { return minRising + risingWindows*c.window }

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
// in the congestion control CUBIC. The conversion of the product to float64 keeps
// every machine from rounding a product and a sum in one step, because Redis
// does not.
func (c *ceiling) at(now int64) float64 {
	x := max(-1, float64(now-c.fell-c.rising())/float64(c.rising()))
	return c.top + float64(c.top/fall*x*x*x)
}

// obey lowers a rule to the row's ceiling, if the ceiling is for this rule, or
// forgets a ceiling that has risen to the limit or is too old.
func (r *Row) obey(now int64, u *rule) {
	if !r.ceiling.isOf(u) {
		return
	}
	level := r.ceiling.at(now)
	if level >= u.rate || now >= r.ceiling.forgotten() {
		r.ceiling = ceiling{}
		return
	}

	// Lower each number of the rule to the ceiling's part of the limit; a leaky bucket gets longer distances in place of a lower number. The room does not
	// fall below 0, so that a large cost still fits an idle budget. A rule without tokens keeps none.
	share := level / u.rate
	u.most = max(1, int64(float64(u.n)*share))
	u.room = min(u.room, max(0, u.room-(u.n-u.most)))
	u.tokens = min(u.tokens, max(1, int64(float64(u.tokens)*share)))
	u.pad = int64(float64(u.unit)/share) - u.unit
}

// used returns how much of the limit was in use when the start at mark came, the
// start included. It returns 0 if the refusal of that start is no evidence: more
// than the limit was in use, the start has not come, or it lies before the last
// two fixed windows. Of a leaky bucket or a token bucket it returns the rate.
// Where a part of the window is forgotten, that part is taken to have been as
// full as the rest.
func (r *Row) used(mark int64, u *rule) float64 {
	if mark > r.seen {
		return 0
	}
	if !u.hasWindows() {
		return u.rate
	}

	// A start from before the previous fixed window says nothing of the present one.
	if u.aligned {
		current, _, _ := u.window(r.seen)
		previous, _, _ := u.window(current - 1)
		if mark < previous {
			return 0
		}
	}

	// Sum what was in use in the window of the start.
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

// believed returns the level to which a refusal at a level of use lowers a
// ceiling of the height from. A refusal below half of the height may have a
// different reason, so it lowers the ceiling by a quarter.
func believed(level, from float64) float64 {
	if level < from/2 {
		return from * 3 / 4
	}
	return level
}

// learn lowers the ceiling, if the refusal of the start at mark is evidence, and
// returns the height before and after, with three decimals. Without a ceiling the
// height is the rate of the rule.
func (r *Row) learn(mark int64, u *rule) (from, to float64) {
	from = u.rate
	if r.ceiling.isOf(u) {
		from = r.ceiling.at(r.seen)
	}

	// A start from before the last fall of the ceiling, or from before the end of the probe, says nothing new.
	isNew := mark > r.ceiling.fell && (r.paused == 0 || mark >= r.paused+r.last.probe)

	to = from
	if level := r.used(mark, u); level > 0 && isNew {
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
// and returns the ceiling before and after: 0 and 0 if the charge learns nothing,
// or the refusal names no start.
func (q *Request) Refuse(f store.Refusal) (from, to float64) {
	s := &q.Searches[0]
	s.wake(q.Now)
	if s.rule.learns > 0 && f.Start.Handle.Start != 0 {
		from, to = s.row.learn(f.Start.Handle.Start, &s.rule)
	}

	// The request was sent at least a microsecond ago, because 0 would stand for a pause.
	q.penalize(Micros(f.Length), max(1, Micros(f.Ago)), Micros(cmp.Or(f.Took, f.Ago)))
	return from, to
}

// penalize closes the row of the first charge for a length of time, if the row
// is not closed for longer already. A length of 0 is no penalty. In any case it
// notes news for the waiters in line. See shut for refused and took.
func (q *Request) penalize(length, refused, took int64) {
	r := q.Searches[0].row
	if length > 0 && r.shut(length, refused, took) {
		q.noteUseless(0, 0, r.paused, false)
	}

	q.noteMoved()
	if r.queue != nil {
		q.note().Closed = append(q.note().Closed, Closed{q.key(0), max(r.seen, r.paused)})
	}
}

// Resume ends all pauses and penalties of the first charge's budget, and forgets
// its ceiling and its note. The callers of starts behind a pause book anew.
func (q *Request) Resume() {
	s := &q.Searches[0]
	r := s.row

	// A budget without a row was never closed.
	if r == &untouched {
		return
	}
	s.wake(q.Now)

	// The starts booked behind the pause are later than they need be.
	if r.paused > r.seen {
		r.lifts++
		q.noteUseless(0, 0, math.MaxInt64, true)
	}

	// Without a limit the row keeps no start but the probe.
	if s.rule.peak == 0 {
		r.forgetProbe()
	}

	// The span stays until the old end, as in the twin: Redis keeps a row as long as its span is needed, and so knows better than
	// a program that did not hear of the resumption.
	r.until = max(r.until, r.paused)
	r.paused, r.last, r.ceiling, r.note = 0, penalty{}, ceiling{}, note{}
	q.noteMoved()
}

// forgetProbe takes all starts out of an unlimited budget's row, unless the
// budget lately had a limit under which these count.
func (r *Row) forgetProbe() {
	if r.most == 0 {
		r.entries, r.total = nil, 0
	}
}

// What an upstream tells of its limit. A budget under the limit Told is unlimited
// until a note lies in its row; from then on the note is a sliding window, until
// the note is over: see docs/use/bans.md#limits-that-answers-tell.

// A note is a limit as answers have told it. The zero note is none.
type note struct {
	n      int64 // starts in any window, at least 1 and at most maxTold
	window int64 // in microseconds, at least minToldWindow and at most maxToldWindow
	heard  int64 // when an answer told it last
}

const (
	// maxTold bounds the number of a note. A larger number is no limit.
	maxTold = 1 << 30

	// minToldWindow and maxToldWindow bound the window of a note, in microseconds. A
	// limit outside of the bounds is ignored.
	minToldWindow = int64(store.MinTold / time.Microsecond)
	maxToldWindow = int64(store.MaxTold / time.Microsecond)

	// preferred is for how many microseconds, at the least, a note is preferred to
	// a limit that allows more.
	preferred = 60_000_000

	// A note holds for a window and noteKept microseconds after an answer told it
	// last.
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
	return 1 <= n && n <= maxTold && minToldWindow <= window && window <= maxToldWindow
}

// isTighter reports whether n starts in a window are fewer than the note has in
// the same time, or as many that are told for a shorter window.
func (m *note) isTighter(n, window int64) bool {
	rate, held := float64(n)/float64(window), float64(m.n)/float64(m.window)
	return rate < held || rate == held && window < m.window
}

// paceOf returns Limit.Pace of a sliding window, in microseconds.
func paceOf(n, window int64) int64 {
	return Micros(store.SlidingWindow(int(n), time.Duration(window)*time.Microsecond).Pace())
}

// obeyNote makes a rule of the limit Told the sliding window of the row's note.
// Without a note the rule stays unlimited. A note that is over is forgotten. All
// other rules stay as they are.
func (r *Row) obeyNote(now int64, u *rule) {
	if !u.tells || r.note.n == 0 {
		return
	}
	if now >= r.note.until() {
		r.note = note{}
		return
	}

	// Set the same fields as for a limit of the program, so that a search treats both alike.
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

// takeNote records a limit that an answer told. It returns false if only the time
// of the note has changed, or nothing has. A limit that is no tighter than the note
// replaces the note only when no answer has told the note for a window, and for a
// minute: where answers disagree, the tighter limit holds.
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

	// The starts before this note were not counted, so none of them may be given back: that would free the room of a counted start. Hardly any
	// of their marks is farther ahead than marked.
	if !holds {
		r.frozen = max(r.frozen, now+marked)
	}

	// The row has counted for a shorter time than the new window. An upper bound on the missing starts would close the budget, so they are taken as
	// none, and none of the starts known may be given back.
	if window > old.window || !holds {
		r.frozen = max(r.frozen, r.lost)
		r.lost = 0
	}

	// Nothing needs the old window any more. As long as it is kept, new entries are joined as coarsely as the longer window allows.
	if window != old.window {
		r.until = now
	}

	r.note = note{n, window, now}
	return true
}

// tell records the limit that an answer told of the first charge's budget, if the
// charge's own limit is Told. The rest of the request is under the told limit.
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
