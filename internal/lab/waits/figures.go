package waits

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// mean returns the mean wait.
func mean(visits []visit) time.Duration {
	if len(visits) == 0 {
		return 0
	}
	var sum time.Duration
	for i := range visits {
		sum += visits[i].waited()
	}
	return sum / time.Duration(len(visits))
}

// quantile returns the wait that a share of the visits does not exceed.
func quantile(visits []visit, share float64) time.Duration {
	waits := make([]time.Duration, len(visits))
	for i := range visits {
		waits[i] = visits[i].waited()
	}
	return stat.Quantile(waits, share)
}

func longest(visits []visit) time.Duration { return quantile(visits, 1) }

// last returns the last start.
func last(visits []visit) time.Duration {
	end := never
	for i := range visits {
		end = max(end, visits[i].start)
	}
	return end
}

// latest returns by how much a visit started later than in a second run of the
// same visits, at the most.
func latest(visits, than []visit) time.Duration {
	late := time.Duration(0)
	for i := range visits {
		if visits[i].started() && than[i].started() {
			late = max(late, visits[i].start-than[i].start)
		}
	}
	return late
}

// worst returns the highest cost of visits that start in an interval of a length.
func worst(visits []visit, per time.Duration) int {
	var starts []time.Duration
	for _, v := range only(visits, all) {
		starts = append(starts, slices.Repeat([]time.Duration{v.start}, v.cost())...)
	}
	return stat.Most(starts, per)
}

// A spend is what one start cost.
type spend struct {
	at   time.Duration
	cost int
}

func spends(visits []visit) (list []spend) {
	for _, v := range only(visits, all) {
		list = append(list, spend{v.start, v.cost()})
	}
	return list
}

// used returns the share of n a span that was spent between two times. Starts come
// in bunches, so a bunch more or less at an edge must not decide: it is the mean
// over every interval of that length that lies between the two.
func used(list []spend, from, to time.Duration, n int, span time.Duration) float64 {
	length := to - from - span
	if length <= 0 {
		return 0
	}
	sum := 0.0
	for _, s := range list {
		seen := min(s.at-from, length) - max(s.at-from-span, 0)
		sum += float64(max(seen, 0)) * float64(s.cost)
	}
	return sum / float64(length) / float64(n)
}

// passed returns by how much a visit was passed at the most: the second visit came so
// much later, or more, and started so early, or earlier.
func passed(visits []visit) time.Duration {
	return most(visits, func(v *visit, by time.Duration) (time.Duration, time.Duration) {
		return v.came + by, v.start - by
	})
}

// passedByLater returns by how much later the latest comer came that passed
// somebody. A millisecond of a start is no passing.
func passedByLater(visits []visit) time.Duration {
	return most(visits, func(v *visit, by time.Duration) (time.Duration, time.Duration) {
		return v.came + by, v.start - time.Millisecond
	})
}

// most returns the largest length, to a tenth of a millisecond, for which some
// visit came and a visit that came not before the first of what at returns started
// not after the second.
func most(visits []visit, at func(*visit, time.Duration) (time.Duration, time.Duration)) time.Duration {
	sorted := only(visits, all)
	slices.SortStableFunc(sorted, func(a, b visit) int { return cmp.Compare(a.came, b.came) })
	first := make([]time.Duration, len(sorted)+1) // the first start from a visit on
	first[len(sorted)] = 1<<63 - 1
	for i := len(sorted) - 1; i >= 0; i-- {
		first[i] = min(first[i+1], sorted[i].start)
	}

	holds := func(by time.Duration) bool {
		j := 0
		for i := range sorted {
			came, start := at(&sorted[i], by)
			for j < len(sorted) && sorted[j].came < came {
				j++
			}

			if first[j] <= start {
				return true
			}
		}

		return false
	}

	low, high := time.Duration(0), time.Hour
	for high-low > 100*time.Microsecond {
		if middle := (low + high) / 2; holds(middle) {
			low = middle
		} else {
			high = middle
		}
	}

	return low
}
