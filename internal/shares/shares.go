// Package shares makes the lines about a budget's shares that operators read: a line for each of the shares that wait
// most, and one line for the rest.
package shares

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// Most is how many shares have a line of their own.
const Most = 16

// The names of lines that are not one share.
const (
	None   = "none"   // callers without a share
	Common = "common" // callers of shares that a budget does not tell apart
	Other  = "other"  // shares beyond Most
)

// A Line is the state of one share, or of all shares beyond Most together.
type Line struct {
	Name    string
	Weight  int // 0 for the line Other
	Waiting int
	Served  int // -1 if the store does not know
	Shares  int // the number of shares in the line Other, or 0
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

// Lines returns a line for each share. The share with the highest Waiting comes first and, of
// shares with equal Waiting, the share with the highest Served. All shares beyond the first Most
// are one line, Other, which comes last. Lines returns nil without shares.
func Lines(all []store.ShareStatus) (lines []Line) {
	// The slice is the caller's, so sort a copy.
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b store.ShareStatus) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Served, a.Served), cmp.Compare(a.ID, b.ID))
	})

	// A weight of 0 means 1.
	for _, s := range all[:min(len(all), Most)] {
		lines = append(lines, Line{Name: Name(s.ID), Weight: max(1, s.Weight), Waiting: s.Waiting, Served: s.Served})
	}

	if len(all) <= Most {
		return lines
	}

	// The last line sums up the rest.
	rest := Line{Name: Other, Shares: len(all) - Most}
	for _, s := range all[Most:] {
		rest.Waiting, rest.Served = rest.Waiting+s.Waiting, addServed(rest.Served, s.Served)
	}

	return append(lines, rest)
}

// Add adds the shares of one more budget to sum, which it may change, and returns the result. A share that is in sum already is added
// up there, and keeps its weight in sum.
func Add(sum, added []store.ShareStatus) []store.ShareStatus {
	for _, s := range added {
		i := slices.IndexFunc(sum, func(o store.ShareStatus) bool { return o.ID == s.ID })
		if i < 0 {
			sum = append(sum, s)
			continue
		}

		sum[i].Waiting, sum[i].Served = sum[i].Waiting+s.Waiting, addServed(sum[i].Served, s.Served)
	}
	return sum
}

// addServed adds the costs that two shares were served. A negative number stands for an unknown cost, and makes the sum unknown.
func addServed(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}
