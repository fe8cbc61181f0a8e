package ledger

import (
	"cmp"
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Time passes over a row: what is forgotten, what stays, and what happens when
// the clock steps back. The entry point is advance. The second half of this file
// has penalties, ceilings and told limits.

// maxMarkAhead is how far ahead a step or a note freezes marks at most, in
// microseconds; a step freezes marks for a span ahead if that is longer. Few marks
// of a short limit are farther ahead, and a larger number would freeze more of the
// starts that are booked later.
const maxMarkAhead = 10_000_000

// Stall is the longest step of a clock that counts as small, in microseconds: a
// node cannot tell such a step from the delay of a call.
const Stall = 50_000

// pinUntil freezes the starts with marks up to margin microseconds behind the end
// of the last entry: they stay booked when they are cancelled. Without entries it
// does nothing.
func (r *Row) pinUntil(margin int64) {
	if k := len(r.entries); k > 0 {
		r.frozen = max(r.frozen, r.entries[k-1].last+margin)
	}
}

// widenPending joins the entries that end after now, and has the joined entry begin
// no later than now. Without such entries it does nothing.
func (r *Row) widenPending(now int64) {
	k := len(r.entries) - 1
	if k < 0 || r.entries[k].last <= now {
		return
	}

	// Join an entry that begins and ends now, too: no two entries begin together.
	for k > 0 && (r.entries[k-1].last > now || r.entries[k-1].first >= now) {
		r.join(k - 1)
		k--
	}
	r.entries[k].first = min(r.entries[k].first, now)
}

// carryOver joins the entries that end before now, from the index first on, and
// extends them to now. Then their starts count in the window that contains now. The
// upstream may still be in the window in which it counted them, although that
// window is over by the clock that was set.
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
// slept for an unknown time. All starts are frozen.
//
// The fixed windows of the upstream do not move. So after a small step an entry that
// is to come, or reaches into the present window, ends where it ended before:
// otherwise a start at the edge of a window would count only in the window before the
// edge. After any step the entries of the present window that are over reach to now:
// see carryOver.
func (r *Row) step(now int64, u *rule) {
	shift := now - r.seen // below 0

	// The entries before the index present lie in fixed windows that are over.
	present := 0
	if u.aligned {
		start, _, _ := u.window(r.seen)
		present = r.after(start)
	}

	// All entries begin earlier by the shift. From the index keepsEnd on, entries end where they ended before. The others keep their length.
	keepsEnd := len(r.entries)
	if u.aligned && -shift <= Stall {
		keepsEnd = present
	}

	for i := range r.entries {
		e := &r.entries[i]
		e.first += shift
		if i < keepsEnd {
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

		// The node promised to come at a time of the old clock, so nobody relies on the promise any more.
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

	// A mark is a time of the clock by which its start was booked. After this step an old mark may name the start of a different caller, so freeze all
	// marks. An old mark is later than the last entry, which has moved, by at most the step. See maxMarkAhead for the bound on a long step.
	r.pinUntil(min(-shift, max(r.span, maxMarkAhead)))

	// The present window of the upstream may have counted the starts that have come.
	if u.aligned {
		r.carryOver(now, present)
	}

	r.widenPending(now)
}

// atMost returns an upper bound on the starts in a length of time: the sum of
// the bounds of the spans that cover it, and at most maxCount, which fills any
// window. The row must have a span.
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

// remember makes the row complete for as long back as the rule needs. It adds an
// upper bound on the starts of the missing time, at the latest moment at which they
// can have been. It also sets for how long the row keeps entries from now on, and
// converts the level for a token bucket. For slots it does nothing.
func (r *Row) remember(now int64, u *rule) {
	// Slots have no past.
	if u.slots {
		return
	}
	if u.tokens > 0 {
		r.recount(u)
	}

	// The rule needs the starts from since on, and the row has forgotten starts up to lost. The time between the two is missing.
	since, _, keep := u.window(now)
	if missing := r.lost - since + 1; missing > 0 {
		if n := r.atMost(missing); n > 0 {
			r.add(r.lost, r.lost, n)
			r.bound()
		}

		// Nothing is missing from since on, and the added entry stands for the starts that the level counted.
		r.lost, r.level = since-1, 0
	}

	// Starts that lie in blocks of a different unit cannot be told apart, so freeze these starts.
	if u.unit > 0 && keep != r.span && r.span > 0 {
		r.pinUntil(0)
	}

	switch {
	// No entry needs the span and the bound of an older limit any more.
	case now >= r.until || r.isBlank():
		r.span, r.most = keep, u.peak

	// A longer span may have as many starts as the older spans that cover it.
	case keep > r.span:
		r.span, r.most = keep, max(r.atMost(keep), u.peak)

	default:
		r.most = max(r.most, u.peak)
	}

	// This limit needs the whole span, so the row keeps the span for that long.
	if keep == r.span {
		r.until = max(r.until, now+keep)
	}
}

// isOver reports whether an entry is over for all starts to come: none of them can
// share an interval with the entry, and none has to stay behind it as behind a
// probe.
func (r *Row) isOver(e *entry, now int64) bool {
	return e.last+r.span <= now && (e.last < r.paused || now >= r.paused+r.last.probe)
}

// prune drops the first entries, up to an entry that still matters to a start to
// come, and keeps in lost and in the level what must be known of them: see forget.
func (r *Row) prune(now int64, u *rule) {
	// Under a leaky bucket an entry matters until its last unit is over, too.
	k := 0
	for k < len(r.entries) && r.isOver(&r.entries[k], now) && r.entries[k].blockEnd(u.unit+u.pad, u.n) <= now {
		r.forget(&r.entries[k], u)
		k++
	}
	if k > 0 {
		r.drop(k)
	}
}

// forgetDead forgets the nodes whose leases have ended, and the waiters without a
// place if none of them has asked for too long: see Recall.
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

	// Most rows have nobody to forget.
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

// remembered returns for how long after the end of the penalty a refusal meets the
// penalty again: see shut. Then the penalty is forgotten.
func (p *penalty) remembered() int64 { return max(p.step(), p.probe) }

// repeated returns how often the last penalty was met again, or 0 once the penalty
// is forgotten.
func (r *Row) repeated(now int64) int {
	if now >= r.paused+r.last.remembered() {
		return 0
	}
	return int(max(0, r.last.times-1))
}

// grown returns the largest length to which a penalty of this length grows by being
// met again: the length times its whole seconds, but at most maxGrown. It is 0 for
// a length below a second, which does not grow.
func grown(length int64) int64 {
	// Bound the length before the product as well, which could overflow.
	length = min(length, maxGrown)
	return min(length*(length/Micros(time.Second)), maxGrown)
}

// shut closes the row for length microseconds, or for longer if the last penalty
// was met again. A row that is closed for longer already stays so. shut reports
// whether the row is now closed for longer than before. ago is how many microseconds
// ago the refused request was sent, or 0 for a pause, which has no such request.
// took is how long the answer took: less than ago if the store was away since.
//
// A request that was sent after the end of the last penalty, or in its last half
// because clocks drift, and whose answer finds the row open, has met that penalty
// again. A request that was sent earlier belongs to the last penalty: its answer
// came late.
func (r *Row) shut(length, ago, took int64) bool {
	now, old := r.seen, r.paused

	// The last penalty is so long ago that a new one is the first.
	if now >= r.paused+r.last.remembered() {
		r.last = penalty{}
	}

	// A refusal counts as the first in a row, and a pause as none.
	p := penalty{length: length, times: min(ago, 1)}
	late := ago > 0 && now-ago < old-r.last.length/2

	// A penalty that is met again lasts twice as long, within bounds.
	metAgain := ago > 0 && r.last.times > 0 && now >= old && !late
	if metAgain {
		p.length, p.times = max(length, min(2*r.last.length, grown(length))), r.last.times+1
	}

	// The probe is alone until its answer can be there: for twice the time of the last answer, within bounds.
	p.probe = max(MinProbe, min(2*took, maxProbe, p.length))
	r.paused = max(old, now+p.length)

	// A penalty during another, or from a late answer, is the same penalty: keep the longer times and the higher count of the two.
	if late || now < old {
		p.length, p.probe, p.times = max(p.length, r.last.length), max(p.probe, r.last.probe), max(p.times, r.last.times)
	}
	r.last = p
	return r.paused > old
}

// isFree reports whether a start of an unlimited budget need not wait: no penalty
// lasts, and the time of the probe after the last penalty is over. See
// docs/internals/unlimited.md.
func (r *Row) isFree(now int64) bool { return r.paused == 0 || r.paused+r.last.probe <= now }

const (
	// A ceiling rises back to the level that was refused within risingWindows
	// windows and minRising microseconds.
	risingWindows = 12
	minRising     = 60_000_000

	fall  = 8 // a refusal lowers the ceiling to the refused level less one part in fall
	risen = 4 // the ceiling is forgotten after risen times as long as it takes to rise
)

// rising returns how long the ceiling takes to rise back to its top.
func (c *ceiling) rising() int64 { return minRising + risingWindows*c.window }

// isOf reports whether there is a ceiling for a rule.
func (c *ceiling) isOf(u *rule) bool {
	return c.top > 0 && u.learns > 0 && u.learns == c.window
}

// forgotten returns when the ceiling means nothing any more, or 0 without a
// ceiling.
func (c *ceiling) forgotten() int64 {
	if c.top == 0 {
		return 0
	}
	return c.fell + risen*c.rising()
}

// at returns the height of the ceiling at a time: a cubic that is flat around its
// top, as in the congestion control CUBIC. The conversion of the product to float64
// keeps every machine from rounding the product and the sum in one step, because
// Redis rounds both.
func (c *ceiling) at(now int64) float64 {
	x := max(-1, float64(now-c.fell-c.rising())/float64(c.rising()))
	return c.top + float64(c.top/fall*x*x*x)
}

// obey lowers a rule to the row's ceiling, if the ceiling is for this rule. It
// forgets such a ceiling instead if that has risen to the limit, or is too old.
func (r *Row) obey(now int64, u *rule) {
	if !r.ceiling.isOf(u) {
		return
	}
	height := r.ceiling.at(now)
	if height >= u.rate || now >= r.ceiling.forgotten() {
		r.ceiling = ceiling{}
		return
	}

	// Lower the numbers of the rule to the ceiling's fraction of the limit. The units of a leaky bucket are padded in place of that. The ceiling takes the
	// room down to 0 at most, so that a large cost still fits an idle budget: room below 0 stays as it is. A rule without tokens keeps none.
	fraction := height / u.rate
	u.most = max(1, int64(float64(u.n)*fraction))
	u.room = min(u.room, max(0, u.room-(u.n-u.most)))
	u.tokens = min(u.tokens, max(1, int64(float64(u.tokens)*fraction)))
	u.pad = int64(float64(u.unit)/fraction) - u.unit
}

// used returns how much of the limit was in use when the start at mark came, the
// start included. It returns 0 if the refusal of that start is no evidence: more
// than the limit was in use, the start has not come, or it came before the present
// fixed window and the window before that. For a rule without windows, such as a
// token bucket, it returns the rate.
func (r *Row) used(mark int64, u *rule) float64 {
	if mark > r.seen {
		return 0
	}
	if !u.hasWindows() {
		return u.rate
	}

	// A start from before the previous fixed window says nothing about the present window.
	if u.aligned {
		current, _, _ := u.window(r.seen)
		previous, _, _ := u.window(current - 1)
		if mark < previous {
			return 0
		}
	}

	// Sum the starts of the window up to the mark.
	since, _, _ := u.window(mark)
	sum := 0.0
	for _, e := range r.entries {
		switch {
		case e.last < since || e.first > mark:

		case e.last <= mark:
			sum += float64(e.n)

		// Of an entry that reaches beyond the mark, only the part up to the mark counts.
		default:
			sum += math.Ceil(float64(e.n) * (float64(mark-e.first+1) / float64(e.last-e.first+1)))
		}
	}

	// More than the limit was in use, so the refusal says nothing about the limit.
	if sum > u.rate {
		return 0
	}

	// The forgotten part of the window is taken to have been as full as the rest.
	if r.lost >= since {
		sum *= float64(mark-since+1) / float64(max(1, mark-r.lost))
	}

	return max(1, sum)
}

// believed returns the top of the ceiling after a refusal. used is how much was in
// use then, and from is the height of the ceiling before. A refusal below half of
// that height may have a different reason, so it takes off only a quarter.
func believed(used, from float64) float64 {
	if used < from/2 {
		return from * 3 / 4
	}
	return used
}

// learn lowers the ceiling, if the refusal of the start at mark is evidence, and
// returns the height before and after, cut off after three decimals. Without a
// ceiling the height is the rate of the rule.
func (r *Row) learn(mark int64, u *rule) (from, to float64) {
	from = u.rate
	if r.ceiling.isOf(u) {
		from = r.ceiling.at(r.seen)
	}

	// A start from before the last fall of the ceiling, or from before the end of the probe, says nothing new.
	isNew := mark > r.ceiling.fell && (r.paused == 0 || mark >= r.paused+r.last.probe)

	to = from
	if used := r.used(mark, u); used > 0 && isNew {
		r.ceiling = ceiling{top: max(1, min(from, believed(used, from))), fell: r.seen, window: u.learns}
		to = min(from, r.ceiling.at(r.seen))
	}
	return cutOff(from), cutOff(to)
}

// cutOff leaves three decimals of a height.
func cutOff(height float64) float64 { return math.Floor(height*1000) / 1000 }

// Pause closes the budget of the first charge for a duration, and notes the news.
// Of several pauses and penalties the latest end counts.
func (q *Request) Pause(d time.Duration) {
	s := &q.Searches[0]
	s.wake(q.Now)
	q.penalize(Micros(d), 0, 0)
}

// Refuse closes the budget of the first charge because a request was refused, and
// notes the news. It lowers the budget's ceiling if the refusal is evidence: see
// learn. It returns the ceiling before and after: 0 and 0 if the charge learns
// nothing, or the refusal names no start.
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

// penalize closes the row of the first charge, unless the length is 0: see shut for
// the parameters. It notes news for the callers of starts before the new end, and
// in any case for the waiters in line.
func (q *Request) penalize(length, ago, took int64) {
	r := q.Searches[0].row
	if length > 0 && r.shut(length, ago, took) {
		q.noteUseless(0, 0, r.paused, false)
	}

	// The starts of the waiters are at different times now, and some cannot wait until the budget opens.
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

	// The starts booked behind the pause are later than they need be: Usable sees by lifts that such a start was booked before.
	if r.paused > r.seen {
		r.lifts++
		q.noteUseless(0, 0, math.MaxInt64, true)
	}

	// Of the starts of an unlimited budget only the probe counts, and no start has to keep behind the probe any more.
	if s.rule.peak == 0 {
		r.forgetProbe()
	}

	// The row needs its span until the old end, as in the twin. There the row must stay in Redis for as long: a program that has not heard of the
	// resumption would tell an empty Redis of the pause.
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
// as long as its row has no note. A note makes it a sliding window until the note
// is over: see docs/use/bans.md#limits-that-answers-tell.

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

// until returns when the note is over, or 0 without a note.
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

// isTighter reports whether a limit of n starts in a window has a lower rate than
// the note, or the same rate in a shorter window.
func (m *note) isTighter(n, window int64) bool {
	rate, noted := float64(n)/float64(window), float64(m.n)/float64(m.window)
	return rate < noted || rate == noted && window < m.window
}

// paceOf returns Limit.Pace of a sliding window, in microseconds.
func paceOf(n, window int64) int64 {
	return Micros(store.SlidingWindow(int(n), time.Duration(window)*time.Microsecond).Pace())
}

// obeyNote turns a rule of the limit Told into the sliding window of the row's note.
// It forgets a note that is over. Without a note the rule stays unlimited. All other
// rules stay as they are.
func (r *Row) obeyNote(now int64, u *rule) {
	if !u.tells || r.note.n == 0 {
		return
	}
	if now >= r.note.until() {
		r.note = note{}
		return
	}

	// Set the same fields as set does for a sliding window, so that a search treats both alike.
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

// takeNote records a limit that an answer told, and reports whether the row has a
// new note. A limit that is out of the bounds of a note is ignored. The
// limit of the note, told again, changes only the time of the note. Where answers
// disagree, the tighter limit holds: a limit that is not tighter than the note
// replaces it only after nobody has told the note for its window and for a minute.
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

	// The starts before this note were not counted, so none of them may be given back: that would free the room of a counted start. Few
	// of their marks are farther ahead than maxMarkAhead.
	if !holds {
		r.frozen = max(r.frozen, now+maxMarkAhead)
	}

	// The row has counted for a shorter time than the new window. An upper bound on the missing starts would close the budget, so remember is to
	// find none missing. As remove no longer sees that starts up to lost are forgotten, freeze these.
	if window > old.window || !holds {
		r.frozen = max(r.frozen, r.lost)
		r.lost = 0
	}

	// Nothing needs the span of the old window any more: have remember set the new span. A longer span would join new entries more coarsely.
	if window != old.window {
		r.until = now
	}

	r.note = note{n, window, now}
	return true
}

// tell records the limit that an answer told for the first charge's budget, if the
// charge's own limit is Told and the answer's limit is a sliding window. The rest of
// the request is under the told limit.
func (q *Request) tell(l store.Limit) {
	s := &q.Searches[0]
	if !s.rule.tells {
		return
	}

	// Bring the row to the time now. From here on the row decides, and not that the budget was free when the request was opened.
	s.wake(q.Now)
	s.free = false
	if l.Kind() == store.KindSlidingWindow && s.row.takeNote(q.Now, int64(l.N()), Micros(l.Per())) {
		// Make the rule anew: advance turns it into the sliding window of the new note.
		s.rule.set(&q.Booking.Charges[0], q.Booking.Spread)
		s.row.advance(q.Now, &s.rule)
	}
}

// toldLimit returns the limit of the note, and how long ago an answer told it. It
// returns the zero Limit without a note, and for a rule of a limit other than Told.
func (r *Row) toldLimit(now int64, u *rule) (l store.Limit, ago time.Duration) {
	if !u.tells || r.note.n == 0 {
		return store.Limit{}, 0
	}
	window := time.Duration(r.note.window) * time.Microsecond
	return store.SlidingWindow(int(r.note.n), window), time.Duration(now-r.note.heard) * time.Microsecond
}
