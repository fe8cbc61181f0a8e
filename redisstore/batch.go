package redisstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A batch is one call of book.lua: keys and rules that several callers share
// stand in it once, and so do neighbours that ask for the same.
type batch struct {
	callers []*caller
	runs    []run
	number  int64              // of the call, among all that this store makes
	flights []*flight          // those that it states; see takeFloors
	reports []wire.ReportReply // what was answered of each
	sent    time.Time          // when it was sent for the first time

	sorted bool              // it is decided which unlimited budgets are rows:
	rows   map[[16]byte]bool // these
}

// A run is some equal neighbours: the callers from one index up to another. It becomes
// one operation.
type run struct {
	from, to int
	maxWait  int64 // the least of theirs
}

// ample is a patience so long that a difference in it, by up to half, need not
// keep callers apart: it is seen to when one of them is refused.
const ample = int64(100 * time.Millisecond / time.Microsecond)

// alike reports whether callers of two patiences can share a run.
func alike(a, b int64) bool {
	return a == b || min(a, b) > ample && min(a, b) > max(a, b)/2
}

// newBatch puts equal neighbours together.
func newBatch(callers []*caller, number int64) *batch {
	b := &batch{number: number}
	for _, queue := range gather(callers) {
		runs := runsOf(queue, len(b.callers), alike)
		if len(runs) > 1 {
			// One that is refused for the patience of others asks again: those
			// behind it must not pass meanwhile.
			runs = runsOf(queue, len(b.callers), func(a, b int64) bool { return a == b })
		}
		b.callers, b.runs = append(b.callers, queue...), append(b.runs, runs...)
	}
	return b
}

// compareCallers sorts the callers of one call: those who give something back, those who
// had a start or their turn, by how long they wait, and the others as they came.
func compareCallers(a, b *caller) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 || a.rank() == newcomer {
		return c
	}
	return cmp.Compare(a.place(), b.place())
}

// The ranks of callers.
const (
	givesBack = iota
	returner
	inTurn
	newcomer
)

func (c *caller) rank() int {
	switch {
	case c.Kind != wire.Reserve:
		return givesBack
	case c.Returns:
		return returner
	case c.turn != nil:
		return inTurn
	}
	return newcomer
}

// place is what the callers of one rank are sorted by.
func (c *caller) place() int64 {
	switch c.rank() {
	case returner:
		return c.Start - c.Arrival
	case inTurn:
		return c.Class<<56 + c.turn.number
	}
	return 0
}

// runsOf returns the runs of a queue that begins at the place at, of callers whose
// patience is as alike as it must be.
func runsOf(queue []*caller, at int, alike func(a, b int64) bool) []run {
	var runs []run
	for i, c := range queue {
		if k := len(runs) - 1; k >= 0 && queue[i-1].like(c) && alike(queue[i-1].MaxWait, c.MaxWait) {
			runs[k].to++
			runs[k].maxWait = min(runs[k].maxWait, c.MaxWait)
		} else {
			runs = append(runs, run{at + i, at + i + 1, c.MaxWait})
		}
	}
	return runs
}

// gather returns queues whose order among each other does not matter: one for
// each budget. If a caller needs several, or gives something back, there is one
// queue for all.
func gather(callers []*caller) [][]*caller {
	if len(callers) == 1 {
		return [][]*caller{callers}
	}
	places := make(map[[16]byte]int)
	var byBudget [][]*caller
	for _, c := range callers {
		if len(c.Charges) > 1 || c.hasPlace() {
			return [][]*caller{callers}
		}
		key := c.Charges[0].Budget.Key
		place, ok := places[key]
		if !ok {
			place = len(byBudget)
			places[key], byBudget = place, append(byBudget, nil)
		}
		byBudget[place] = append(byBudget[place], c)
	}
	return byBudget
}

// like reports whether two callers ask for the same, but for their patience.
func (c *caller) like(d *caller) bool {
	return c.Kind == wire.Reserve && d.Kind == wire.Reserve && !c.hasPlace() && !d.hasPlace() && !c.alone && !d.alone &&
		c.Horizon == d.Horizon && c.Class == d.Class && c.Returns == d.Returns && c.Informed == d.Informed &&
		c.NotBefore == d.NotBefore && c.Spread == d.Spread && slices.EqualFunc(c.Charges, d.Charges, sameCharge)
}

// hasPlace reports whether the caller has a start, or a place in a line.
func (c *caller) hasPlace() bool { return c.Start != 0 || c.Arrival != 0 || c.turn != nil }

// sameCharge reports whether two charges are the same to the scripts.
func sameCharge(a, b throttle.Charge) bool {
	a.Over, b.Over = 0, 0
	return a == b
}
