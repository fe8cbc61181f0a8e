// Package stat computes the figures of measurements, tests and reports, and prints counts as people read them.
package stat

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Quantile returns a value that a share of all does not exceed, where the share of the largest value is 1. Of an empty
// slice it is the zero value.
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
		// The interval is half-open, so a time that is per before the last lies outside.
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

	// A start counts in each interval that begins up to per before it, so sum for how long such beginnings last.
	var sum time.Duration
	for _, t := range at {
		latest := min(t-from, per)
		earliest := max(t-from-length, 0)
		sum += max(latest-earliest, 0)
	}

	return float64(sum) / float64(length) / float64(n)
}

// Jain returns Jain's index of fairness: 1 if all counts are equal, 1/len(counts) if one count has everything, and 0 if
// all counts are 0.
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

// Count returns a number with the word for one thing, or for several.
func Count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + several
}
