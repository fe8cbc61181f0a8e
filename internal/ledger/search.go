package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A Search looks for the earliest start on one row. It remembers how far it
// came, so that to ask again for a later start costs only the rest of the way.
// First comes the slow start after a penalty, then a search for each kind of
// limit, then the distance that waiting starts keep; earliest is how all of it
// begins.
type Search struct {
	row  *Row
	rule rule
	from int64 // no start earlier than this was asked for
	tail int64 // and no start earlier than this is allowed: see behind
	free bool  // the limit is unlimited, and not closed: see passesBy

	horizon int64 // see store.Booking
	single  bool  // the caller needs no start in a second budget
	steady  bool  // Sliding: the pace counts from starts that have come, too: none is booked far enough ahead to count from

	i, j  int   // Sliding, Bucket: the run of entries i … j-1
	sum   int64 // the costs of that run
	k     int   // the entry at which the pace stands
	wait  int64 // Sliding: the earliest start by the limit alone. Zero: not asked yet.
	pace  int64 // Sliding: the microseconds that one unit of cost keeps clear; see even
	part  int64 // Sliding: a start is at the begin of a part of this length. Zero: anywhere.
	level level // Bucket: the level when the run begins

	called bool // Concurrency: room was set aside, and is free again

	ramp *Search // a search of the room that a slow start keeps free, nil before it was needed
}

// steps has for each step of a slow start the divisor of the limit: an eighth,
// then a half, and at least 1.
var steps = [...]int64{8, 2}

// rampEnd returns when the slow start of a row is over. Without a slow start
// that is the end of the penalty. Its steps are as long as the window, if the
// penalty was at least twice as long, and the window is not very long: see
// docs/internals/bans.md.
func (u *rule) rampEnd(r *Row) int64 {
	switch step := r.last.step(); {
	case u.tokens > 0:
		return r.paused + u.span
	case u.width == 0 || step == 0:
		return r.paused
	case u.aligned && step >= u.width:
		return r.paused - r.paused%u.width + int64(len(steps))*u.width
	default:
		return r.paused + int64(len(steps))*min(step, u.width)
	}
}

// windowRamp returns the row's entries, and entries that take all but its share
// of each of the first steps. An entry of a step is never joined with starts
// around it: joined, it would reach as far as they do, and close the room up to
// the next step. But where an entry lies over the begin of the last step, the
// entry of the step follows that one and reaches to its end: a search needs
// entries in order. At the begin of the first step the order makes no
// difference, because no start is before that.
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

// bucketRamp returns entries that take all but one token of a bucket, whatever
// was spent of it before.
func (s *Search) bucketRamp() []entry {
	begin := s.row.paused
	entries := []entry{{begin, begin, s.rule.most - 1}}
	for _, e := range s.row.entries[s.row.after(begin):] {
		entries = append(entries, entry{max(e.first, begin), e.last, e.n})
	}
	return entries
}

// stepRule returns the rule that a slow start of the row keeps: the rule itself,
// or, for steps that are shorter than the window, a sliding window of one step
// with the part of the limit that the window has for a step.
func (u *rule) stepRule(r *Row) rule {
	v, step := *u, r.last.step()
	if step >= u.width || step == 0 {
		return v
	}

	// A window holds that many steps, and a step has its part of the limit, rounded up.
	parts := u.width / step
	part := func(n int64) int64 { return (n + parts - 1) / parts }
	v.kind, v.aligned, v.span, v.n, v.most = store.KindSlidingWindow, false, step, part(u.n), part(u.most)

	// The limit of the charge is what it may use beside its reserve, so both are divided; the cost stays whole.
	v.room = part(u.room+u.cost+u.reserve) - u.cost - part(u.reserve)
	return v
}

// ramped returns a search of a row that holds, besides all that is booked, the
// part of the limit that a slow start keeps from being booked. That row lasts for
// one search, and the row itself is not changed.
func (s *Search) ramped() *Search {
	ramp := &Search{row: &Row{total: maxCount}, rule: s.rule.stepRule(s.row)} // a total for which there is never room
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

			far := e[max(s.j, 1)-1].first

			// There is no such run, or the start and its spread are so far before its last entry that no window holds both.
			if s.sum <= room || t+s.rule.spread+span <= far {
				return t
			}

			// The run forbids starts only if one window can touch all of it.
			if far-e[s.i].last < span {
				t = e[s.i].last + span
			}
		}

		// The next run begins behind entry i.
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
		// A start may come late by jitter and spread. It must be in its window even then.
		start, end, _ := s.rule.window(t)
		if t+min(tail, end-start-1) >= end { // a window shorter than tail still has a first moment
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

		// All of these entries lie in each window that the first of them touches.
		if e[s.i].last >= end {
			_, end, _ = s.rule.window(e[s.i].last)
		}

		t = end
	}
}

// paced returns the first start not before t for which a leaky bucket has a gap
// that is long enough.
func (s *Search) paced(t int64) int64 {
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

// behindProbe returns the first moment not before t at which a start is not the
// first after a penalty and too close to it: t, if there is no such first start
// yet.
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

	// The limit and the slow start move the start on by turns, until both have room or the slow start is over.
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

// maxEvenWindow is the length of the longest short window.
var maxEvenWindow = Micros(store.MaxEvenWindow)

// even sets the pace of a start that must wait until t, in microseconds for each
// unit of cost, and the part at whose begin it starts.
//
// At a charge's own pace that takes half of the window for the whole limit, or more,
// a full window leaves as evenly as the limit lets it. The spread of a start is part
// of its distance. The emptier the window behind the last booked start, the closer
// are the starts, down to the charge's own pace: so room that was left is used up, in a
// short window within a second; in a long window, callers that wait for at most a third
// of it leave at once.
//
// In a short window with a large limit, without a slow start, the starts of callers of a
// single budget are at the begin of the window's parts: then starts that share an entry
// give it no width, and the whole window is used.
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

	// The pace grows in proportion to the use of the window, from 0 at (fall-2)/fall of the limit.
	full, fall, part := u.span*24/25/u.most, int64(5), int64(0)
	switch {
	case u.span-u.jitter > maxEvenWindow:
		fall = 3
	case s.single && u.n > windowParts && u.spread == 0 && r.paused == 0:
		full, fall, part = u.span/u.most, 2, partOf(u.span)
	}

	pace := max(u.pace, full*(fall*sum-(fall-2)*u.most)/(2*u.most)-u.spread)

	// Parts make starts share an entry: that is of use only if a part holds one start or more.
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

// over returns when a start that keeps a distance may follow the starts of an
// entry. In parts it is at the begin of the next part.
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
		// Starts that have come keep nobody at a distance, and a start may share an entry that has room in its part.
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

// slidingPaced is room for a charge that may have a pace. The pace counts if the
// limit alone, or a penalty, makes the request wait longer than it asked to, or
// if the line is steady.
func (s *Search) slidingPaced(t int64) int64 {
	if s.wait == 0 {
		// Only a start that has to wait keeps a pace, so ask first what the limit alone allows.
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
// higher priority waited, if the booking has a horizon.
func (s *Search) behind(b *store.Booking) {
	if b.Horizon <= 0 {
		return
	}
	for _, start := range s.row.tails[:class(b.Priority)+1] {
		s.tail = max(s.tail, start)
	}
}
