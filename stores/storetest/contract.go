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
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Run checks the store against every promise that a store can keep by itself;
// the names of the subtests begin with the number of the promise. Each check
// calls newStore inside its own testing/synctest bubble, with the bubble's t.
// The store must be empty and must read the bubble's clock.
func Run(t *testing.T, newStore func(*testing.T) store.Store) { RunWithin(t, Slack{}, newStore) }

// RunWithin is Run for a store that may differ from the contract by a slack. It does not run the checks that slack.Not names.
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
			takesLong := c.isLong() || slack.Far && manyCalls.MatchString(c.name)
			if takesLong && testing.Short() {
				t.Skip("takes long: not with -short")
			}

			// Each case has a clock of its own, which stands still while anybody works.
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, newStore(t), c.name)
				b.slack = slack
				c.run(b)
			})
		})
	}
}

// Random runs a number of random operations on a store and compares every
// answer with the definition of the limits, applied by brute force to the full
// history. Then it runs as many operations about requests in flight on a second
// store. A failure names the seed. Run includes some seeds of it.
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

// laterSeed matches the names of the random runs, except the first five of each kind: these five have every mood.
var laterSeed = regexp.MustCompile(`^P\d+_Random\D*([5-9]|\d\d)$`)

// manyCalls matches the names of checks that make hundreds of calls.
var manyCalls = regexp.MustCompile(`_Line|_Random|^P11_PenaltyMetAgain|^P11_Probe.*Answers|_CeilingIsForgotten|_CancelledWaiters|_SlowStartAfterASecond|_SpreadsOverlap`)

// isLong reports whether a check takes seconds on a store that is not in memory.
func (c check) isLong() bool {
	return slices.ContainsFunc(vectorsOf("large"), func(l check) bool { return l.name == c.name }) ||
		slices.Contains([]string{"P5_LineOfCalendar", "P5_LineOfCostsCalendar", "P7_LineThousandLeave"}, c.name) ||
		laterSeed.MatchString(c.name)
}

// contract returns every check.
func contract() []check {
	var all []check
	for _, file := range []string{
		"windows", "buckets", "bookings", "changes", "penalties", "ceilings", "watches", "quotas", "flights", "large", "lines",
	} {
		all = append(all, vectorsOf(file)...)
	}
	return slices.Concat(all, placeChecks(), randomLineChecks(), randomChecks(), adaptiveRandomChecks(), toldChecks())
}

// tb is the part of testing.TB that checks use, so that the suite can be run
// against stores that must fail.
type tb interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// promises are the headlines of failure messages, by the first part of a
// check's name.
var promises = map[string]string{
	"P1":    "never more than the limit",
	"P2":    "room for a late arrival at the upstream",
	"P3":    "nearly all of the limit is used",
	"P5":    "first come, first served",
	"P6":    "all budgets or none",
	"P7":    "cancelling gives back",
	"P11":   "a penalty closes the budget",
	"Store": "the comments of throttle.Store",
}

// A check is one case of the contract. Its name begins with the promise.
type check struct {
	name string
	run  func(*bench)
}

// A Slack is how far a store may be from the perfect queue. It is for stores
// whose nodes share their lines by messages.
type Slack struct {
	Order time.Duration // by how much a start may precede the start of an earlier visitor
	Start time.Duration // by how much a start may be later than it could be

	// Far says that each call takes a trip to a server. With -short, checks of many calls are left out then.
	Far bool

	// Not names checks that the store does not pass yet. RunWithin logs them.
	Not []string
}

// horizon is the horizon of the checks' bookings.
const horizon = 750 * ms

// A bench is one store under test, in its bubble. Times are counted from the
// moment the bench was made.
type bench struct {
	tb
	store   store.Store
	zero    time.Time
	promise string
	place   string // the line of a vector that is played, for failures. It is empty in other checks.
	slack   Slack
}

// newBench returns the bench of a check, whose name begins with its promise.
func newBench(t tb, s store.Store, name string) *bench {
	number, _, _ := strings.Cut(name, "_")
	return &bench{tb: t, store: s, zero: time.Now(), promise: number + " (" + promises[number] + ") broken: "}
}

// errorf reports what went wrong, with the promise that it breaks.
func (b *bench) errorf(format string, args ...any) {
	b.Helper()
	b.Errorf(b.promise+b.place+format, args...)
}

// fatalf is errorf for a check that cannot go on.
func (b *bench) fatalf(format string, args ...any) {
	b.Helper()
	b.Fatalf(b.promise+b.place+format, args...)
}

// now returns the time since the bench was made.
func (b *bench) now() time.Duration { return time.Since(b.zero) }

// at lets time pass until the given time, if that is still to come.
func (b *bench) at(t time.Duration) { time.Sleep(t - b.now()) }

// book asks the store, and returns the booking, with Charges of its own, and the answer. It fails the check on an error.
func (b *bench) book(k store.Booking) (store.Booking, store.Grant) {
	b.Helper()
	k.Charges = slices.Clone(k.Charges)
	g, err := b.store.Book(b.Context(), &k)
	if err != nil {
		b.fatalf("Book of %s at %v: %v", describe(k), b.now(), err)
	}
	return k, g
}

// pause closes a budget.
func (b *bench) pause(c store.Charge, d time.Duration) {
	b.Helper()
	if err := b.store.Pause(b.Context(), c, d); err != nil {
		b.fatalf("Pause(%v, %v) at %v: %v", c.Budget, d, b.now(), err)
	}
}

// settle changes the cost of a start.
func (b *bench) settle(k store.Booking, g store.Grant, costs ...int) {
	b.Helper()
	if err := b.store.Settle(b.Context(), &k, g, costs); err != nil {
		b.fatalf("Settle of %s at %v: %v", describe(k), b.now(), err)
	}
}

// states tells the store the upstream's statement.
func (b *bench) states(c store.Charge, q store.Quota) {
	b.Helper()
	if err := b.store.Reconcile(b.Context(), c, q); err != nil {
		b.fatalf("Reconcile(%v, %+v) at %v: %v", c.Budget, q, b.now(), err)
	}
}

// denied tells the store that a request was refused, which was sent the given time ago. The store closes the budget for d.
func (b *bench) denied(c store.Charge, d, ago time.Duration) {
	b.Helper()
	if _, _, err := b.store.Refuse(b.Context(), c, store.Refusal{Length: d, Ago: ago}); err != nil {
		b.fatalf("Refuse(%v, %v) at %v: %v", c.Budget, d, b.now(), err)
	}
}

// resume opens a budget.
func (b *bench) resume(c store.Charge) {
	b.Helper()
	if err := b.store.Resume(b.Context(), c); err != nil {
		b.fatalf("Resume(%v) at %v: %v", c.Budget, b.now(), err)
	}
}

// A ticket is a booking and the store's answer.
type ticket struct {
	booking store.Booking
	grant   store.Grant
}

// called waits until the place in line is called, and reports whether it was. It fails the check if that takes a minute.
func (b *bench) called(k ticket) bool {
	b.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	select {
	case <-k.grant.Ready:
		return true
	case <-timeout.C:
		b.errorf("there is room at %v, and the first in line is not called", b.now())
		return false
	}
}

// releases ends the ticket's requests in flight.
func (b *bench) releases(k ticket) { b.store.Release(&k.booking, k.grant) }

// cancels gives back the ticket's start, or its place in line.
func (b *bench) cancels(k ticket) { b.store.Cancel(&k.booking, k.grant) }

const (
	tick = time.Microsecond // the unit of every store's time
	ms   = time.Millisecond
	sec  = time.Second
)

// tickTimes returns n microseconds.
func tickTimes(n int64) time.Duration { return time.Duration(n) * tick }

// maxCost is the most that Settle can be told: 1<<40, and 1<<29 where an int has 32 bits.
const maxCost = 1 << (29 + 11*(^uint(0)>>63))

// overOf returns how much later the start would have been if the i-th charge, a shadow, counted. Without an Over it returns 0.
func overOf(g store.Grant, i int) time.Duration {
	if g.Over == nil {
		return 0
	}
	return g.Over[i]
}

// charge returns a charge of cost 1 without jitter. The key of its budget is the first 16 bytes of
// the name.
func charge(name string, l store.Limit) store.Charge {
	c := store.Charge{Budget: store.Budget{Policy: name, Group: "storetest"}, Limit: l, Cost: 1}
	copy(c.Budget.Key[:], name)
	return c
}

// costing returns the charge with a different cost.
func costing(c store.Charge, cost int) store.Charge {
	c.Cost = cost
	return c
}

// describe prints a booking for failure messages, about as a vector has it.
func describe(k store.Booking) string {
	text := "book"
	for _, c := range k.Charges {
		text += fmt.Sprintf(" %s (%s) cost %d leaving %d", c.Budget.Policy, sentence(c), c.Cost, c.KeepFree)
		if c.Shadow {
			text += " shadow"
		}
	}
	text += fmt.Sprintf(" within %v from +%v spread %v", k.MaxWait, k.NotBefore, k.Spread)
	if k.Instead != (store.Handle{}) {
		text += fmt.Sprintf(" instead of %+v", k.Instead)
	}
	return text
}

// sentence prints a charge's limit, about as a vector has it.
func sentence(c store.Charge) string { return fmt.Sprintf("%v, jitter %v", c.Limit, c.Jitter) }

// queue lets callers book in even steps, faster than the limit. It fails if a caller is refused, if the
// limit is broken, or if the last start comes more than 1 % later than the move says.
func (p *play) queue(m *move) {
	p.Helper()

	// Count the history in the end: each answer alone says only when one caller starts.
	c, history := m.charges[0], newLedger()
	last := time.Duration(0)
	for i := range m.times {
		p.at(time.Duration(i) * m.options["every"].Duration)
		k, g := p.book(store.Booking{Charges: m.charges, MaxWait: store.AnyWait})
		if !g.OK {
			p.fatalf("caller %d with any MaxWait was refused", i)
		}

		start := p.now() + g.Wait
		history.add(k, p.zero.Add(start).UnixMicro())
		last = max(last, start)
	}

	if text := history.excess(c); text != "" {
		p.errorf("%s", text)
	}
	if want := m.want.answers[0].low.Duration; last > want+want/100 {
		p.errorf("%d callers at %s: the last starts at %v, want at most 1%% after %v", m.times, sentence(c), last, want)
	}
}

// steady is a chain of callers, which could fill every window: each waits for its start, and the next comes a moment later, which
// the move names. It ends after as many windows as the move says. It fails if a caller is refused, if the limit is broken, or if less
// than 99 % of it are used.
func (p *play) steady(m *move) {
	p.Helper()
	c, history := m.charges[0], newLedger()
	used := 0
	end := time.Duration(m.times) * tickTimes(span(c))
	for {
		k, g := p.book(store.Booking{Charges: m.charges, MaxWait: store.AnyWait})
		if !g.OK {
			p.fatalf("a caller with any MaxWait was refused")
		}

		// The caller starts when the store says, and the next comes a moment later.
		p.at(p.now() + g.Wait)
		if p.now() >= end {
			break
		}

		history.add(k, time.Now().UnixMicro())
		used++
		time.Sleep(m.options["every"].Duration)
	}

	if text := history.excess(c); text != "" {
		p.errorf("%s", text)
	}
	if all := m.times * c.Limit.N(); used*100 < all*99 {
		p.errorf("%d of %d starts used in %d windows of %s, want 99%%", used, all, m.times, sentence(c))
	}
}
