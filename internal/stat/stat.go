// Package stat computes the figures of measurements, tests and reports, and prints counts as people read them.
package stat

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Quantile returns the value at a share of all values in ascending order: the smallest for a share of 0, the largest for 1.
// Of an empty slice it returns the zero value.
func Quantile[T cmp.Ordered](all []T, share float64) T {
	if len(all) == 0 {
		var none T
		return none
	}

	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// Most returns the highest number of moments in a half-open interval of length per, which is more than 0.
func Most(moments []time.Duration, per time.Duration) int {
	sorted := slices.Sorted(slices.Values(moments))
	most, first := 0, 0
	for last := range sorted {
		// The interval is half-open, so a moment that is per before the last lies outside.
		for sorted[last]-sorted[first] >= per {
			first++
		}
		most = max(most, last-first+1)
	}

	return most
}

// Used returns the share of a quota, n starts in each interval of length per, that
// starts use between from and to. Starts come in bunches, and one bunch at an edge
// must not decide: Used is the mean over all intervals of the length to - from - per
// between from and to. It is 0 if this length is not positive.
func Used(starts []time.Duration, from, to time.Duration, n int, per time.Duration) float64 {
	length := to - from - per
	if length <= 0 {
		return 0
	}

	// The intervals begin between from and from + per. For each start, add the span of the beginnings whose interval holds it.
	var sum time.Duration
	for _, start := range starts {
		latest := min(start-from, per)
		earliest := max(start-from-length, 0)
		sum += max(latest-earliest, 0) // a start before from or after to is in no interval
	}

	// An interval holds sum/per starts in the mean, and its quota is n*length/per.
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
