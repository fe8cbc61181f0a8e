// Package shares says what operators are told of the shares of a budget: by name of those that wait most, and together of all others.
package shares

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// Most is how many shares are told by name.
const Most = 16

// The names of what is not one share of callers.
const (
	None   = "none"   // callers without a share
	Common = "common" // shares beyond those that a budget tells apart
	Other  = "other"  // shares beyond Most
)

// A Line is what is told of a share, or of all others together.
type Line struct {
	Name    string
	Weight  int // of all others 0
	Waiting int
	Served  int // -1: the store does not know
	Shares  int // how many are told together; 0: one share
}

// Name returns how a share is shown. The names that programs give shares are hashed.
func Name(id uint64) string {
	switch id {
	case 0:
		return None
	case 1:
		return Common
	}
	return fmt.Sprintf("%014x", id)
}

// Lines returns what is told of shares: those that wait most come first, then those that were served most, and all beyond Most are one
// line. It returns nil if there are none.
func Lines(all []store.ShareStatus) (lines []Line) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b store.ShareStatus) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Served, a.Served), cmp.Compare(a.ID, b.ID))
	})

	for _, s := range all[:min(len(all), Most)] {
		lines = append(lines, Line{Name: Name(s.ID), Weight: max(1, s.Weight), Waiting: s.Waiting, Served: s.Served})
	}

	if len(all) <= Most {
		return lines
	}

	rest := Line{Name: Other, Shares: len(all) - Most}
	for _, s := range all[Most:] {
		rest.Waiting, rest.Served = rest.Waiting+s.Waiting, addServed(rest.Served, s.Served)
	}

	return append(lines, rest)
}

// Add adds what other budgets tell of shares, which may be the same.
func Add(all, more []store.ShareStatus) []store.ShareStatus {
	for _, s := range more {
		i := slices.IndexFunc(all, func(o store.ShareStatus) bool { return o.ID == s.ID })
		if i < 0 {
			all = append(all, s)
			continue
		}
		all[i].Waiting, all[i].Served = all[i].Waiting+s.Waiting, addServed(all[i].Served, s.Served)
	}
	return all
}

// addServed adds what was served; a part that is not known makes the sum unknown.
func addServed(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}
