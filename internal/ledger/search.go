package ledger

import (
	"math/bits"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Search looks for the earliest start on one row. It remembers how far it
// came, so that to ask again for a later start costs only the rest of the way.
// The entry point is earliest. Before it, this file has the slow start after a
// penalty, a search for each kind of limit, and the pace of waiting starts;
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
	steady  bool  // Sliding: a start keeps its distance from starts that have come, too, because none is booked ahead: see begin

	i, j  int   // Sliding, Bucket: the run of entries i … j-1. Others: the search stands at entry i.
	sum   int64 // the costs of that run
	k     int   // the entry at which the pace stands
	wait  int64 // Sliding: the earliest start without a pace. Zero means not asked yet.
	pace  int64 // Sliding: the microseconds that one unit of cost keeps clear; see even
	part  int64 // Sliding: a start is at the begin of a part of this length. Zero means anywhere.
	level level // Bucket: the level when the run begins

	called bool // Concurrency: room was set aside, and is free again

	ramp *Search // a search of the room that a slow start keeps free, nil before it was needed
}

// steps are the divisors of the limit in the steps of a slow start: an eighth of
// the limit, then a half. Each step has room for one start at least.
var steps = [...]int64{8, 2}

// rampEnd returns when the slow start of a row is over. Without a slow start
// that is the end of the penalty. A step is as long as the window, but not
// longer than half of the penalty, nor than maxStep: see docs/internals/bans.md.
func (u *rule) rampEnd(r *Row) int64 {
	switch step := r.last.step(); {
	// A bucket fills up within a span.
	case u.tokens > 0:
		return r.paused + u.span

	// There is no slow start.
	case u.width == 0 || step == 0:
		return r.paused

	// The steps are the fixed window in which the penalty ends, and the next window.
	case u.aligned && step >= u.width:
		return r.paused - r.paused%u.width + int64(len(steps))*u.width

	default:
		return r.paused + int64(len(steps))*min(step, u.width)
	}
}

// windowRamp returns the row's entries and, among them, an entry for each step
// of the slow start, which takes all of the limit but the share of the step. This
// entry lies at the begin of its step, and is never joined with the starts around
// it: joined, it would reach as far as they do, and close the room up to the next
// step.
//
// A search needs entries in order. So where an entry of the row lies over the
// begin of the last step, the step's entry follows it and reaches to its end. At
// the begin of the first step the order makes no difference, because no start
// comes before that.
func (s *Search) windowRamp(u *rule) []entry {
	begin := s.row.paused
	entries := slices.Clone(s.row.entries)
	for k, part := range steps {
		// All but the share of this step, rounded up, so that each step has room for one start at least.
		taken := entry{begin, begin, u.most - (u.most+part-1)/part}
		i := (&Row{entries: entries}).after(begin)
		for ; k > 0 && i < len(entries) && entries[i].first <= begin; i++ {
			taken.last = max(begin, entries[i].last)
		}
		entries = slices.Insert(entries, i, taken)
		_, begin, _ = u.window(begin)
	}
	return entries
}

// bucketRamp returns entries of which the first takes all but one token at the
// end of the penalty, whatever was spent before. The row's entries that end later
// follow it, without the part before the end of the penalty.
func (s *Search) bucketRamp() []entry {
	begin := s.row.paused
	entries := []entry{{begin, begin, s.rule.most - 1}}
	for _, e := range s.row.entries[s.row.after(begin):] {
		entries = append(entries, entry{max(e.first, begin), e.last, e.n})
	}
	return entries
}

// stepRule returns the rule of the window of which a step of the slow start has
// its share. That is u itself, unless steps are shorter than the window: then it
// is a sliding window of the length of a step, with the same part of the limit.
func (u *rule) stepRule(r *Row) rule {
	v := *u
	step := r.last.step()
	if step >= u.width || step == 0 {
		return v
	}

	// The window holds this many steps, and each step has its part of the limit, rounded up.
	parts := u.width / step
	part := func(n int64) int64 { return (n + parts - 1) / parts }
	v.kind, v.aligned, v.span = store.KindSlidingWindow, false, step
	v.n, v.most = part(u.n), part(u.most)

	// Divide the limit and the reserve, but not the cost: a start costs as much as without a slow start.
	v.room = part(u.room+u.cost+u.reserve) - u.cost - part(u.reserve)
	return v
}

// ramped returns a search of a copy of the row, in which further entries take
// the part of the limit that the slow start keeps free. The row itself is not
// changed.
func (s *Search) ramped() *Search {
	// The total of the copy is not the sum of its entries: it is so large that each search looks at the entries.
	ramp := &Search{row: &Row{total: maxCount}, rule: s.rule.stepRule(s.row)}
	if s.rule.tokens > 0 {
		ramp.row.entries = s.bucketRamp()
	} else {
		ramp.row.entries = s.windowRamp(&ramp.rule)
	}
	return ramp
}

// usable returns how much of the limit the charge may use.
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
		if e[s.i].last+span > t {
			// From entry i on, find the shortest run that leaves no room.
			for s.j < len(e) && s.sum <= room {
				s.sum += e[s.j].n
				s.j++
			}

			// far is where the last entry of the run begins. The run is empty only if the room is below 0.
			far := e[max(s.j, 1)-1].first

			// There is no such run, or the start and its spread are so far before the last entry of the run that no window holds both.
			if s.sum <= room || t+s.rule.spread+span <= far {
				return t
			}

			// The run forbids starts only if one window can touch all of it.
			if far-e[s.i].last < span {
				t = e[s.i].last + span
			}
		}

		// The next run begins behind entry i. An empty run also ends there.
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
	tail, room := s.rule.jitter+s.rule.spread, s.rule.room
	e := s.row.entries
	for {
		// A start may come late by jitter and spread. It must be in its window even then. In a window shorter than that, it may be at the first moment.
		start, end, _ := s.rule.window(t)
		if t+min(tail, end-start-1) >= end {
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

		// No entry of the sum ends before the first one, so the windows up to the end of the first entry are as full as this one.
		if e[s.i].last >= end {
			_, end, _ = s.rule.window(e[s.i].last)
		}

		t = end
	}
}

// paced returns the first start not before t for which a leaky bucket has a gap
// that is long enough.
func (s *Search) paced(t int64) int64 {
	// A ceiling pads each unit. Each entry is a block, and the start goes into the first gap between two blocks that is long enough.
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

// booked returns the first start not before t that breaks the rule with no entry
// of the row.
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
// follow the probe too closely: the end of the time for which the probe is alone,
// or t if no probe is booked yet, or its time is over by t.
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

// room returns the first start not before t for which the limit has room: in the
// row and, after a penalty, behind the probe and in the ramp of the slow start.
func (s *Search) room(t int64) int64 {
	if s.row.paused == 0 {
		return s.booked(t)
	}

	// The limit and the slow start put the start off in turn, until both have room or the slow start is over.
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

// maxEvenWindow is the longest window that counts as short, in microseconds.
var maxEvenWindow = Micros(store.MaxEvenWindow)

// even returns the pace of a start that must wait until t, in microseconds for each
// unit of cost. It sets s.part if the start has to be at the begin of a part of the
// window.
//
// Without a horizon, or if the charge's own pace takes less than half of the window for
// the whole limit, the own pace is the pace. Otherwise the pace depends on how full the
// window behind the last booked start is. In a full window, starts are as even as the limit
// lets them be. The emptier the window, the closer are the starts, down to the charge's own
// pace, so that room that was left is used up. The spread of a start is part of its distance.
//
// In a short window with a large limit, unless a penalty or its slow start lasts, the starts
// of callers of a single budget, without a spread, are at the begin of the window's parts.
// Starts that share an entry then give it no width, and the whole window is used.
func (s *Search) even(t int64) int64 {
	r, u := s.row, &s.rule
	if s.horizon <= 0 || 2*u.pace*u.most < u.span {
		return u.pace
	}

	// The next start will be behind the last booked one, so the use of the window is measured there.
	if k := len(r.entries); k > 0 {
		t = max(t, r.entries[k-1].last)
	}

	sum, _ := r.later(t - u.span)
	sum = min(sum, u.most)

	// The pace is 0 up to (slope-2)/slope of the limit, three fifths. From there it grows with the use of the window to full, the pace at which the whole
	// limit takes 24/25 of the span. A steep pace fills a window soon after room was left in it.
	full := u.span * 24 / 25 / u.most
	slope := int64(5)
	part := int64(0)
	switch {
	// In a long window the pace grows from a third of the limit on: filled sooner, callers whose costs were estimated too low would start in bunches.
	case u.span-u.jitter > maxEvenWindow:
		slope = 3

	// At the begin of parts the pace grows from an empty window on, and the whole limit takes the whole span.
	case s.single && u.n > windowParts && u.spread == 0 && r.slowEnd(u.span) <= r.seen:
		full = u.span / u.most
		slope = 2
		part = partOf(u.span)
	}

	pace := max(u.pace, full*(slope*sum-(slope-2)*u.most)/(2*u.most)-u.spread)

	// Starts can share an entry only if the distance of a start is no longer than a part.
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
// behind the last of them. Where starts are at the begin of parts, the start may
// be in the next part, whose begin align finds.
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

// shares reports whether an entry at t, the begin of a part, has room for the
// start: as many starts as there are multiples of their distance in the part.
func (s *Search) shares(e *entry, t int64) bool {
	if s.part == 0 || e.first != t || e.last != t {
		return false
	}
	apart := s.rule.cost * s.pace
	return e.n+s.rule.cost <= ((t+s.part)/apart-t/apart)*s.rule.cost
}

// clear returns the first moment not before t that keeps the pace: its distance
// to all starts to come, and in a steady line also to all starts that have come,
// is at least the pace for each unit of cost.
func (s *Search) clear(t int64) int64 {
	apart := s.rule.cost * s.pace
	t = s.align(t)
	for e := s.row.entries; s.k < len(e); s.k++ {
		// Unless the line is steady, starts that have come keep nobody at a distance. A start may share an entry that has room in its part.
		if e[s.k].last <= s.row.seen && !s.steady || s.shares(&e[s.k], t) {
			continue
		}
		end := s.over(&e[s.k], apart)
		if end <= t {
			continue
		}

		// The gap before this entry is long enough.
		if t+max(s.rule.spread+s.pace, apart) <= e[s.k].first {
			break
		}
		t = s.align(end)
	}
	return t
}

// slidingPaced returns the first start not before t for which the limit has room, and
// which keeps the charge's pace, if it has one. The pace counts if the limit, a penalty
// or the starts for which others waited make the request wait longer than it asked to,
// or if the line is steady.
func (s *Search) slidingPaced(t int64) int64 {
	if s.wait == 0 {
		// Only a start that has to wait keeps a pace, so look first for a start without a pace.
		s.wait = s.room(max(s.from, s.row.paused, s.tail))
		if s.rule.pace > 0 && (s.wait > s.from || s.steady) {
			s.pace = s.even(s.wait)
		}
	}

	t = s.room(max(t, s.wait))
	if s.rule.pace == 0 || s.wait == s.from && !s.steady {
		return t
	}

	// Each answer is a lower bound: go on until the limit has room at a moment that is clear.
	for {
		clear := s.clear(t)
		if clear == t {
			return t
		}
		t = s.room(clear)
	}
}

// earliest returns the first start not before t that has room for the cost.
// Successive calls must not go back in time.
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
		return t // nobody knows when a request in flight ends
	case store.KindUnlimited:
		return s.row.behindProbe(t)
	default:
		return s.room(t)
	}
}

// behind makes a search keep behind the starts for which others of the same or a
// higher priority waited, if the booking has a horizon. A caller that
// replaces a past start came before those that wait now.
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

// filling returns an upper bound on the tokens that an entry can have taken: by
// the rule never more than the whole bucket, so entries that were joined need
// not count more.
func (u *rule) filling(e *entry) int64 { return min(e.n, u.n) }

// addUp returns the level at the end of e, with the cost of e. Entries come in
// the order of time.
func (l level) addUp(e *entry, u *rule) level {
	left := int64(0)
	if elapsed := e.last - l.at; elapsed <= l.spent/u.tokens {
		left = l.spent - elapsed*u.tokens
	}
	return level{e.last, left + u.filling(e)*u.micros}
}

// due returns when excess tokens have flowed in, or 0 if that many are there
// already. Tokens that flow in during the jitter do not count: the starts of the
// level may arrive so much later, and the next start at once.
func (l level) due(excess int64, u *rule) int64 {
	missing := l.spent + excess*u.micros
	if missing <= 0 {
		return 0
	}
	return l.at + u.jitter + (missing+u.tokens-1)/u.tokens
}

// recount converts the row's level to the units of the rule. A level of other
// units, or a level to which other limits added, is at most a full bucket.
func (r *Row) recount(u *rule) {
	old := max(r.unit, -r.unit) // the sign is no part of the size: see Row
	switch {
	case r.unit == u.micros:
		return
	case old == 0: // the level is 0
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

// forget notes in lost that an entry is about to leave the row, and adds the entry
// to the level of a bucket: as long as the bucket has no time to fill up, it owes
// the tokens of that entry.
func (r *Row) forget(e *entry, u *rule) {
	switch {
	case u.tokens > 0:
		r.level = level{r.lost, r.level}.addUp(e, u).spent
	case r.unit != 0:
		// The limit was a bucket and may be one again: until then nothing flows in. A negative unit says that other limits added to the level. The
		// bounds keep the product from overflowing.
		r.unit = min(r.unit, -r.unit)
		r.level = min(maxLevel, r.level+min(e.n, maxLevel/-r.unit)*-r.unit)
	}
	r.lost = max(r.lost, e.last)
}

// filled returns the first moment not before t at which the bucket has room for
// the start and for all entries that begin by then. Of these entries, i … j-1
// are counted in sum, as if no token flowed in while they lasted; all before i
// are counted in level, which knows how much has flowed in since.
func (s *Search) filled(t int64) int64 {
	e := s.row.entries
	for {
		// Entries that begin by t take their tokens before the start does.
		for ; s.j < len(e) && e[s.j].first <= t; s.j++ {
			s.sum += s.rule.filling(&e[s.j])
		}

		// The bucket has room for the start and sum only after tokens have flowed in. Those that flowed in before the end of
		// the earliest entry count in level, so move this entry from sum to level.
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

// overdrawn returns the index of the first entry behind t whose tokens would not
// have flowed in by its begin if a start at t took its own, or -1 if there is
// none. No start before the begin of that entry has room: it would overdraw the
// bucket at the same moment.
func (s *Search) overdrawn(t int64) int {
	u, e := &s.rule, s.row.entries

	// i, spent and sum are the bucket as the entries before t leave it.
	i, spent, sum := s.i, s.level, s.sum

	// start and own are a bucket that is full until the start takes its tokens, as late as its spread allows.
	start, own := level{at: t + u.spread}, int64(0)

	for k := s.j; k < len(e); k++ {
		sum += u.filling(&e[k])
		own += u.filling(&e[k])

		// As in filled: tokens flow in behind the earliest entries of a sum that is more than a full bucket.
		for ; sum > u.room && i < s.j; i++ {
			spent = spent.addUp(&e[i], u)
			sum -= u.filling(&e[i])
		}

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

	// The level begins with the starts that the row has forgotten.
	if s.i == 0 {
		s.level = level{r.lost, r.level}
	}

	// A moment with enough tokens for the start may leave too few for an entry behind it: then look from that entry on.
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

// slidingTurn returns the turn in sliding windows: room comes back as entries
// leave the window, and each window after that is like the window before.
func (s *Search) slidingTurn(from, rank int64) int64 {
	most, span := s.rule.usable(), s.rule.span

	// cycles whole windows pass before the window of the turn. In the window of the turn, starts that cost missing must leave first.
	cycles := (rank - 1) / most
	used, first := s.row.later(from - span)
	missing := used + rank - cycles*most - most

	// The turn comes when the last of these entries leaves the window.
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

// pacedTurn returns the turn by the pace of waiting starts. It is the later of
// two estimates. The first counts from the last start that others waited for, at
// a pace that is smaller where the window has room. The second counts from the
// first start in the window of the turn, at the full pace.
func (s *Search) pacedTurn(from, rank int64) int64 {
	u := &s.rule
	if u.pace == 0 {
		return from
	}

	// The waiters before this one start behind the last start that others waited for, the closer the emptier the window is.
	used, _ := s.row.later(from - u.span)
	behind := max(from, slices.Max(s.row.tails[:])) + (rank-u.cost)*u.pace*min(used, u.most)/u.most

	// In the window of the turn, first is the rank of the first start, from which on the starts keep the pace.
	first := max((rank-1)/u.usable()*u.usable()+1, u.cost)
	t := max(behind, s.slidingTurn(from, first)+(rank-first)*u.pace)

	// Where starts are at the begin of a part of the window, this start is at the next: see even.
	if part := partOf(u.span); s.single && u.n > windowParts && 2*u.pace*u.most >= u.span && u.cost*u.pace <= part {
		t = (t + part - 1) / part * part
	}
	return t
}

// leftIn returns left less the costs of all starts in the window [start, end). It
// may be below 0.
func (r *Row) leftIn(left, start, end int64) int64 {
	for _, e := range r.entries {
		if e.last >= start && e.first < end {
			left -= e.n
		}
	}
	return left
}

// alignedTurn returns the turn in fixed windows: the waiters before the caller
// fill one window after the other.
func (s *Search) alignedTurn(from, rank int64) int64 {
	most, t := s.rule.usable(), from
	for range farWindows {
		start, end, _ := s.rule.window(t)
		left := s.row.leftIn(most, start, end)
		if rank <= left {
			return t
		}
		rank -= max(0, left)
		t = end
	}

	// Later windows are taken to be empty, and as long as this one.
	_, _, keep := s.rule.window(t)
	return t + (rank-1)/most*keep
}

// bucketTurn returns the turn in a token bucket: when the tokens for the whole
// rank have flowed in.
func (s *Search) bucketTurn(from, rank int64) int64 {
	v := Search{row: s.row, rule: s.rule, from: s.from, level: level{s.row.lost, s.row.level}}
	v.rule.room -= rank - s.rule.cost // the waiters before this one take their tokens first
	return v.filled(from)
}

// turnAt returns when a caller of that rank will start, if nothing changes.
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

// Appointments are until when callers that left with their places have
// appointments, in microseconds of the store's clock: callers that left for the
// first time, and callers that came back and left again.
type Appointments [2]int64

// of returns the end of the appointments of one kind of callers.
func (a *Appointments) of(again bool) *int64 {
	if again {
		return &a[1]
	}
	return &a[0]
}

// Make makes an appointment with a caller that leaves now, and returns in how
// long the caller should come again: after the wait that it was told, and not
// before the last appointment is over. An appointment lasts for as long as the
// limit takes for the charge.
func (a *Appointments) Make(now int64, c *store.Charge, wait time.Duration, again bool) time.Duration {
	tail := a.of(again)
	at := max(now+Micros(wait), *tail)
	*tail = at + Micros(Distance(c))
	return time.Duration(at-now) * time.Microsecond
}

// Distance returns how long a limit takes for a charge, where starts flow
// evenly. It is 0 if nobody knows.
func Distance(c *store.Charge) time.Duration {
	if n := c.Limit.N(); n > 0 && c.Limit.Per() > 0 {
		return time.Duration(float64(c.Limit.Per()) * float64(c.Cost) / float64(n))
	}
	return 0
}
