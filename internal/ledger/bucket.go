package ledger

import (
	"math/bits"
)

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
// already. Tokens that flow in during the jitter do not count: an arrival may be
// later by the jitter than the arrival before the level was reached.
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
	old := max(r.unit, -r.unit)
	switch {
	case r.unit == u.micros:
		return
	case old == 0:
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

// forget counts an entry that is about to leave the row. A bucket remembers how
// much was spent: a bucket that is never left in peace for long enough to fill
// up owes these tokens forever.
func (r *Row) forget(e *entry, u *rule) {
	switch {
	case u.tokens > 0:
		r.level = level{r.lost, r.level}.addUp(e, u).spent
	case r.unit != 0:
		// The limit may be a bucket again: until then nothing flows in.
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

		// The sum alone is more than a full bucket holds, so tokens must flow in behind the earliest of its entries.
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

	// The bucket as the entries before t leave it, and a bucket that is full when the start has taken its tokens at the latest.
	i, spent, sum := s.i, s.level, s.sum
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

// bucket returns the first start not before t for which a token bucket has room:
// with it no run of entries breaks the rule that ends with the start, goes over
// it, or begins with it. See filled for how the entries before t are counted.
func (s *Search) bucket(t int64) int64 {
	r := s.row
	if r.level == 0 && r.total <= s.rule.room {
		return t
	}
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
