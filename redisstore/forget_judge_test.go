package redisstore_test

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

// A ledger has every start that was granted and not given back, by the server's
// clock, and judges them by the definition of the limit.
type ledger struct {
	limit throttle.Limit
	at    map[int]int64
	cost  map[int]int
}

// allows reports whether the limit allows the start id beside the known ones.
func (l ledger) allows(known ids, id int) bool {
	at := l.at[id]
	var all []int64 // a start of cost c counts as c starts
	for k := range known {
		if t, ok := l.at[k]; ok {
			all = append(all, slices.Repeat([]int64{t}, l.cost[k])...)
		}
	}
	slices.Sort(all)
	n, per := l.limit.N(), l.limit.Per().Microseconds()
	switch l.limit.Kind() {
	case throttle.KindFixedWindow:
		in := func(t int64) bool { return t/per == at/per }
		return len(all)-len(slices.DeleteFunc(all, in)) <= n
	case throttle.KindLeakyBucket:
		return !crowded(all, at, 1, (per+int64(n)-1)/int64(n))
	case throttle.KindTokenBucket:
		return hasRoom(all, at, l.limit)
	}
	return !crowded(all, at, n, per+1)
}

// crowded reports whether more than n starts, at among them, lie within less than
// span.
func crowded(all []int64, at int64, n int, span int64) bool {
	for i := n; i < len(all); i++ {
		if all[i]-all[i-n] < span && all[i-n] <= at && at <= all[i] {
			return true
		}
	}
	return false
}

// hasRoom reports whether the start at, which is one of all, finds room in a bucket
// that the others, where they were too many, have left full.
func hasRoom(all []int64, at int64, l throttle.Limit) bool {
	n, per := int64(l.N()), l.Per().Microseconds()
	level, last, full := int64(0), all[0], int64(l.Capacity())*per
	for i := 0; i < len(all) && all[i] <= at; i++ {
		level = max(0, level-n*(all[i]-last)) + per
		if last = all[i]; last < at {
			level = min(level, full)
		}
	}
	return level <= full
}
