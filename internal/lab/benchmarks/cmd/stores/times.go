package main

import (
	"maps"
	"slices"
	"time"
)

// times are how often a start took how long, to three digits.
type times map[time.Duration]int

func (t times) add(d time.Duration) {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	t[d.Round(unit)]++
}

func (t times) merge(others times) {
	for d, n := range others {
		t[d] += n
	}
}

func (t times) count() (all int) {
	for _, n := range t {
		all += n
	}
	return all
}

// quantile returns the time that a share of all does not exceed.
func (t times) quantile(share float64) (d time.Duration) {
	left := int(share * float64(t.count()-1))
	for _, d = range slices.Sorted(maps.Keys(t)) {
		left -= t[d]
		if left < 0 {
			break
		}
	}
	return d
}
