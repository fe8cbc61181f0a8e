package ledger

import (
	"github.com/fleetthrottle/throttle/store"
)

// earliest returns the first start not before t that has room for the cost.
// Successive calls must not go back.
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
		return t // what is in flight opens at no known time
	case store.KindUnlimited:
		return s.row.behindProbe(t)
	default:
		return s.room(t)
	}
}

// room looks for the first start for which the limit has room: in the row and,
// after a penalty, behind the probe and in the ramp of the slow start.
func (s *Search) room(t int64) int64 {
	if s.row.paused == 0 {
		return s.booked(t)
	}
	t = s.booked(s.row.behindProbe(t))
	for end := s.rule.rampEnd(s.row); t < end; {
		if s.ramp == nil {
			s.ramp = s.newRamp()
		}
		next := s.ramp.booked(t)
		if next == t {
			break
		}
		t = s.booked(min(next, end))
	}
	return t
}

// booked looks for the first start that breaks the rule with nothing in the row.
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

		// All of these entries lie in each window that the first of them touches.
		if e[s.i].last >= end {
			_, end, _ = s.rule.window(e[s.i].last)
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

// slidingPaced is room for a charge that may have a pace: it counts when the
// limit alone, or a penalty, makes the request wait longer than it asked to, or if the line is steady.
func (s *Search) slidingPaced(t int64) int64 {
	if s.wait == 0 {
		s.wait = s.room(max(s.from, s.row.paused, s.tail))
		if s.rule.pace > 0 && (s.wait > s.from || s.steady) {
			s.pace = s.even(s.wait)
		}
	}
	t = s.room(max(t, s.wait))
	if s.rule.pace == 0 || s.wait == s.from && !s.steady {
		return t
	}
	for {
		clear := s.clear(t)
		if clear == t {
			return t
		}
		t = s.room(clear)
	}
}

// behind makes a search keep behind the starts that others waited for.
func (s *Search) behind(b *store.Booking) {
	if b.Horizon <= 0 {
		return
	}
	for _, start := range s.row.tails[:class(b.Priority)+1] {
		s.tail = max(s.tail, start)
	}
}
