package node

import (
	"cmp"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
)

// The limits that are explored: one start at a time is free, or two.
var (
	lineModelOne = store.SlidingWindow(1, time.Second)
	lineModelTwo = store.SlidingWindow(2, time.Second)
)

// lineModelLarge is for the larger bounds of docs/internals/model.md, which the race detector would make too long.
var lineModelLarge = flag.Bool("large", false, "explore the model of a line in larger bounds")

// lineModelPlans are nodes whose callers are alike.
func lineModelPlans(callers ...int) (all []lineModelPlan) {
	for _, n := range callers {
		all = append(all, lineModelPlan{n, 1, store.PriorityNormal})
	}
	return all
}

// A lineModelFleet is some nodes.
type lineModelFleet struct {
	name  string
	nodes []lineModelPlan
}

// lineModelScopes returns what is explored.
func lineModelScopes() (all []lineModelScope) {
	three, four, five := lineModelFleet{"three", lineModelPlans(1, 1, 1)}, lineModelFleet{"four", lineModelPlans(2, 1, 1)}, lineModelFleet{"five", lineModelPlans(2, 2, 1)}
	high := lineModelFleet{"high", append(lineModelPlans(1, 1), lineModelPlan{1, 1, store.PriorityHigh})}
	costly := lineModelFleet{"costly", append(lineModelPlans(1, 1), lineModelPlan{1, 2, store.PriorityNormal})}
	const late = 400 * time.Millisecond
	for _, s := range []struct {
		size  int
		limit store.Limit
		fleet lineModelFleet
		late  time.Duration
		lineModelChances
	}{
		{0, lineModelOne, four, 0, lineModelChances{}},
		{0, lineModelOne, three, late, lineModelChances{deaths: 2, lost: 1}},
		{0, lineModelOne, three, 0, lineModelChances{leaves: 1, lost: 1}},
		{0, lineModelOne, three, 0, lineModelChances{unheard: 1, deaths: 1}},
		{0, lineModelOne, three, 0, lineModelChances{sleeps: 1, lost: 1}},
		{0, lineModelOne, four, 0, lineModelChances{deaths: 1}},
		{0, lineModelOne, high, late, lineModelChances{deaths: 1}},
		{0, lineModelTwo, costly, 0, lineModelChances{deaths: 1, lost: 1}},

		{2, lineModelOne, three, 0, lineModelChances{deaths: 1, leaves: 1, lost: 1, sleeps: 1}},
		{1, lineModelOne, three, 2 * late, lineModelChances{deaths: 1, unheard: 1, lost: 1}},
		{1, lineModelOne, three, 2 * late, lineModelChances{leaves: 1, lost: 1}},
		{1, lineModelOne, four, 0, lineModelChances{deaths: 2, lost: 1}},
		{1, lineModelOne, four, 0, lineModelChances{sleeps: 1}},
		{2, lineModelOne, four, 0, lineModelChances{leaves: 1}},
		{2, lineModelOne, five, 0, lineModelChances{deaths: 1}},
		{2, lineModelOne, high, late, lineModelChances{leaves: 1, deaths: 1}},
		{2, lineModelTwo, costly, 0, lineModelChances{leaves: 1, deaths: 1, lost: 1}},
		{2, lineModelTwo, five, 0, lineModelChances{deaths: 1}},
	} {
		if s.size > soak.Most(1, 0) && !*lineModelLarge {
			continue
		}
		name := fmt.Sprintf("%s, %d a second, %v, %v", s.fleet.name, s.limit.N(), s.late, s.lineModelChances)
		all = append(all, lineModelScope{name, s.limit, s.fleet.nodes, s.lineModelChances, s.late})
	}
	return all
}

func (c lineModelChances) String() string {
	s := ""
	for _, kind := range []struct {
		name string
		n    int
	}{{"deaths", c.deaths}, {"leaves", c.leaves}, {"lost", c.lost}, {"unheard", c.unheard}, {"sleeps", c.sleeps}} {
		if kind.n > 0 {
			s += fmt.Sprint(" ", kind.name, " ", kind.n)
		}
	}
	return strings.TrimSpace(cmp.Or(s, "no trouble"))
}
