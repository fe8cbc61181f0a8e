package storetest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// The oracle tries everything, which takes too long where a check is about
// thousands of starts, and it books every start at once. Those checks, and the ones
// about lines, are seen passing with memstore.
func TestOraclePassesTheContract(t *testing.T) {
	soak.WithoutRace(t)
	for _, c := range without(slices.Concat(vectorsOf("large"), vectorsOf("lines"), randomLineChecks(), toldChecks())) {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(newBench(t, newOracle(), c.name)) })
		})
	}
}

// The checks of thousands of starts, which the oracle leaves out.
func TestMemstorePassesTheLargeChecks(t *testing.T) {
	soak.WithoutRace(t)
	for _, c := range vectorsOf("large") {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(newBench(t, memstore.New(), c.name)) })
		})
	}
}

// Stores in memory run all seeds with -short too: two of them failed for long, unseen.
func TestMemstorePassesEverySeedOfAdaptive(t *testing.T) {
	soak.WithoutRace(t)
	for _, c := range slices.Concat(adaptiveRandomChecks(), toldChecks()) {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(newBench(t, memstore.New(), c.name)) })
		})
	}
}

// A store may join starts of a limit above 128 (docs/internals/booking.md): what it then answers
// cannot be compared with the definition.
func TestLimitsThatAreComparedExactlyAreSmall(t *testing.T) {
	for seed := range uint64(1000) {
		worlds := []*world{newAdaptiveWorld(nil, seed)}
		if moodOf(seed) == exact {
			worlds = append(worlds, newWorld(nil, seed, exact, false))
		}
		for _, w := range worlds {
			require.Equal(t, exact, w.mood)
			for _, c := range w.budgets {
				require.LessOrEqual(t, c.Limit.N(), deepest, "seed %d: %s", seed, sentence(c))
			}
		}
	}
}

func TestOraclePassesARandomRun(t *testing.T) {
	soak.WithoutRace(t)
	Random(t, func(*testing.T) store.Store { return newOracle() }, 100, 2000)
}

// Each check has a name of its own, which begins with a known promise.
func TestChecksAreNamedForAPromise(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range contract() {
		require.NotContains(t, newBench(t, nil, c.name).promise, "()", c.name)
		require.False(t, seen[c.name], "%s twice", c.name)
		seen[c.name] = true
	}
}

func mutants() []mutant {
	return slices.Concat(bookingMutants, bucketMutants, settleMutants, inFlightMutants, reconcileMutants, otherMutants, probeMutants, rampMutants, penaltyMutants, unlimitedMutants, adaptiveMutants, watchMutants)
}

// Of each mutant, a check that is named for the broken promise fails.
func TestEveryMutantIsCaughtByName(t *testing.T) {
	soak.WithoutRace(t)
	named := without(slices.Concat(vectorsOf("large"), vectorsOf("lines"), randomLineChecks(), randomChecks(), adaptiveRandomChecks(), toldChecks()))
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			require.True(t, caught(t, named, m.prefix, m.store), "no check %s… failed", m.prefix)
		})
	}
}

// Of each mutant that random runs can see, a random run fails.
func TestEveryMutantIsCaughtAtRandom(t *testing.T) {
	soak.WithoutRace(t)
	for _, m := range mutants() {
		if m.blind != "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			require.True(t, caught(t, randomChecks(), "P1_Random", m.store))
		})
	}
}

// A store whose clock stands still fails.
func TestAStoppedClockIsCaught(t *testing.T) {
	stopped := func() store.Store {
		o, now := newOracle(), time.Now().UnixMicro()
		o.clock = func() int64 { return now }
		return o
	}
	require.True(t, caught(t, vectorsOf("windows"), "P1", stopped))
	require.True(t, caught(t, randomChecks(), "P1", stopped))
}

// store makes a fresh store with the mutant's fault.
func (m mutant) store() store.Store {
	s := m.broken
	s.oracle = newOracle()
	return s
}

// Stores that are wrong about thousands of starts fail.
func TestLargeMutantsAreCaught(t *testing.T) {
	soak.WithoutRace(t)
	more := func(c *store.Charge) { c.Limit = resized(c.Limit, c.Limit.N()+1, c.Limit.Per()) }
	tooSoon := func(c *store.Charge) { c.Limit = resized(c.Limit, c.Limit.N(), c.Limit.Per()*98/100) }
	hoard := brokenBy(brokenLine{cancel: func(store.Store, *store.Booking, store.Grant) {}})
	tooLate := func(c *store.Charge) { c.Limit = resized(c.Limit, c.Limit.N(), c.Limit.Per()*102/100) }
	for _, m := range []struct {
		name   string
		prefix string
		store  func() store.Store
	}{
		{"one too many in a burst", "P1_LargeBurst", misleading(more)},
		{"one too many in a queue", "P1_LongQueueAtOnce", misleading(more)},
		{"one too many in a window", "P1_LargeFixed", misleading(more)},
		{"one too many in a bucket", "P1_LargeBucket", misleading(func(c *store.Charge) {
			c.Limit = store.TokenBucket(c.Limit.N(), c.Limit.Per(), c.Limit.Capacity()+1)
		})},
		{"too late in a queue for a bucket", "P1_LongQueueForABucket", misleading(tooLate)},
		{"too soon", "P1_LargeLimitEvenly", misleading(tooSoon)},
		{"too soon in a queue", "P1_LongQueue", misleading(tooSoon)},
		{"too late", "P1_LargeLimitEvenly", misleading(tooLate)},
		{"too late in a queue", "P1_LongQueue", misleading(tooLate)},
		{"too late in bursts", "P3_SteadyDemandInBursts", misleading(tooLate)},
		{"too late for a small limit", "P3_SteadyDemandSmall", misleading(tooLate)},
		{"too late for steady demand", "P3_SteadyDemand", misleading(tooLate)},
		{"places kept in a queue", "P7_CancelledWaitersInALongQueue", hoard},
		{"places kept of a large limit", "P7_CancelledWaitersOfALarge", hoard},
	} {
		t.Run(m.name, func(t *testing.T) {
			require.True(t, caught(t, vectorsOf("large"), m.prefix, m.store))
		})
	}
}

// misleading keeps another limit than it was asked to.
func misleading(change func(*store.Charge)) func() store.Store {
	return wanting(func(b *store.Booking) {
		b.Charges = slices.Clone(b.Charges)
		for i := range b.Charges {
			change(&b.Charges[i])
		}
	})
}
