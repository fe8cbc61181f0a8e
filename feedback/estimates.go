package feedback

import (
	"cmp"
	"hash/maphash"
	"math"
	"sync"
	"time"
)

// Estimates learn the cost of requests, so that a bad guess does not hold back, or let through,
// more than it should. [throttle.Policy.Cost] asks for an estimate; Answer or Meter reports the
// actual cost. The zero value is ready for use. Estimates are safe for concurrent use, and local to
// the process.
//
// Requests of one group, such as one model, cost about the same. The estimate of a group is the
// mean of about its last 64 requests plus one standard error, because the mean of few requests is
// far off. Each request is weighted by its time in flight: its estimate was booked for that time,
// and slow answers tend to cost more. Until Least requests of a group are settled, the estimate is
// the caller's own guess, or the mean so far if the mean is higher.
//
// 256 groups are kept. A further group replaces an arbitrary group.
type Estimates struct {
	// Least is the number of settled requests from which a group's estimate counts. Short requests
	// settle first, so use a higher Least where many requests start together. Defaults to 8.
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

// An estimate has weighted sums over the requests of a group, in which old requests decay.
type estimate struct {
	settled                 int
	weights, weightsSquared float64
	costs, costsSquared     float64 // times the weight
}

var groupSeed = maphash.MakeSeed()

// Cost returns the estimate for a request of a group, at least 1. Until Least requests of the group
// are settled it returns otherwise, or the mean so far if the mean is higher.
func (e *Estimates) Cost(group string, otherwise int) int {
	e.mu.Lock()
	defer e.mu.Unlock()

	g := e.groups[maphash.String(groupSeed, group)]
	if g == nil {
		return otherwise
	}

	// The mean of few requests may be far too low, so until then the caller's guess is a lower bound.
	mean := g.costs / g.weights
	if g.settled < cmp.Or(e.Least, leastToKnow) {
		return max(otherwise, wholeCost(mean))
	}

	variance := g.costsSquared/g.weights - mean*mean
	if variance < leastVariance*mean*mean {
		variance = 0 // below leastVariance the difference is rounding error
	}

	// Add a standard error, so that the mean of a few requests is not too low.
	standardError := math.Sqrt(variance * g.weightsSquared / (g.weights * g.weights))
	return max(1, wholeCost(mean+standardError))
}

// wholeCost rounds a cost up, and ignores the rounding error of the sums.
func wholeCost(cost float64) int {
	const rounding = 1e-6
	return int(math.Ceil(min(cost, math.MaxInt32) - rounding))
}

// Settled records the cost of a request of a group and its time in flight. A negative cost is an
// unknown cost, and is ignored.
func (e *Estimates) Settled(group string, cost int, inFlight time.Duration) {
	if cost < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()

	// Each sum keeps a part of itself: an exponentially weighted mean, without a list of requests.
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

	// Forget any group: the order of a map is random.
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
