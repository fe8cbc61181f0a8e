package ledger

import (
	"math/bits"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Search looks for the earliest start on one row. It remembers how far it came, so that a second
// call for a later start goes on from there. The entry point is earliest. Before it, this file has
// the slow start after a penalty, a search for each kind of limit, and the pace of waiting starts;
// behind it, token buckets and estimates of a waiter's turn.
type Search struct {
	row  *Row
	rule rule
	from int64 // no start earlier than this was asked for
	tail int64 // no start earlier than this is allowed: see behind
	free bool  // the limit is unlimited, and not closed: see passesBy
	late bool  // the caller replaces a start that is past

	horizon int64 // see store.Booking
	single  bool  // the caller needs no start in a second budget
	steady  bool  // sliding window: a start keeps its distance from starts that have come, too, because none is booked ahead: see begin

	i, j  int   // sliding window, token bucket: the run of entries i … j-1. Other kinds: entry i is the first to look at.
	sum   int64 // the costs of that run
	k     int   // sliding window: the first entry to look at for the pace
	wait  int64 // sliding window: the earliest start without a pace. Zero means that it was not looked for yet.
	pace  int64 // sliding window: for how many microseconds each unit of cost keeps other starts away; see even
	part  int64 // sliding window: a start is at the begin of a part of this length. Zero means anywhere.
	level level // token bucket: the level when the run begins

	called bool // Concurrency: room was set aside for the caller, and is free again

	ramp *Search // searches the ramp of a slow start: see ramped. It is nil before it is needed.
}

// steps has a divisor for each step of a slow start: the first step has an eighth of
// the limit, the second a half, and each has room for one start at least.
var steps = [...]int64{8, 2}

// rampEnd returns when the slow start of a row is over, or the end of the penalty
// if no slow start follows. A step of a window is as long as the window, but not
// longer than half of the penalty, nor than maxStep: see docs/internals/bans.md.
func (u *rule) rampEnd(r *Row) int64 {
	switch step := r.last.step(); {
	// A bucket has no steps, and fills up within a span.
	case u.tokens > 0:
		return r.paused + u.span

	// No slow start follows in calendar windows, under a limit without windows, or after a penalty below 2 microseconds.
	case u.width == 0 || step == 0:
		return r.paused

	// The steps are the fixed window in which the penalty ends, and the next window.
	case u.aligned && step >= u.width:
		return r.paused - r.paused%u.width + int64(len(steps))*u.width

	default:
		return r.paused + int64(len(steps))*min(step, u.width)
	}
}

// windowRamp returns the row's entries with one more entry for each step of the slow start. The
// added entry is at the begin of its step, and takes all of the limit but the part that the step
// has. It is not joined with the entries around it: joined, it would reach as far as they do, and
// close the room up to the next step. u is the rule of the steps: see stepRule.
//
// A search needs entries in order. So if entries of the row lie around the begin of the second
// step, the added entry follows them and reaches to their end. At the begin of the first step the
// order makes no difference, because no start comes before that.
func (s *Search) windowRamp(u *rule) []entry {
	begin := s.row.paused
	entries := slices.Clone(s.row.entries)
	for k, divisor := range steps {
		// Round the part of the step up, so that each step has room for one start at least.
		taken := entry{begin, begin, u.most - (u.most+divisor-1)/divisor}
		i := (&Row{entries: entries}).after(begin)
		for ; k > 0 && i < len(entries) && entries[i].first <= begin; i++ {
			taken.last = entries[i].last
		}
		entries = slices.Insert(entries, i, taken)
		// The next step begins where starts at the begin of this step no longer matter.
		_, begin, _ = u.window(begin)
	}
	return entries
}

// bucketRamp returns an entry that takes all tokens but one at the end of the
// penalty, whatever was spent before, and behind it the row's entries that end then
// or later. The parts of these entries before the end of the penalty are left out.
func (s *Search) bucketRamp() []entry {
	begin := s.row.paused
	entries := []entry{{begin, begin, s.rule.most - 1}}
	for _, e := range s.row.entries[s.row.after(begin):] {
		entries = append(entries, entry{max(e.first, begin), e.last, e.n})
	}
	return entries
}

// stepRule returns the rule that windowRamp divides among the steps of a slow start.
// It is a copy of u, unless steps are shorter than the window: then it is a sliding
// window as long as a step, with the part of the limit that falls to such a length.
func (u *rule) stepRule(r *Row) rule {
	v := *u
	step := r.last.step()
	if step >= u.width || step == 0 {
		return v
	}

	// part returns the part of a number that falls to one of the steps in the window, rounded up.
	stepsInWindow := u.width / step
	part := func(n int64) int64 { return (n + stepsInWindow - 1) / stepsInWindow }
	v.kind, v.aligned, v.span = store.KindSlidingWindow, false, step
	v.n, v.most = part(u.n), part(u.most)

	// Divide the limit, which is room, cost and reserve together, and the reserve. Do not divide the cost: a start costs as much as without a slow start.
	v.room = part(u.room+u.cost+u.reserve) - u.cost - part(u.reserve)
	return v
}

// ramped returns a search of the ramp: a row with the entries of the searched row,
// and with further entries that take the part of the limit that the slow start
// keeps free. The searched row is not changed.
func (s *Search) ramped() *Search {
	// The total of the ramp is not the sum of its entries: it is so large that no search skips the entries.
	ramp := &Search{row: &Row{total: maxCount}, rule: s.rule.stepRule(s.row)}
	if s.rule.tokens > 0 {
		ramp.row.entries = s.bucketRamp()
	} else {
		ramp.row.entries = s.windowRamp(&ramp.rule)
	}
	return ramp
}

// usable returns how much of the limit the charge may use: all but the reserve.
func (u *rule) usable() int64 { return u.room + u.cost }

// sliding returns the first start not before t that a sliding window log has
// room for. It sweeps the forbidden ranges of docs/internals/booking.md: entry i
// and the shortest run from it that leaves no room forbid every start from which
// an interval of length span can touch the whole run.
func (s *Search) sliding(t int64) int64 {
	span, room := s.rule.span, s.rule.room

	// All entries together leave room.
	if s.row.total <= room {
		return t
	}

	e := s.row.entries
	for ; s.i < len(e); s.i++ {
		// An entry that ended a span before t, or earlier, forbids nothing.
		if e[s.i].last+span > t {
			// From entry i on, find the shortest run that leaves no room.
			for s.j < len(e) && s.sum <= room {
				s.sum += e[s.j].n
				s.j++
			}

			// far is where the last entry of the run begins. The run is empty only if the room is below 0.
			far := e[max(s.j, 1)-1].first

			// There is no such run, or the start and its spread are so far before the last entry of the run that no window touches both.
			if s.sum <= room || t+s.rule.spread+span <= far {
				return t
			}

			// The run forbids starts only if one window can touch all of it. The first start behind them is a span after entry i.
			if far-e[s.i].last < span {
				t = e[s.i].last + span
			}
		}

		// The next run begins behind entry i. If this run is empty, the next is empty, too, and begins there.
		if s.j > s.i {
			s.sum -= e[s.i].n
		} else {
			s.j++
		}
	}

	return t
}

// aligned returns the first start not before t that a fixed window has room for.
// It goes from window to window.
func (s *Search) aligned(t int64) int64 {
	delay, room := s.rule.jitter+s.rule.spread, s.rule.room
	e := s.row.entries
	for {
		// A start may come later by this delay, and must be in its window even then. In a window shorter than that, it may be at the first moment alone.
		start, end, _ := s.rule.window(t)
		if t+min(delay, end-start-1) >= end {
			t = end
			continue
		}

		// Later calls ask for later starts, so the entries before this window are not looked at again.
		for s.i < len(e) && e[s.i].last < start {
			s.i++
		}

		sum := int64(0)
		for j := s.i; j < len(e) && e[j].first < end; j++ {
			sum += e[j].n
		}

		if sum <= room {
			return t
		}

		// All entries of the sum end no earlier than the first of them. So they reach into each window up to its end, and these windows are as full as this.
		if e[s.i].last >= end {
			_, end, _ = s.rule.window(e[s.i].last)
		}

		t = end
	}
}

// paced returns the first start not before t for which a leaky bucket has a gap that is long
// enough. Each entry is a block, and the gap is before, between or behind the blocks.
func (s *Search) paced(t int64) int64 {
	// A ceiling pads each unit. The length is until the last unit begins: that unit needs a unit of time, too.
	unit, length := s.rule.unit+s.rule.pad, s.rule.length()+s.rule.cost*s.rule.pad
	for e := s.row.entries; s.i < len(e); s.i++ {
		end := e[s.i].blockEnd(unit, s.rule.n)
		if end <= t {
			continue
		}

		// The gap before this entry is long enough.
		if t+length+s.rule.unit <= e[s.i].first {
			break
		}
		t = end
	}
	return t
}

// booked returns the first start not before t for which the entries of the row
// leave room. The limit is a window or a token bucket.
func (s *Search) booked(t int64) int64 {
	switch s.rule.kind {
	case store.KindSlidingWindow:
		return s.sliding(t)
	case store.KindFixedWindow:
		return s.aligned(t)
	default:
		return s.bucket(t)
	}
}

// behindProbe returns the first moment not before t at which a start does not
// follow the probe too closely. This is the end of the time for which the probe is
// alone, if t lies before that end and a start is booked in that time already.
// Otherwise it is t.
func (r *Row) behindProbe(t int64) int64 {
	end := r.paused + r.last.probe
	if t >= end {
		return t
	}
	if i := r.after(r.paused); i < len(r.entries) && r.entries[i].first < end {
		return end
	}
	return t
}

// room returns the first start not before t for which the limit, a window or a token bucket, has
// room: in the row and, after a penalty, behind the probe and in the ramp of the slow start.
func (s *Search) room(t int64) int64 {
	if s.row.paused == 0 {
		return s.booked(t)
	}

	// Ask the ramp and the row by turns, until both have room at the same time or the slow start is over. Each answer is a lower bound for the other.
	t = s.booked(s.row.behindProbe(t))
	for end := s.rule.rampEnd(s.row); t < end; {
		if s.ramp == nil {
			s.ramp = s.ramped()
		}
		next := s.ramp.booked(t)
		if next == t {
			break
		}
		t = s.booked(min(next, end))
	}
	return t
}

// maxEvenWindow is store.MaxEvenWindow in microseconds.
var maxEvenWindow = Micros(store.MaxEvenWindow)

// even returns the pace of a start that must wait until t, in microseconds for each unit of cost.
// It sets s.part if the start has to be at the begin of a part of the window.
//
// The pace is the charge's own if there is no horizon, or if all starts of the limit take less than
// half of the window at that pace. Otherwise the pace depends on how full the window is that ends
// with the last booked start. In a full window, starts are as even as the limit lets them be. The
// emptier the window, the closer are the starts, down to the charge's own pace, so that room that
// was left is used up. The spread of a start is part of its distance.
//
// Under a large limit starts share entries. In a short window they are at the begin of the window's
// parts, so that the entry that they share has no length and the whole window is used. This holds
// for starts of a single budget without a spread, while no penalty and no slow start lasts.
func (s *Search) even(t int64) int64 {
	r, u := s.row, &s.rule
	if s.horizon <= 0 || 2*u.pace*u.most < u.span {
		return u.pace
	}

	// The next start will be behind the last booked one, so measure there how much of the window is used.
	end := t
	if k := len(r.entries); k > 0 {
		end = max(t, r.entries[k-1].last)
	}

	used, _ := r.later(end - u.span)
	used = min(used, u.most)

	// Up to (slope-2)/slope of the limit, three fifths, the charge's own pace is enough. From there the pace grows linearly with the use of the window to
	// full: at that pace the whole limit takes 24/25 of the span. A steep slope fills a window soon after room was left in it.
	full := u.span * 24 / 25 / u.most
	slope := int64(5)
	part := int64(0)
	switch {
	// In a long window the pace grows from a third of the limit on, or callers whose costs were estimated too low would start in bunches.
	case u.span-u.jitter-1 > maxEvenWindow:
		slope = 3

	// For starts at the begin of parts the pace grows from an empty window on, and the whole limit takes the whole span.
	case s.single && u.n > windowParts && u.spread == 0 && r.slowEnd(u.span) <= r.seen:
		full = u.span / u.most
		slope = 2
		part = partOf(u.span)
	}

	// The spread comes off, because the distance to the next start is the spread and the pace of one unit.
	pace := max(u.pace, full*(slope*used-(slope-2)*u.most)/(2*u.most)-u.spread)

	// Several starts fit into a part only if the distance of a start is no longer than the part.
	if pace*u.cost <= part {
		s.part = part
	}

	return pace
}

// align returns the first moment not before t at which a part of the window
// begins, or t if starts may be anywhere.
func (s *Search) align(t int64) int64 {
	if s.part == 0 {
		return t
	}
	return (t + s.part - 1) / s.part * s.part
}

// over returns when a start may follow the starts of an entry: apart microseconds
// after its end. Where starts are at the begin of parts, the start may be in the
// next part, whose begin align finds.
func (s *Search) over(e *entry, apart int64) int64 {
	switch {
	case s.part == 0:
		return e.last + apart
	case e.first == e.last && e.first%s.part == 0:
		return e.first + s.part
	default:
		return e.last + 1
	}
}

// shares reports whether a start at t, the begin of a part, shares the entry: the
// entry is at t alone, and still has room. It has room for as many starts as there
// are multiples of their distance in the part.
func (s *Search) shares(e *entry, t int64) bool {
	if s.part == 0 || e.first != t || e.last != t {
		return false
	}
	apart := s.rule.cost * s.pace
	return e.n+s.rule.cost <= ((t+s.part)/apart-t/apart)*s.rule.cost
}

// clear returns the first moment not before t at which a start keeps the pace: its
// distance to all starts to come is at least the pace for each unit of its cost.
// A steady search keeps this distance to starts that have come, too. A start at the
// begin of a part may share the entry of others there.
func (s *Search) clear(t int64) int64 {
	apart := s.rule.cost * s.pace
	t = s.align(t)
	for e := s.row.entries; s.k < len(e); s.k++ {
		// Skip entries that have come, unless the search is steady, and skip an entry that the start shares.
		if e[s.k].last <= s.row.seen && !s.steady || s.shares(&e[s.k], t) {
			continue
		}
		end := s.over(&e[s.k], apart)
		if end <= t {
			continue
		}

		// The gap before this entry is long enough for the distance and the spread of the start.
		if t+max(s.rule.spread+s.pace, apart) <= e[s.k].first {
			break
		}
		t = s.align(end)
	}
	return t
}

// slidingPaced returns the first start not before t for which a sliding window has room and, if the
// charge has a pace, which keeps the pace that even returns. A pace counts if the limit, a penalty
// or the starts for which others waited put the start off, or if the search is steady.
func (s *Search) slidingPaced(t int64) int64 {
	if s.wait == 0 {
		// Look first for a start without a pace: unless the search is steady, only a start that is put off keeps a pace.
		s.wait = s.room(max(s.from, s.row.paused, s.tail))
		if s.rule.pace > 0 && (s.wait > s.from || s.steady) {
			s.pace = s.even(s.wait)
		}
	}

	// No start is earlier than the start without a pace. Without a pace, or a wait, the limit alone decides.
	t = s.room(max(t, s.wait))
	if s.rule.pace == 0 || s.wait == s.from && !s.steady {
		return t
	}

	// Each answer is a lower bound: go on until the limit has room at a moment that is clear.
	for {
		next := s.clear(t)
		if next == t {
			return t
		}
		t = s.room(next)
	}
}

// earliest returns the first start not before t that has room for the cost. It is
// not before the end of a pause or the search's tail. In a free search it is t. Each
// call must ask for a t no earlier than the call before.
func (s *Search) earliest(t int64) int64 {
	if s.free {
		return t
	}
	t = max(t, s.row.paused, s.tail)

	switch s.rule.kind {
	case store.KindSlidingWindow:
		return s.slidingPaced(t)
	case store.KindLeakyBucket:
		return s.paced(t)
	case store.KindConcurrency:
		return t // slots are looked at when they are taken: nobody knows when a request in flight ends
	case store.KindUnlimited:
		return s.row.behindProbe(t)
	default:
		return s.room(t)
	}
}

// behind makes a search keep behind the starts for which others of the same or a
// higher priority waited. It does nothing for a booking without a horizon, or for a
// caller that replaces a past start: such a caller came before those others.
func (s *Search) behind(b *store.Booking) {
	if b.Horizon <= 0 || s.late {
		return
	}
	for _, start := range s.row.tails[:Class(b.Priority)+1] {
		s.tail = max(s.tail, start)
	}
}

// Token buckets. A row knows the starts of the last span as entries, and all
// starts before them as a level. The level is updated lazily, as in a token
// bucket that is computed at each arrival.

// maxLevel is more than any bucket of a limit holds, and small enough for sums.
const maxLevel = 1 << 52

// filling returns an upper bound on the tokens that an entry can have taken. That is
// the whole bucket at most, even if an entry that was joined counts more.
func (u *rule) filling(e *entry) int64 { return min(e.n, u.n) }

// addUp returns the level at the end of e, with the cost of e. Tokens flow in until then, and the
// cost of e is spent at its end. Call addUp for entries in the order of time.
func (l level) addUp(e *entry, u *rule) level {
	// Divide before multiplying: the product could overflow if more time has elapsed than the bucket takes to fill up.
	spent := int64(0)
	if elapsed := e.last - l.at; elapsed <= l.spent/u.tokens {
		spent = l.spent - elapsed*u.tokens
	}
	return level{e.last, spent + u.filling(e)*u.micros}
}

// due returns when the spent tokens of the level and excess more tokens have flowed
// back in. excess is below 0 if the bucket need not fill up. due returns 0 if no token
// has to flow in. Tokens that flow in during the jitter do not count: the starts of the
// level may arrive so much later, and the next start at once.
func (l level) due(excess int64, u *rule) int64 {
	missing := l.spent + excess*u.micros
	if missing <= 0 {
		return 0
	}
	return l.at + u.jitter + (missing+u.tokens-1)/u.tokens
}

// recount converts the row's level to the units of the rule. A level of different
// units, or one to which other limits added, becomes a full bucket at most.
func (r *Row) recount(u *rule) {
	old := max(r.unit, -r.unit) // the sign is no part of the size: see Row
	switch {
	case r.unit == u.micros:
		return
	case old == 0: // the limit was no bucket, so the level is 0
	case r.level/old >= u.n:
		r.level = u.n * u.micros // a full bucket; the product below could overflow
	default:
		// level × micros ÷ old in 128 bits, rounded up.
		hi, lo := bits.Mul64(uint64(r.level), uint64(u.micros))
		lo, carry := bits.Add64(lo, uint64(old-1), 0)
		quotient, _ := bits.Div64(hi+carry, lo, uint64(old))
		r.level = int64(quotient)
	}

	r.unit = u.micros
}

// forget notes in lost that an entry is about to leave the row. It adds the entry
// to the level, if the limit is or was a token bucket: the bucket owes the tokens of
// that entry until it has had the time to fill up.
func (r *Row) forget(e *entry, u *rule) {
	switch {
	case u.tokens > 0:
		r.level = level{r.lost, r.level}.addUp(e, u).spent
	case r.unit != 0:
		// The limit was a bucket and may be one again: until then nothing flows in. A negative unit says that other limits added to the level. The level
		// stops at maxLevel, and so does the product, which could overflow.
		r.unit = min(r.unit, -r.unit)
		r.level = min(maxLevel, r.level+min(e.n, maxLevel/-r.unit)*-r.unit)
	}
	r.lost = max(r.lost, e.last)
}

// filled returns the first moment not before t at which the bucket has room for
// the start and for all entries that begin by then. Of these entries, i … j-1
// are counted in sum, as if no token flowed in while they lasted. The entries before
// i are counted in level, with what has flowed in meanwhile.
func (s *Search) filled(t int64) int64 {
	e := s.row.entries
	for {
		// Entries that begin by t take their tokens before the start does.
		for ; s.j < len(e) && e[s.j].first <= t; s.j++ {
			s.sum += s.rule.filling(&e[s.j])
		}

		// As long as sum alone leaves no room for the start, move its earliest entry to level: there the tokens count that flowed in before the end of
		// that entry.
		for ; s.sum > s.rule.room && s.i < s.j; s.i++ {
			s.level = s.level.addUp(&e[s.i], &s.rule)
			s.sum -= s.rule.filling(&e[s.i])
		}

		due := s.level.due(s.sum-s.rule.room, &s.rule)
		if due <= t {
			return t
		}
		t = due // by then, further entries may have begun
	}
}

// overdrawn returns the index of the first entry behind t whose tokens would not be there at its
// begin if a start at t took its own, or -1 if there is none. No start before the begin of that
// entry has room: it would take the same tokens. Call overdrawn after filled has returned t.
func (s *Search) overdrawn(t int64) int {
	u, e := &s.rule, s.row.entries

	// i, spent and sum are the bucket as the entries before t leave it. They are copies: the search itself stays at t.
	i, spent, sum := s.i, s.level, s.sum

	// start and own are a second bucket, which is full until the start takes its tokens, as late as its spread allows.
	start, own := level{at: t + u.spread}, int64(0)

	for k := s.j; k < len(e); k++ {
		sum += u.filling(&e[k])
		own += u.filling(&e[k])

		// As in filled: move the earliest entries from sum to the level.
		for ; sum > u.room && i < s.j; i++ {
			spent = spent.addUp(&e[i], u)
			sum -= u.filling(&e[i])
		}

		// The entry is overdrawn if its tokens are there too late in one of the two buckets.
		if spent.due(sum-u.room, u) > e[k].first || start.due(own-u.room, u) > e[k].first {
			return k
		}
	}
	return -1
}

// bucket returns the first start not before t for which a token bucket has room.
// With this start no run of entries breaks the rule, whether the start is the
// last of the run, lies within it, or is the first. See filled for how the entries
// before t are counted.
func (s *Search) bucket(t int64) int64 {
	r := s.row

	// All entries together leave room, and no forgotten start owes a token.
	if r.level == 0 && r.total <= s.rule.room {
		return t
	}

	// Until filled moves an entry to it, the level has only the starts that the row has forgotten.
	if s.i == 0 {
		s.level = level{r.lost, r.level}
	}

	// At a moment with enough tokens the start may leave too few for an entry behind it: then look from the begin of that entry on.
	for {
		t = s.filled(t)
		k := s.overdrawn(t)
		if k < 0 {
			return t
		}
		t = r.entries[k].first
	}
}

// When waiters will have their turn, as far as anybody can tell: if nothing
// changes. A rank is the sum of the costs up to a caller in its line, its own
// cost included. The end of this file says when callers who left with their places
// come again.

// farWindows is how many fixed windows an estimate looks at one by one.
const farWindows = 64

// slidingTurn returns the turn of a rank in sliding windows, not before from. Room comes back as
// entries leave the window, and each window after that is taken to be like the window before.
func (s *Search) slidingTurn(from, rank int64) int64 {
	usable, span := s.rule.usable(), s.rule.span

	// cycles whole windows pass before the window of the turn. For the rest of the rank to fit, starts that cost missing must leave the window first.
	cycles := (rank - 1) / usable
	used, first := s.row.later(from - span)
	missing := used + (rank - cycles*usable) - usable

	// The turn comes when the first entries that cost missing have left the window.
	i, e := first, s.row.entries
	for missing > 0 && i < len(e) {
		missing -= e[i].n
		i++
	}
	if i > first {
		from = e[i-1].last + span
	}
	return from + cycles*span
}

// pacedTurn returns the turn of a rank by the pace of waiting starts, or from if the charge has no
// pace. It is the later of two estimates. The first counts from the last start for which others
// waited, at a pace that is shorter the more room the window has. The second counts from the first
// start in the window of the turn, at the charge's own pace.
func (s *Search) pacedTurn(from, rank int64) int64 {
	u := &s.rule
	if u.pace == 0 {
		return from
	}

	// The waiters before this one start behind the last start for which others waited. The emptier the window is, the shorter is their pace.
	used, _ := s.row.later(from - u.span)
	behind := max(from, slices.Max(s.row.tails[:])) + (rank-u.cost)*u.pace*min(used, u.most)/u.most

	// first is the rank of the first start in the window of the turn. From it on the starts keep the pace. No caller's rank is below its own cost.
	first := max((rank-1)/u.usable()*u.usable()+1, u.cost)
	t := max(behind, s.slidingTurn(from, first)+(rank-first)*u.pace)

	// Under a large limit starts are at the begin of a part of the window: see even.
	part := partOf(u.span)
	if atParts := s.single && u.n > windowParts && 2*u.pace*u.most >= u.span && u.cost*u.pace <= part; atParts {
		t = (t + part - 1) / part * part
	}
	return t
}

// leftIn returns how much of usable the starts in the window [start, end) leave. It
// may be below 0.
func (r *Row) leftIn(usable, start, end int64) int64 {
	left := usable
	for _, e := range r.entries {
		if e.last >= start && e.first < end {
			left -= e.n
		}
	}
	return left
}

// alignedTurn returns the turn of a rank in fixed windows, not before from: the
// waiters before the caller fill one window after the other.
func (s *Search) alignedTurn(from, rank int64) int64 {
	usable, t := s.rule.usable(), from
	for range farWindows {
		start, end, _ := s.rule.window(t)
		left := s.row.leftIn(usable, start, end)
		if rank <= left {
			return t
		}
		// Waiters before this one take what is left of the window, which may be less than nothing.
		rank -= max(0, left)
		t = end
	}

	// Later windows are taken to be empty, and as long as this one.
	_, _, keep := s.rule.window(t)
	return t + (rank-1)/usable*keep
}

// bucketTurn returns the turn of a rank in a token bucket, not before from: when the
// tokens for the whole rank have flowed in.
func (s *Search) bucketTurn(from, rank int64) int64 {
	v := Search{row: s.row, rule: s.rule, from: s.from, level: level{s.row.lost, s.row.level}}
	v.rule.room -= rank - s.rule.cost // the waiters before this one take their tokens first
	return v.filled(from)
}

// turnAt returns when a caller of that rank will start, if nothing changes. The rule
// is not one of slots, whose turns nobody knows.
func (s *Search) turnAt(rank int64) int64 {
	u := &s.rule

	// Nobody starts before the end of a pause.
	from := max(s.from, s.row.paused)

	switch {
	case u.unit > 0:
		if k := len(s.row.entries); k > 0 {
			from = max(from, s.row.entries[k-1].blockEnd(u.unit+u.pad, u.n))
		}

		// From the end of the last block on, each unit of the costs before the caller takes its distance.
		return from + (rank-u.cost)*(u.unit+u.pad)

	case u.tokens > 0:
		return s.bucketTurn(from, rank)

	case u.aligned:
		return s.alignedTurn(from, rank)

	// An unlimited budget holds nobody back.
	case u.peak == 0:
		return from

	default:
		return max(s.slidingTurn(from, rank), s.pacedTurn(from, rank))
	}
}

// together returns when a single request would start that costs as much as the
// caller and all callers before it, but no more than the charge may use of the
// limit. So the estimate counts the slow start, which turnAt does not.
func (s *Search) together(rank int64) int64 {
	v := Search{row: s.row, rule: s.rule, from: s.from}
	more := min(rank, s.rule.usable()) - s.rule.cost
	v.rule.cost += more
	v.rule.room -= more
	return v.earliest(s.from)
}

// Appointments has the times at which the last appointments end, in microseconds
// of the store's clock: the first time is of callers that left with their places
// once, the second of callers that came back and left again.
type Appointments [2]int64

// of returns the end of the appointments of one kind of callers.
func (a *Appointments) of(again bool) *int64 {
	if again {
		return &a[1]
	}
	return &a[0]
}

// Make makes an appointment with a caller that leaves now, and returns in how long the caller
// should come again: after the wait that it was told, and not before the last appointment is over.
// An appointment lasts for as long as the limit takes for the charge. again says that the caller
// came back and leaves once more.
func (a *Appointments) Make(now int64, c *store.Charge, wait time.Duration, again bool) time.Duration {
	lastEnd := a.of(again)
	at := max(now+Micros(wait), *lastEnd)
	*lastEnd = at + Micros(Distance(c))
	return time.Duration(at-now) * time.Microsecond
}

// Distance returns how long a limit takes for a charge, where starts flow
// evenly. It is 0 for a limit without a number, or without a length of time.
func Distance(c *store.Charge) time.Duration {
	if n := c.Limit.N(); n > 0 && c.Limit.Per() > 0 {
		return time.Duration(float64(c.Limit.Per()) * float64(c.Cost) / float64(n))
	}
	return 0
}
