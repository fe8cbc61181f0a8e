package feedback

import (
	"cmp"
	"hash/maphash"
	"math"
	"sync"
	"time"
)

// Estimates learn what requests cost, so that a guess that is far off does not hold, or let through,
// more than it should. [throttle.Policy.Cost] asks for an estimate, and Answer or Meter tells what
// the request did cost. The zero value is ready for use, by many goroutines. Each process learns for
// itself.
//
// Requests of a group, such as those of one model, cost about the same. Their estimate is the mean of
// about the last 64 of them, and one standard error more, because the mean of few is far off. Each
// counts as long as it was in flight: for so long its estimate stood in the place of the truth, and
// answers that take long tend to cost more. Until Least requests of a group have been settled too little is
// known of it: then the estimate is the caller's own guess, or the mean so far if that is more.
//
// 256 groups are remembered. For one more, any of them is forgotten, and learned anew.
type Estimates struct {
	// Least is how many requests of a group must have been settled before its estimate counts. Where many
	// start together the short ones end first, so more is safer. Defaults to 8.
	Least int

	mu     sync.Mutex
	groups map[uint64]*estimate
}

const (
	mostGroups    = 256
	leastToKnow   = 8                               // the default of Least
	keepsOfOld    = 1 - 1.0/64                      // by each new request
	leastVariance = 1e-9                            // of the squared mean: less is rounding
	leastWeight   = float64(100 * time.Millisecond) // of an answer that took no time
)

// An estimate has sums over the requests of a group. With each new request the old ones count less.
type estimate struct {
	settled                 int
	weights, weightsSquared float64
	costs, costsSquared     float64 // times the weight
}

var groupSeed = maphash.MakeSeed()

// Cost returns the estimate for a request of a group, at least 1. If too little is known of the group it
// is otherwise, or the mean of what is known if that is more.
func (e *Estimates) Cost(group string, otherwise int) int {
	e.mu.Lock()
	defer e.mu.Unlock()

	g := e.groups[maphash.String(groupSeed, group)]
	if g == nil {
		return otherwise
	}

	mean := g.costs / g.weights
	if g.settled < cmp.Or(e.Least, leastToKnow) {
		return max(otherwise, wholeCost(mean))
	}

	variance := g.costsSquared/g.weights - mean*mean
	if variance < leastVariance*mean*mean {
		variance = 0 // what is left of sums of floats
	}

	standardError := math.Sqrt(variance * g.weightsSquared / (g.weights * g.weights))
	return max(1, wholeCost(mean+standardError))
}

// wholeCost rounds a cost up, unless what is above a whole number is what is left of sums of floats.
func wholeCost(cost float64) int {
	const rounding = 1e-6
	return int(math.Ceil(min(cost, math.MaxInt32) - rounding))
}

// Settled notes what a request of a group has cost, and for how long it was in flight. A cost below
// 0 is not known, and changes nothing.
func (e *Estimates) Settled(group string, cost int, inFlight time.Duration) {
	if cost < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.group(maphash.String(groupSeed, group))
	weight, c := max(float64(inFlight), leastWeight), float64(min(cost, math.MaxInt32))
	g.weights = g.weights*keepsOfOld + weight
	g.weightsSquared = g.weightsSquared*keepsOfOld*keepsOfOld + weight*weight
	g.costs = g.costs*keepsOfOld + weight*c
	g.costsSquared = g.costsSquared*keepsOfOld + weight*c*c
	g.settled = min(g.settled+1, math.MaxInt32)
}

// group returns a group, and makes it if it is not there.
func (e *Estimates) group(id uint64) *estimate {
	g := e.groups[id]
	if g != nil {
		return g
	}
	if e.groups == nil {
		e.groups = make(map[uint64]*estimate)
	}

	for other := range e.groups {
		if len(e.groups) < mostGroups {
			break
		}
		delete(e.groups, other)
	}

	g = new(estimate)
	e.groups[id] = g
	return g
}
