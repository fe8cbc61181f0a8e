package ledger

import "github.com/fleetthrottle/throttle"

// A Search looks for the earliest start on one row. It remembers how far it
// came, so that asking again for a later start costs only the rest of the way.
type Search struct {
	row  *Row
	rule rule
	from int64 // no start earlier than this was asked for
	tail int64 // nor is one allowed that is earlier: see behind
	free bool  // it is unlimited, and not shut: see unlimited.go

	horizon int64 // see throttle.Booking
	single  bool  // the caller needs no start in other budgets

	i, j  int   // Sliding, Bucket: the run of entries i … j-1
	sum   int64 // its sum
	k     int   // the entry that the pace stands at
	wait  int64 // Sliding: the earliest start by the limit alone; 0: not asked yet
	pace  int64 // Sliding: what one unit keeps clear of others; see even
	part  int64 // Sliding: the length of the parts at whose begin it starts; 0: anywhere
	level level // Bucket: what was spent when the run begins

	called bool // Concurrency: room was set aside, and is free again

	ramp *Search // of what a slow start keeps free; nil: not asked yet
}

// earliest returns the first start not before t that has room for the cost.
// Successive calls must not go back.
func (s *Search) earliest(t int64) int64 {
	if s.free {
		return t
	}
	t = max(t, s.row.paused, s.tail)
	switch s.rule.kind {
	case throttle.KindSlidingWindow:
		return s.slidingPaced(t)
	case throttle.KindLeakyBucket:
		return s.paced(t)
	case throttle.KindConcurrency:
		return t // what is in flight opens at no known time
	case throttle.KindUnlimited:
		return s.row.behindProbe(t)
	default:
		return s.room(t)
	}
}

// booked looks for the first start that breaks the rule with nothing in the row.
func (s *Search) booked(t int64) int64 {
	switch s.rule.kind {
	case throttle.KindSlidingWindow:
		return s.sliding(t)
	case throttle.KindFixedWindow:
		return s.aligned(t)
	default:
		return s.bucket(t)
	}
}

// sliding sweeps the forbidden ranges of docs/internals/booking.md: entry i and the
// shortest run from it that leaves no room forbid every start from which an
// interval of length span can touch the whole run.
func (s *Search) sliding(t int64) int64 {
	span, room := s.rule.span, s.rule.room
	if s.row.total <= room {
		return t
	}
	e := s.row.entries
	for ; s.i < len(e); s.i++ {
		if e[s.i].last+span > t {
			for s.j < len(e) && s.sum <= room {
				s.sum += e[s.j].n
				s.j++
			}
			far := e[max(s.j, 1)-1].first
			if s.sum <= room || t+s.rule.spread+span <= far {
				return t
			}
			if far-e[s.i].last < span {
				t = e[s.i].last + span
			}
		}
		if s.j > s.i {
			s.sum -= e[s.i].n
		} else {
			s.j++
		}
	}
	return t
}

// aligned goes from window to window.
func (s *Search) aligned(t int64) int64 {
	tail, room := s.rule.jitter+s.rule.spread, s.rule.room
	e := s.row.entries
	for {
		start, end, _ := s.rule.window(t)
		if t+min(tail, end-start-1) >= end { // a window shorter than tail still has a first moment
			t = end
			continue
		}
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
		if e[s.i].n > room && e[s.i].last >= end {
			_, end, _ = s.rule.window(e[s.i].last) // it fills every window that it touches
		}
		t = end
	}
}

// paced looks for the first gap that is long enough.
func (s *Search) paced(t int64) int64 {
	unit, length := s.rule.unit+s.rule.pad, s.rule.length()+s.rule.cost*s.rule.pad
	for e := s.row.entries; s.i < len(e); s.i++ {
		end := e[s.i].end(unit, s.rule.n)
		if end <= t {
			continue
		}
		if t+length+s.rule.unit <= e[s.i].first {
			break
		}
		t = end
	}
	return t
}
