package fleet

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// A Sample is one call of one worker. Its times count from the Unix epoch.
type Sample struct {
	Worker string        `json:"w"`
	Key    string        `json:"k,omitempty"` // calls of one key share a budget
	Asked  time.Duration `json:"a"`           // when the worker asked
	Booked time.Duration `json:"b,omitempty"` // when it knew its start, or 0 if the limiter does not tell
	Served time.Duration `json:"s"`           // when it was let through or, if not OK, gave up
	Start  time.Duration `json:"m,omitempty"` // the start by the store's clock, or 0 without such a clock
	OK     bool          `json:"ok"`          // it was let through and answered
}

// start returns when the call counts as started.
func (s Sample) start() time.Duration {
	if s.Start != 0 {
		return s.Start
	}
	return s.Served
}

// Jain returns Jain's index of fairness over the workers' shares of the calls
// let through: 1 if all got as much, 1/workers if one worker got everything.
func Jain(samples []Sample) float64 {
	share := make(map[string]int)
	for _, s := range samples {
		// A worker that got nothing counts, too, with a share of 0.
		if s.OK {
			share[s.Worker]++
		} else {
			share[s.Worker] += 0
		}
	}
	return stat.Jain(slices.Collect(maps.Values(share)))
}

// Inversions returns, of the pairs where one call came while a second call of the
// same key waited, the share that was served in the reverse order. Equal starts
// are in order. Of two calls that come within a moment of each other, either
// may get to the store first, so even a perfect queue has some.
func Inversions(samples []Sample) float64 {
	pairs, wrong := 0, 0
	for a, b := range waitingPairs(samples) {
		pairs++
		if b.start() < a.start() {
			wrong++
		}
	}
	if pairs == 0 {
		return 0
	}
	return float64(wrong) / float64(pairs)
}

// Overtaken returns how many pairs were served in the reverse order although the
// first call knew its start before the second was made. A queue that is
// first come, first served has none, however busy the machine is.
func Overtaken(samples []Sample) int {
	wrong := 0
	for a, b := range waitingPairs(samples) {
		knewBefore := a.Booked != 0 && a.Booked < b.Asked
		if knewBefore && b.start() < a.start() {
			wrong++
		}
	}
	return wrong
}

// waitingPairs yields the pairs of calls of one key that were let through, of
// which the second came while the first waited.
func waitingPairs(samples []Sample) iter.Seq2[Sample, Sample] {
	// A call that was not let through has no place in the order of service.
	served := slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return !s.OK })
	slices.SortFunc(served, func(a, b Sample) int { return cmp.Compare(a.Asked, b.Asked) })
	return func(yield func(Sample, Sample) bool) {
		for i, a := range served {
			// Calls are in the order in which they came: after a call that came too late for the pair, all did.
			for _, b := range served[i+1:] {
				if b.Asked >= a.Served {
					break
				}
				if a.Key == b.Key && a.Asked < b.Asked && !yield(a, b) {
					return
				}
			}
		}
	}
}

// Longest returns the longest wait, abandoned waits included.
func Longest(samples []Sample) time.Duration {
	var longest time.Duration
	for _, s := range samples {
		longest = max(longest, s.Served-s.Asked)
	}
	return longest
}

// times picks a time from each item.
func times[T any](items []T, at func(T) time.Duration) []time.Duration {
	picked := make([]time.Duration, len(items))
	for i, item := range items {
		picked[i] = at(item)
	}
	return picked
}
