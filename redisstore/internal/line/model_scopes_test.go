package line

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
	modelOne = store.SlidingWindow(1, time.Second)
	modelTwo = store.SlidingWindow(2, time.Second)
)

// modelLarge is for the larger bounds of docs/internals/model.md, which the race detector would make too long.
var modelLarge = flag.Bool("large", false, "explore the model of a line in larger bounds")

// modelPlans are nodes whose callers are alike.
func modelPlans(callers ...int) (all []modelPlan) {
	for _, n := range callers {
		all = append(all, modelPlan{n, 1, store.PriorityNormal})
	}
	return all
}

// A modelFleet is some nodes.
type modelFleet struct {
	name  string
	nodes []modelPlan
}

// modelScopes returns what is explored.
func modelScopes() (all []modelScope) {
	three, four, five := modelFleet{"three", modelPlans(1, 1, 1)}, modelFleet{"four", modelPlans(2, 1, 1)}, modelFleet{"five", modelPlans(2, 2, 1)}
	high := modelFleet{"high", append(modelPlans(1, 1), modelPlan{1, 1, store.PriorityHigh})}
	costly := modelFleet{"costly", append(modelPlans(1, 1), modelPlan{1, 2, store.PriorityNormal})}
	const late = 400 * time.Millisecond
	for _, s := range []struct {
		size  int
		limit store.Limit
		fleet modelFleet
		late  time.Duration
		modelChances
	}{
		{0, modelOne, four, 0, modelChances{}},
		{0, modelOne, three, late, modelChances{deaths: 2, lost: 1}},
		{0, modelOne, three, 0, modelChances{leaves: 1, lost: 1}},
		{0, modelOne, three, 0, modelChances{unheard: 1, deaths: 1}},
		{0, modelOne, three, 0, modelChances{sleeps: 1, lost: 1}},
		{0, modelOne, four, 0, modelChances{deaths: 1}},
		{0, modelOne, high, late, modelChances{deaths: 1}},
		{0, modelTwo, costly, 0, modelChances{deaths: 1, lost: 1}},

		{2, modelOne, three, 0, modelChances{deaths: 1, leaves: 1, lost: 1, sleeps: 1}},
		{1, modelOne, three, 2 * late, modelChances{deaths: 1, unheard: 1, lost: 1}},
		{1, modelOne, three, 2 * late, modelChances{leaves: 1, lost: 1}},
		{1, modelOne, four, 0, modelChances{deaths: 2, lost: 1}},
		{1, modelOne, four, 0, modelChances{sleeps: 1}},
		{2, modelOne, four, 0, modelChances{leaves: 1}},
		{2, modelOne, five, 0, modelChances{deaths: 1}},
		{2, modelOne, high, late, modelChances{leaves: 1, deaths: 1}},
		{2, modelTwo, costly, 0, modelChances{leaves: 1, deaths: 1, lost: 1}},
		{2, modelTwo, five, 0, modelChances{deaths: 1}},
	} {
		if s.size > soak.Most(1, 0) && !*modelLarge {
			continue
		}
		name := fmt.Sprintf("%s, %d a second, %v, %v", s.fleet.name, s.limit.N(), s.late, s.modelChances)
		all = append(all, modelScope{name, s.limit, s.fleet.nodes, s.modelChances, s.late})
	}
	return all
}

func (c modelChances) String() string {
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
