package storetest

import (
	"cmp"
	"math"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A flow is a Bucket charge in whole units: a token is as many of them as its
// Refill has microseconds, and in each microsecond as many flow in as its
// Refill has tokens.
type flow struct {
	room           int64 // the burst, less what must stay free
	tokens, micros int64
	jitter         int64
}

func flowOf(c store.Charge) flow {
	tokens, each := c.Refill()
	return flow{int64(c.Limit.Capacity() - c.KeepFree), tokens, each, micros(c.Jitter)}
}

// holds reports whether an interval of length d may hold n starts.
func (f flow) holds(cost, d int64) bool {
	return (cost-f.room)*f.micros <= f.tokens*max(0, d-f.jitter)
}

// after returns the length of the shortest interval that may hold n
// starts, if they are more than the bucket holds at once.
func (f flow) after(cost int64) int64 {
	return f.jitter + ((cost-f.room)*f.micros+f.tokens-1)/f.tokens
}

// A mark is a moment and a sum of costs that goes with it.
type mark struct{ t, sum int64 }

// fitsBucket: no interval in which s can be used holds more than the bucket and
// what flows in during its length, less the jitter. The sums only change where
// something can no longer be used, or begins, so only intervals between such
// moments are looked at. The others are joined: see full.
func fitsBucket(c store.Charge, others []stay, s stay) bool {
	f := flowOf(c)
	begins, ends := beginnings(others, s), endings(others, s)
	total := int64(s.cost) + sum(others)
	for _, a := range begins {
		for _, b := range ends {
			if a.t <= b.t && !f.holds(total-a.sum-b.sum, b.t-a.t) {
				return false
			}
		}
	}
	return true
}

// nextBucket returns the first moment after s at which it may begin to fit:
// enough has flowed in since the begin of some interval, or something booked
// begins or can no longer be used.
func nextBucket(c store.Charge, others []stay, s stay) int64 {
	f, next := flowOf(c), int64(math.MaxInt64)
	consider := func(t int64) {
		if t > s.at {
			next = min(next, t)
		}
	}

	begun := int64(s.cost)
	for _, o := range others {
		consider(o.at)
		consider(o.until + 1)
		if o.at <= s.at {
			begun += int64(o.cost)
		}
	}

	for _, a := range beginnings(others, s) {
		if cost := begun - a.sum; cost > f.room {
			consider(a.t + f.after(cost))
		}
	}

	return next
}

// beginnings are the moments at which an interval that holds s can begin, with
// the costs of starts that can no longer be used then.
func beginnings(all []stay, s stay) []mark {
	slices.SortFunc(all, func(a, b stay) int { return cmp.Compare(a.until, b.until) })
	var marks []mark
	gone := int64(0)
	for _, o := range all {
		if o.until > s.until {
			break
		}
		marks = append(marks, mark{o.until, gone})
		gone += int64(o.cost)
	}
	return append(marks, mark{s.until, gone})
}

// endings are the moments at which such an interval can end, with the costs of
// starts that only begin later. Where s can be used for a while, an earlier start may be gone
// before it and the interval is but that moment.
func endings(all []stay, s stay) []mark {
	marks := []mark{{s.at, 0}, {s.until, 0}}
	for _, o := range all {
		if o.at > s.at {
			marks = append(marks, mark{o.at, 0})
		}
		if s.at < o.until && o.until < s.until {
			marks = append(marks, mark{o.until, 0})
		}
	}

	slices.SortFunc(all, func(a, b stay) int { return cmp.Compare(b.at, a.at) })
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(b.t, a.t) })

	i, later := 0, int64(0)
	for m := range marks {
		for ; i < len(all) && all[i].at > marks[m].t; i++ {
			later += int64(all[i].cost)
		}
		marks[m].sum = later
	}

	return marks
}

// full joins what begins at one moment: however much it came to cost, it takes
// at most a full bucket.
func full(c store.Charge, stays []stay) []stay {
	slices.SortFunc(stays, func(a, b stay) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.until, b.until))
	})
	joined := stays[:0]
	for _, s := range stays {
		last := len(joined) - 1
		if last < 0 || joined[last].at != s.at || joined[last].until != s.until {
			joined = append(joined, stay{s.at, s.until, 0})
			last++
		}

		joined[last].cost = min(joined[last].cost+s.cost, c.Limit.Capacity())
	}

	return joined
}

// sum adds up the costs.
func sum(stays []stay) (all int64) {
	for _, s := range stays {
		all += int64(s.cost)
	}
	return all
}
