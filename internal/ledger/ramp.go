package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// steps are the parts of a limit that the steps of a slow start have: an eighth, a
// half, and at least 1.
var steps = [...]int64{8, 2}

// A slow start begins when a penalty ends. Its steps are as long as the window, if the
// penalty was at least twice as long, and the window is not very long: see docs/internals/bans.md.

// ramped returns the rule that a slow start of the row keeps: its own, or, for steps that
// are shorter than the window, that of as much as the window has for so long.
func (u *rule) ramped(r *Row) rule {
	v, step := *u, r.last.step()
	if step >= u.width || step == 0 {
		return v
	}
	parts := u.width / step
	part := func(n int64) int64 { return (n + parts - 1) / parts }
	v.kind, v.aligned, v.span, v.n, v.most = store.KindSlidingWindow, false, step, part(u.n), part(u.most)
	v.room = part(u.room+u.cost+u.reserve) - u.cost - part(u.reserve)
	return v
}

// rampEnd returns when the slow start of a row is over. If there is none, it is over when
// the penalty ends.
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

// newRamp returns a search of a row that holds, besides what is booked, what a
// slow start keeps from being booked. That row lasts for one search, and the true
// one knows nothing of it.
func (s *Search) newRamp() *Search {
	ramp := &Search{row: &Row{total: maxCount}, rule: s.rule.ramped(s.row)} // in any case more than there is room for
	if s.rule.tokens > 0 {
		ramp.row.entries = s.bucketRamp()
	} else {
		ramp.row.entries = s.windowRamp(&ramp.rule)
	}
	return ramp
}

// windowRamp takes all but its share of each of the first steps. What it takes
// is never joined with starts around it: it would reach as far as they do, and
// close what lies between it and the next step. But where an entry lies over the begin of the last
// step, what that step takes follows it and reaches to its end: a search needs entries in order.
// At the begin of the first step the order makes no difference, because no start is before that.
func (s *Search) windowRamp(u *rule) []entry {
	begin := s.row.paused
	entries := slices.Clone(s.row.entries)
	for k, part := range steps {
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

// bucketRamp takes all but a token of a bucket, whatever was spent of it before.
func (s *Search) bucketRamp() []entry {
	begin := s.row.paused
	entries := []entry{{begin, begin, s.rule.most - 1}}
	for _, e := range s.row.entries[s.row.after(begin):] {
		entries = append(entries, entry{max(e.first, begin), e.last, e.n})
	}
	return entries
}
