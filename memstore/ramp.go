package memstore

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// longestRamped is the longest window that begins slowly after a penalty.
const longestRamped = 20 * time.Second

// steps are the parts of a limit that the first windows have: an eighth, a
// half, and at least 1.
var steps = [...]int64{8, 2}

// rampEnd returns when the slow start is over that begins when a penalty ends. If
// there is none, it is over then.
func (u *rule) rampEnd(begin int64) int64 {
	switch per := u.limit.Per(); {
	case u.kind == throttle.KindTokenBucket:
		return begin + u.span
	case u.kind == throttle.KindLeakyBucket || per == 0 || per > longestRamped:
		return begin
	case u.kind == throttle.KindFixedWindow:
		return begin - begin%micros(per) + int64(len(steps))*micros(per)
	default:
		return begin + int64(len(steps))*u.span
	}
}

// step returns when the step of a slow start is over that begins at t.
func (u *rule) step(t int64) int64 {
	if u.kind == throttle.KindFixedWindow {
		_, end := u.window(t)
		return end
	}
	return t + u.span
}

// newRamp returns a search of a row that holds, besides what is booked, what a
// slow start keeps from being booked. That row lasts for one search, and the true
// one knows nothing of it.
func (s *search) newRamp() *search {
	r := &row{total: maxCount} // in any case more than there is room for
	if s.rule.kind == throttle.KindTokenBucket {
		r.entries = s.bucketRamp()
	} else {
		r.entries = s.windowRamp()
	}
	return &search{row: r, rule: s.rule}
}

// windowRamp takes all but its share of each of the first windows. What it takes
// is never joined with starts around it: it would reach as far as they do, and
// close what lies between it and the next step.
func (s *search) windowRamp() []entry {
	u, begin := &s.rule, s.row.paused
	entries := slices.Clone(s.row.entries)
	for _, part := range steps {
		i := (&row{entries: entries}).after(begin)
		entries = slices.Insert(entries, i, entry{begin, begin, u.most - (u.most+part-1)/part})
		begin = u.step(begin)
	}
	return entries
}

// bucketRamp takes all but a token of a bucket, whatever was spent of it before.
func (s *search) bucketRamp() []entry {
	begin := s.row.paused
	entries := []entry{{begin, begin, s.rule.most - 1}}
	for _, e := range s.row.entries[s.row.after(begin):] {
		entries = append(entries, entry{max(e.first, begin), e.last, e.n})
	}
	return entries
}
