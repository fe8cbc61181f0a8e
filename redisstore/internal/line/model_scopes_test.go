package line

import (
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
)

// The limits that are explored: one start at a time is free, or two.
var (
	modelOne = throttle.SlidingWindow(1, time.Second)
	modelTwo = throttle.SlidingWindow(2, time.Second)
)

// modelPlans are nodes whose callers are alike.
func modelPlans(callers ...int) (all []modelPlan) {
	for _, n := range callers {
		all = append(all, modelPlan{n, 1, throttle.Normal})
	}
	return all
}

// modelScopes returns what is explored.
func modelScopes() (all []modelScope) {
	three, four, five := modelPlans(1, 1, 1), modelPlans(2, 1, 1), modelPlans(2, 2, 1)
	high := append(modelPlans(1, 1), modelPlan{1, 1, throttle.High})
	costly := append(modelPlans(1, 1), modelPlan{1, 2, throttle.Normal})
	const late = 400 * time.Millisecond
	for _, s := range []struct {
		long  bool
		limit throttle.Limit
		nodes []modelPlan
		late  time.Duration
		modelChances
	}{
		{false, modelOne, four, 0, modelChances{}},
		{false, modelOne, three, late, modelChances{deaths: 2, lost: 1}},
		{false, modelOne, three, late, modelChances{leaves: 1, lost: 1}},
		{false, modelOne, three, 0, modelChances{unheard: 1, deaths: 1}},
		{false, modelOne, three, 0, modelChances{sleeps: 1, lost: 1}},
		{false, modelOne, four, 0, modelChances{deaths: 1}},
		{false, modelOne, high, late, modelChances{deaths: 1}},
		{false, modelTwo, costly, 0, modelChances{deaths: 1, lost: 1}},

		{true, modelTwo, costly, 0, modelChances{leaves: 1}},
		{true, modelOne, three, 0, modelChances{deaths: 1, leaves: 1, lost: 1, sleeps: 1}},
		{true, modelOne, three, 2 * late, modelChances{deaths: 1, unheard: 1, lost: 1}},
		{true, modelOne, four, 0, modelChances{leaves: 1, lost: 1}},
		{true, modelOne, four, 0, modelChances{sleeps: 1, deaths: 1}},
		{true, modelOne, five, 0, modelChances{deaths: 2}},
		{true, modelOne, high, late, modelChances{leaves: 1, deaths: 1}},
		{true, modelTwo, costly, late, modelChances{leaves: 1, deaths: 1, lost: 1}},
		{true, modelTwo, five, 0, modelChances{deaths: 1}},
	} {
		if s.long && soak.Most(false, true) {
			continue
		}
		name := fmt.Sprintf("%v %v %v %+v", s.limit, s.nodes, s.late, s.modelChances)
		all = append(all, modelScope{name, s.limit, s.nodes, s.modelChances, s.late})
	}
	return all
}
