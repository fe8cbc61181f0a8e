// Package storetest is the contract that every [store.Store] must pass. It
// runs in virtual time, so every answer is compared exactly. Only the standard
// library is used: authors of other stores inherit nothing. Most of it is lines
// of text, which implementations in other languages can run, too: see
// vectors/README.md. The rest is random runs, compared with the definition.
//
//	func TestContract(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return mystore.New() })
//	}
package storetest

import (
	"regexp"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fleetthrottle/throttle/store"
)

// Run checks the store against every promise that a store can keep by itself;
// the names of the subtests begin with the number of the promise. Each check
// calls newStore inside its own testing/synctest bubble, with the bubble's t.
// The store must be empty and must read the bubble's clock.
func Run(t *testing.T, newStore func(*testing.T) store.Store) { RunWithin(t, Slack{}, newStore) }

// RunWithin is Run for a store whose lines are not exactly the lines of the perfect queue.
func RunWithin(t *testing.T, slack Slack, newStore func(*testing.T) store.Store) {
	if _, err := vectors(); err != nil {
		t.Fatalf("mistakes in stores/storetest/vectors:\n%v", err)
	}

	for _, c := range contract() {
		if slices.Contains(slack.Not, c.name) {
			t.Logf("%s is not run: the store does not pass it yet", c.name)
			continue
		}

		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && (c.isLong() || slack.Far && manyCalls.MatchString(c.name)) {
				t.Skip("takes long: not with -short")
			}

			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, newStore(t), c.name)
				b.slack = slack
				c.run(b)
			})
		})
	}
}

// Random runs as many random operations on a store and compares every answer
// with the definition of the limits, applied by brute force to the full
// history; and then as many on a second store about requests in flight. A failure
// names the seed. Run includes some seeds of it.
func Random(t *testing.T, newStore func(*testing.T) store.Store, seed uint64, ops int) {
	synctest.Test(t, func(t *testing.T) {
		random(newBench(t, newStore(t), "P1_Random"), seed, ops)
	})
	synctest.Test(t, func(t *testing.T) {
		randomInFlight(newBench(t, newStore(t), "P1_RandomInFlight"), seed, ops)
	})
}

// RandomWindows is Random for windows with fixed edges that divide no second. Run includes
// some seeds of it.
func RandomWindows(t *testing.T, newStore func(*testing.T) store.Store, seed uint64, ops int) {
	synctest.Test(t, func(t *testing.T) {
		randomOdd(newBench(t, newStore(t), "P1_RandomWindows"), seed, ops)
	})
}

// laterSeed are the random runs except five of each kind: one of each mood.
var laterSeed = regexp.MustCompile(`^P\d+_Random\D*([5-9]|\d\d)$`)

// manyCalls are checks of hundreds of calls.
var manyCalls = regexp.MustCompile(`_Line|_Random|^P11_PenaltyMetAgain|^P11_Probe.*Answers|_CeilingIsForgotten|_CancelledWaiters|_SlowStartAfterASecond|_SpreadsOverlap`)

// isLong reports whether a check takes seconds on a store that is not in memory.
func (c check) isLong() bool {
	return slices.ContainsFunc(vectorsOf("large"), func(l check) bool { return l.name == c.name }) ||
		slices.Contains([]string{"P5_LineOfCalendar", "P5_LineOfCostsCalendar", "P7_LineThousandLeave"}, c.name) ||
		laterSeed.MatchString(c.name)
}

// contract lists every check.
func contract() []check {
	var all []check
	for _, file := range []string{
		"windows", "buckets", "bookings", "changes", "penalties", "ceilings", "watches", "quotas", "flights", "large", "lines",
	} {
		all = append(all, vectorsOf(file)...)
	}
	return slices.Concat(all, placeChecks(), randomLineChecks(), randomChecks(), adaptiveRandomChecks(), toldChecks())
}
