// Package stat has the few figures that measurements and tests take of waits and starts.
package stat

import (
	"cmp"
	"slices"
	"time"
)

// Quantile returns the value that a share of all does not exceed, or one of the two beside it; the zero value if there are
// none. The share of the largest is 1.
func Quantile[T cmp.Ordered](all []T, share float64) T {
	if len(all) == 0 {
		var none T
		return none
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// Most returns the largest number of times that lie in any half-open interval of length per.
func Most(times []time.Duration, per time.Duration) int {
	sorted := slices.Sorted(slices.Values(times))
	most, first := 0, 0
	for last := range sorted {
		for sorted[last]-sorted[first] >= per {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// Used returns the share of a quota of n per `per` that the given starts use
// between from and to. Starts come in bunches, so a bunch more or less at an
// edge must not decide: Used is the mean over every interval that is `per`
// shorter than the given one and lies in it.
func Used(at []time.Duration, from, to time.Duration, n int, per time.Duration) float64 {
	length := to - from - per
	if length <= 0 {
		return 0
	}
	var sum time.Duration // over all starts, of the intervals' beginnings that see it
	for _, t := range at {
		latest := min(t-from, per)
		earliest := max(t-from-length, 0)
		sum += max(latest-earliest, 0)
	}
	return float64(sum) / float64(length) / float64(n)
}

// Jain returns Jain's index of fairness: 1 if all counts are equal, one in len(counts) if all but one are 0; 0 if all are.
//
// R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared
// Computer Systems, DEC TR-301, 1984.
func Jain(counts []int) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / float64(len(counts)) / squares
}
