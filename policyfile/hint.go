package policyfile

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/agnivade/levenshtein"
)

// didYouMean returns a hint if one of the names is near to what was written.
func didYouMean(written string, names []string) string {
	near := slices.Clone(names)
	distance := func(name string) int {
		return levenshtein.ComputeDistance(strings.ToLower(written), strings.ToLower(name))
	}
	sort.SliceStable(near, func(i, j int) bool { return distance(near[i]) < distance(near[j]) })
	if len(near) == 0 || distance(near[0]) > max(1, (len(near[0])+1)/3) {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", near[0])
}
