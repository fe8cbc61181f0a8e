package ledger

import (
	"math/bits"
	"slices"
)

// maxLevel is more than any bucket of a limit holds, and little enough to be
// added to.
const maxLevel = 1 << 52

// addUp returns the level at the end of e, with what e costs. Entries come in
// the order of time.
func (l level) addUp(e *entry, u *rule) level {
	left := int64(0)
	if elapsed := e.last - l.at; elapsed <= l.spent/u.tokens {
		left = l.spent - elapsed*u.tokens
	}
	return level{e.last, left + u.filling(e)*u.micros}
}

// due is when so many tokens more than the room have flowed in; 0 if none are
// missing. What flows in during the jitter does not count: an arrival may be so
// much later than the one before the level was reached.
func (l level) due(excess int64, u *rule) int64 {
	missing := l.spent + excess*u.micros
	if missing <= 0 {
		return 0
	}
	return l.at + u.jitter + (missing+u.tokens-1)/u.tokens
}

// filling is how much of the bucket an entry can have taken. By the rule that is
// never more than all of it, so entries that were joined need not count more.
func (u *rule) filling(e *entry) int64 { return min(e.n, u.n) }

// recount makes the row's level one of the rule's units. A level of other units,
// or one to which other limits added, is at most a full bucket.
func (r *Row) recount(u *rule) {
	old := max(r.unit, -r.unit)
	switch {
	case r.unit == u.micros:
		return
	case old == 0:
	case r.level/old >= u.n:
		r.level = u.n * u.micros // a full bucket; the product below could be too large
	default:
		hi, lo := bits.Mul64(uint64(r.level), uint64(u.micros))
		lo, carry := bits.Add64(lo, uint64(old-1), 0)
		quotient, _ := bits.Div64(hi+carry, lo, uint64(old))
		r.level = int64(quotient)
	}
	r.unit = u.micros
}

// forget drops the first k entries. A bucket remembers what was spent: one that
// is never left in peace for long enough to fill up owes it to them forever.
func (r *Row) forget(k int, u *rule) {
	for i := range k {
		e := &r.entries[i]
		switch {
		case u.tokens > 0:
			r.level = level{r.lost, r.level}.addUp(e, u).spent
		case r.unit != 0:
			// It may be a bucket again: until then nothing flows in.
			r.unit = min(r.unit, -r.unit)
			r.level = min(maxLevel, r.level+min(e.n, maxLevel/-r.unit)*-r.unit)
		}
		r.lost = max(r.lost, e.last)
		r.total -= e.n
	}
	r.entries = slices.Delete(r.entries, 0, k)
}

// bucket looks for the first start that breaks the rule with no run of entries:
// none that ends with it, goes over it, or begins with it. Entries i … j-1 are
// those before t that together leave room, and sum is what they cost; in those
// before them, level is what counts.
func (s *Search) bucket(t int64) int64 {
	r := s.row
	if r.level == 0 && r.total <= s.rule.room {
		return t
	}
	if s.i == 0 {
		s.level = level{r.lost, r.level}
	}
	for {
		t = s.filled(t)
		k := s.overdrawn(t)
		if k < 0 {
			return t
		}
		t = r.entries[k].last
	}
}

// filled returns the first moment not before t at which the bucket has room,
// for all that happened until then.
func (s *Search) filled(t int64) int64 {
	e := s.row.entries
	for {
		for ; s.j < len(e) && e[s.j].first <= t; s.j++ {
			s.sum += s.rule.filling(&e[s.j])
		}
		for ; s.sum > s.rule.room && s.i < s.j; s.i++ {
			s.level = s.level.addUp(&e[s.i], &s.rule)
			s.sum -= s.rule.filling(&e[s.i])
		}
		due := s.level.due(s.sum-s.rule.room, &s.rule)
		if due <= t {
			return t
		}
		t = due
	}
}

// overdrawn returns an entry to come up to which the bucket would be overdrawn by a
// start at t, or -1. No start before the end of that entry has room: it would
// be as much too early, or earlier still.
func (s *Search) overdrawn(t int64) int {
	u, e := &s.rule, s.row.entries
	i, spent, sum, own := s.i, s.level, s.sum, int64(0)
	start := level{at: t + u.spread}
	for k := s.j; k < len(e); k++ {
		sum += u.filling(&e[k])
		own += u.filling(&e[k])
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
