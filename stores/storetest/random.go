package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

const (
	randomSeeds = 25
	randomOps   = 500

	// chapter is after how many operations the whole history is counted and
	// the far past is forgotten.
	chapter = 500

	// deepest is how many different starts may matter to one budget where
	// answers are compared exactly.
	deepest = 120

	// memory is longer than any window of a random limit.
	memory = 2 * 24 * time.Hour

	// maxGrants is how many grants are remembered to be given back.
	maxGrants = 40
)

// A mood says which operations a random run tries, and with it how much can be compared.
type mood int

const (
	exact     mood = iota // limits that stay and are so small that no store joins starts: every answer is compared
	spreading             // starts that may be used later, and large limits: the rule is checked
	changing              // limits that change: the rule is checked
)

// moodOf returns the mood of a seed. Three of five seeds have the exact mood.
func moodOf(seed uint64) mood {
	return []mood{exact, exact, spreading, exact, changing}[seed%5]
}

// randomChecks are the random runs that belong to the contract.
func randomChecks() []check {
	return slices.Concat(
		seeded("P1_Random", randomSeeds, func(b *bench, seed uint64) { random(b, seed, randomOps) }),
		seeded("P1_RandomWindows", randomSeeds, func(b *bench, seed uint64) { randomOdd(b, seed, randomOps) }),
		seeded("P1_RandomInFlight", randomSeeds, func(b *bench, seed uint64) { randomInFlight(b, seed, randomOps) }),
	)
}

// seeded returns a check for each of some seeds.
func seeded(name string, seeds int, run func(b *bench, seed uint64)) (all []check) {
	for seed := range uint64(seeds) {
		all = append(all, check{fmt.Sprint(name, seed), func(b *bench) {
			b.Helper()
			run(b, seed)
		}})
	}
	return all
}

// random runs some operations, chosen by the seed, on the store.
func random(b *bench, seed uint64, ops int) {
	b.Helper()
	operate(newWorld(b, seed, moodOf(seed), false), ops)
}

// randomOdd is random for windows with fixed edges that divide no second.
func randomOdd(b *bench, seed uint64, ops int) {
	b.Helper()
	operate(newWorld(b, seed, moodOf(seed), true), ops)
}

// operate does some operations, and counts the history after each chapter and in the end.
func operate(w *world, ops int) {
	w.Helper()
	for w.op = range ops {
		w.step()
		if w.op%chapter == chapter-1 || w.op == ops-1 {
			w.count()
			w.truth.forget(w.clock() - micros(memory))
		}
	}
}

// Dice choose what happens in a random run.
type dice struct {
	*bench
	rng  *rand.Rand
	seed uint64
	op   int // the number of the present operation
}

// newDice returns the dice of a run. Each kind of run has a number of its own, so that runs with the same seed differ.
func newDice(b *bench, seed, kind uint64) dice {
	return dice{bench: b, seed: seed, rng: rand.New(rand.NewPCG(seed, kind))}
}

// chance is true in the given number of a hundred cases.
func (d *dice) chance(percent int) bool { return d.rng.IntN(100) < percent }

// clock is the store's time in microseconds.
func (d *dice) clock() int64 { return time.Now().UnixMicro() }

// failf ends the run and says how to repeat it.
func (d *dice) failf(format string, args ...any) {
	d.Helper()
	d.fatalf("seed %d, operation %d, at %v: "+format, append([]any{d.seed, d.op, d.now()}, args...)...)
}

// A world is a store under random use, and the truth about it: the starts that were really
// granted, whether or not it should have been.
type world struct {
	dice
	mood    mood
	settles bool // costs are known only later
	odd     bool // all limits are windows with fixed edges that divide no second
	truth   *ledger
	budgets []store.Charge    // with the limits that hold now
	grants  []granted         // the latest starts
	above   map[[16]byte]bool // budgets that may hold more than their limit: a start turned out to cost more, or an upstream told of starts of others
}

// granted is a start that can be given back.
type granted struct {
	booking store.Booking
	grant   store.Grant
	at      int64 // of the start, in microseconds since the Unix epoch
}

// newWorld returns a world with four random budgets, of which the last may be a shadow.
func newWorld(b *bench, seed uint64, m mood, odd bool) *world {
	w := &world{
		dice: newDice(b, seed, 1), mood: m, odd: odd, truth: newLedger(), above: make(map[[16]byte]bool),
	}
	w.settles = w.chance(50)

	for i := range 4 {
		c := charge(fmt.Sprint("budget ", i), store.Limit{})
		c.Limit, c.Jitter = w.limit()

		// Shadow starts may overlap on a pace, and a store that joins their
		// blocks may report a longer wait than there is. How far they
		// overdraw a bucket, a store need not remember for long.
		k := c.Limit.Kind()
		c.Shadow = i == 3 && k != store.KindLeakyBucket && k != store.KindTokenBucket && w.chance(30)
		if !c.Shadow && w.chance(40) {
			c.Pace = time.Duration(w.rng.IntN(20000)) * tick
		}

		w.budgets = append(w.budgets, c)
	}

	return w
}

// step does one random operation.
func (w *world) step() {
	w.Helper()

	// Bookings are the most frequent. Some operations are possible in some moods only.
	switch r := w.rng.IntN(100); {
	case r < 55:
		w.try(w.booking())
	case r < 61:
		w.replace()
	case r < 73:
		w.cancel()
	case r < 77:
		w.close()
	case r < 82:
		w.look()
	case r < 85 && w.mood == changing:
		c := &w.budgets[w.rng.IntN(len(w.budgets))]
		w.change(c)
	case r < 89 && w.settles:
		w.settleOne()
	case r < 92 && w.mood == exact:
		w.stateQuota()
	default:
		w.advance()
	}
}

// change gives the budget a new random limit, and books under it. The truth forgets what a store need not know then: starts from
// before the budget was idle, since idle budgets are forgotten; a penalty that no longer counts; and, for a leaky bucket
// or a token bucket, all starts under a former limit.
func (w *world) change(c *store.Charge) {
	stays := w.truth.stays[c.Budget.Key]
	slices.SortFunc(stays, func(a, b stay) int { return cmp.Compare(a.at, b.at) })

	// Find the first start after the budget was idle. If it is idle now, there is none.
	first, busyUntil := 0, int64(0)
	for i, s := range stays {
		if s.at > busyUntil {
			first = i
		}
		busyUntil = max(busyUntil, over(*c, s))
	}

	if busyUntil <= w.clock() {
		first = len(stays)
	}

	// A store may have forgotten a penalty that no longer counts.
	if !w.slow(*c) {
		delete(w.truth.closed, c.Budget.Key)
		delete(w.truth.bans, c.Budget.Key)
	}

	c.Limit, c.Jitter = w.limit()
	if k := c.Limit.Kind(); k == store.KindLeakyBucket || k == store.KindTokenBucket {
		first = len(stays)
	}

	w.truth.stays[c.Budget.Key] = stays[first:]

	// A store hears of a limit when somebody asks under it.
	w.try(store.Booking{Charges: []store.Charge{*c}})
}

// slow reports whether a penalty of the budget still counts.
func (w *world) slow(c store.Charge) bool {
	q := w.truth.ask(c, store.Booking{}, w.clock())
	return max(q.closed, q.ramp.end, w.truth.penalty(c.Budget.Key).forgotten()) > w.clock()
}

// try books, and compares the answer as the mood says. It remembers a start that is granted.
func (w *world) try(k store.Booking) {
	w.Helper()
	w.keepShallow(k)
	now := w.clock()
	want := w.truth.earliest(k, now)
	k, g := w.book(k)
	at := now + micros(g.Wait)

	if w.mood == exact {
		w.checkExact(k, g, now, want)
	} else {
		w.checkLawful(k, g, now)
	}

	if g.OK {
		w.truth.add(k, at)
		w.grants = append(w.grants, granted{k, g, at})
		w.grants = w.grants[max(0, len(w.grants)-maxGrants):]
	}
}

// replace books again with Instead, as a caller whose start was not used, or cancels a start from before a change.
func (w *world) replace() {
	w.Helper()
	if old, ok := w.take(); ok {
		w.remove(old)
		k := old.booking
		if !w.current(k) {
			w.store.Cancel(&k, old.grant) // Instead needs the charges of the first booking
			return
		}
		k.Instead, k.MaxWait = old.grant.Handle, w.maxWait(k)
		w.try(k)
	}
}

// current reports whether the booking's limits still hold.
func (w *world) current(k store.Booking) bool {
	for _, c := range k.Charges {
		for _, b := range w.budgets {
			if b.Budget == c.Budget && b.Limit.String() != c.Limit.String() {
				return false
			}
		}
	}
	return true
}

// cancel gives back one of the latest starts, past or to come.
func (w *world) cancel() {
	if old, ok := w.take(); ok {
		w.remove(old)
		w.store.Cancel(&old.booking, old.grant)
	}
}

// remove takes a start out of the truth. Where limits change a store may still
// know of a start that no longer counts.
func (w *world) remove(old granted) {
	now := w.clock()
	if w.mood == changing {
		now = 0
	}
	w.truth.remove(old.booking, old.at, now)
}

// take forgets one of the latest grants, and returns it. It returns false if there is none.
func (w *world) take() (granted, bool) { return takeOne(w.rng, &w.grants) }

// close pauses a budget, or has an upstream refuse, often for less than the window of
// the budget, and sometimes for no time at all. It may sleep until the budget's last penalty is over.
func (w *world) close() {
	w.Helper()
	longest := []time.Duration{0, 100 * ms, 2 * sec, 2 * sec, 5 * sec}[w.rng.IntN(5)]
	c, d := w.budgets[w.rng.IntN(len(w.budgets))], w.duration(longest)
	sentAgo := time.Duration(0) // how long ago the refused request was sent, or 0 for a pause
	if w.chance(60) {
		sentAgo = tick + w.duration(longest)
	}

	// In 40 of 100 cases refuse. If the last penalty is not over, refuse at its end or 1 µs later: the refusal may meet the
	// penalty again, and the next penalty is longer then.
	if w.chance(40) {
		w.sleepUntil(w.truth.closed[c.Budget.Key] + int64(w.rng.IntN(2)))
		sentAgo = tick + w.duration(50*ms)
	}

	// Close the budget in the store and in the truth: the next bookings compare the two.
	if sentAgo > 0 {
		w.denied(c, d, sentAgo)
	} else {
		w.pause(c, d)
	}

	w.truth.shut(c, w.clock(), d, sentAgo)
}
