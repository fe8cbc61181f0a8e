package waits

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// A visit is one request of a scenario. Its times count from the scenario's
// begin.
type visit struct {
	came    time.Duration
	maxWait time.Duration // it leaves after this wait, or never if 0
	says    bool          // the limiter knows how long that is
	start   time.Duration // never: it did not start
	api     int           // which of several it asks for
	more    int           // its cost above 1
	err     error         // why it did not start
}

// never is the start of a visit that did not start.
const never = time.Duration(-1)

func (v *visit) started() bool { return v.start != never }

func (v *visit) cost() int { return 1 + v.more }

func (v *visit) waited() time.Duration { return v.start - v.came }

// arriving returns n visits at a distance.
func arriving(n int, every time.Duration) []visit {
	all := make([]visit, n)
	for i := range all {
		all[i] = visit{came: time.Duration(i) * every, start: never}
	}
	return all
}

// crowd returns n visits that come at the begin. A microsecond lies between two of
// them, so that their order is known.
func crowd(n int) []visit { return arriving(n, time.Microsecond) }

// rushed is crowd for real time, which would let a longer moment pass: they come in
// any order.
func rushed(n int) []visit { return arriving(n, 0) }

// poisson returns visits that come at random, at a rate, between two
// times.
func poisson(perSecond float64, from, to time.Duration, dice *rand.Rand) (all []visit) {
	at := from
	for {
		at += time.Duration(dice.ExpFloat64() / perSecond * float64(time.Second))
		if at >= to {
			return all
		}
		all = append(all, visit{came: at, start: never})
	}
}

// dice returns random numbers that are the same in every run.
func dice(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 11)) }

// join returns all visits by arrival.
func join(parts ...[]visit) []visit {
	all := slices.Concat(parts...)
	slices.SortStableFunc(all, func(a, b visit) int { return cmp.Compare(a.came, b.came) })
	return all
}

// only returns the visits that started and for which keep is true.
func only(visits []visit, keep func(*visit) bool) (some []visit) {
	for i := range visits {
		if v := &visits[i]; v.started() && keep(v) {
			some = append(some, *v)
		}
	}
	return some
}

func all(*visit) bool { return true }
