// Package waits measures how long callers wait when the world changes while a
// queue is deep: waiters leave, others are more urgent, limits are raised, bans
// come and go, estimates are wrong, processes die, Redis is late.
//
// It knows only the public names of throttle. The engine is measured from
// outside, and most figures are compared with a perfect queue over the same
// arrivals: see line. Scenarios on memstore run in virtual time and give the
// same figures on every machine, except for the order of goroutines. Scenarios on
// Redis, and those with -long, are for a quiet machine.
//
//	go test ./internal/lab/waits                        # all of it, in small
//	go test ./internal/lab/waits -long -timeout 40m     # all of it; not with -race
//	go test ./internal/lab/waits -run TestWaits/bans    # one scenario
//	go test ./internal/lab/waits -judge=false -out FILE # measure, and fail for nothing
//
// The constants in this file say what must be reached.
package waits

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/stat"
)

// mean returns the mean wait of visits that all started, or 0 without visits.
func mean(visits []visit) time.Duration {
	if len(visits) == 0 {
		return 0
	}
	var sum time.Duration
	for i := range visits {
		sum += visits[i].waited()
	}
	return sum / time.Duration(len(visits))
}

// quantile returns the wait that a share of the visits does not exceed.
func quantile(visits []visit, share float64) time.Duration {
	waits := make([]time.Duration, len(visits))
	for i := range visits {
		waits[i] = visits[i].waited()
	}
	return stat.Quantile(waits, share)
}

func longest(visits []visit) time.Duration { return quantile(visits, 1) }

// last returns the latest start, or never if no visit started.
func last(visits []visit) time.Duration {
	end := never
	for i := range visits {
		end = max(end, visits[i].start)
	}
	return end
}

// latest returns the longest time by which a visit started later than in a second run of the
// same visits. Visits that did not start in both runs do not count.
func latest(visits, than []visit) time.Duration {
	late := time.Duration(0)
	for i := range visits {
		if visits[i].started() && than[i].started() {
			late = max(late, visits[i].start-than[i].start)
		}
	}
	return late
}

// worst returns the highest cost of visits that start in an interval of a length.
func worst(visits []visit, per time.Duration) int {
	var starts []time.Duration
	for _, v := range only(visits, anyVisit) {
		starts = append(starts, slices.Repeat([]time.Duration{v.start}, v.cost())...)
	}
	return stat.Most(starts, per)
}

// A spend is what one start cost.
type spend struct {
	at   time.Duration
	cost int
}

// spends returns what the visits that started cost.
func spends(visits []visit) (list []spend) {
	for _, v := range only(visits, anyVisit) {
		list = append(list, spend{v.start, v.cost()})
	}
	return list
}

// used returns the share of a limit of n in each span that was spent between two times: the
// mean over all intervals of a span's length between the two. So a bunch of starts at one of the two
// times does not decide. The share is 0 if the time is not longer than a span.
func used(list []spend, from, to time.Duration, n int, span time.Duration) float64 {
	length := to - from - span // in which intervals can begin
	if length <= 0 {
		return 0
	}

	// A start counts in all intervals that begin up to a span before it.
	sum := 0.0
	for _, s := range list {
		seen := min(s.at-from, length) - max(s.at-from-span, 0)
		sum += float64(max(seen, 0)) * float64(s.cost)
	}
	return sum / float64(length) / float64(n)
}

// passed returns the longest time by which a visit was passed: a second visit came at least that time later and started at
// least that time earlier.
func passed(visits []visit) time.Duration {
	return most(visits, func(v *visit, by time.Duration) (time.Duration, time.Duration) {
		return v.came + by, v.start - by
	})
}

// passedByLater returns the longest time by which a visit came after a visit that it passed: it started at least a
// millisecond earlier.
func passedByLater(visits []visit) time.Duration {
	return most(visits, func(v *visit, by time.Duration) (time.Duration, time.Duration) {
		return v.came + by, v.start - time.Millisecond
	})
}

// most returns the largest by, to a tenth of a millisecond and at most an hour, that holds for some visit, or 0. by holds for a
// visit v if a visit that came at the time came or later started at the time start or earlier, where came and start are
// at(v, by). A greater by must be harder to hold, and came must not fall from one visit to the next in order of arrival.
func most(visits []visit, at func(v *visit, by time.Duration) (came, start time.Duration)) time.Duration {
	sorted := only(visits, anyVisit)
	slices.SortStableFunc(sorted, func(a, b visit) int { return cmp.Compare(a.came, b.came) })
	first := make([]time.Duration, len(sorted)+1) // the earliest start of visit i and all later visits
	first[len(sorted)] = math.MaxInt64
	for i := len(sorted) - 1; i >= 0; i-- {
		first[i] = min(first[i+1], sorted[i].start)
	}

	holds := func(by time.Duration) bool {
		j := 0
		for i := range sorted {
			came, start := at(&sorted[i], by)

			// j is the first visit that came at that time or later. It only grows, because came does.
			for j < len(sorted) && sorted[j].came < came {
				j++
			}

			if first[j] <= start {
				return true
			}
		}

		return false
	}

	// Bisect: a greater by is harder to hold.
	low, high := time.Duration(0), time.Hour
	for high-low > 100*time.Microsecond {
		if middle := (low + high) / 2; holds(middle) {
			low = middle
		} else {
			high = middle
		}
	}

	return low
}

// What must be reached. Shares are of the starts that the limit and its jitter allow, unless
// they are said to be of the quota.
const (
	waitHigh     = time.Second            // of a High request behind thousands of Low requests
	waitBeside   = 400 * time.Millisecond // p99, beside an API with thousands of waiters
	usedSkewed   = 0.96                   // of a perfect scheduler's use
	waitSmall    = 800 * time.Millisecond // mean, of APIs below their own limit
	usedLeaving  = 0.96                   // of a perfect queue's use
	timesLeaving = 2.0                    // the longest wait of a perfect queue
	timesRaised  = 1.08                   // when a perfect queue's last visit starts
	passedChange = 1500 * time.Millisecond

	tokensHighLeast, tokensHighMost = 0.70, 1.05 // the estimate is ten times too high
	timesPossible                   = 0.9        // of the possible use where that is less
	tokensLowLeast, tokensLowMost   = 0.90, 1.10 // the estimate is too low
	waitRecovered                   = 5 * time.Second

	lateDisturbed = 4500 * time.Millisecond // after a ban of 2 s at most, or a slow dial
	firstAfter    = 300 * time.Millisecond  // the first start after a short ban
	nextAfterLong = 2 * time.Second         // the second start after a ban of more than a minute
	startsHiccup  = 80                      // of 100 in 5 s; 84 to 94 where the first answers are too late to be used
	waitAway      = 20 * time.Millisecond   // mean, where the store is 12 ms away
	startsAway    = 380                     // of 400 in 20 s; with the jitter and the store's 12 ms 382 are possible
	lateNext      = 200 * time.Millisecond  // the next caller, when all waiters have left

	offShares  = 0.05                   // of its part, over ten windows
	waitShare  = 300 * time.Millisecond // and its own cost over its part: a share that asks for a tenth of its part
	usedShares = 0.98

	timesOpen  = 1.15 // the mean wait of a perfect queue, and
	moreOpen   = 10 * time.Millisecond
	passedOpen = 20 * time.Millisecond

	passedNodes   = 300 * time.Millisecond // in line at several nodes on Redis
	passedFleets  = 350 * time.Millisecond // in each fleet without trouble, and
	partPassed    = 0.10                   // in all but this part of the fleets with trouble, in which
	passedTrouble = 800 * time.Millisecond // is the most
	passedPauses  = 500 * time.Millisecond // in one fleet of pauses and leavers

	usedFour, usedSix   = 0.85, 0.93 // of the quota, with this number of connections
	usedFlight          = 0.96
	waitFlight          = 2300 * time.Millisecond
	waitClosed          = 80 * time.Millisecond // p99 in memory, and
	waitClosedRedis     = 150 * time.Millisecond
	jainClosed          = 0.98
	usedClosed          = 0.995 // in memory, and
	usedClosedRedis     = 0.985
	lastOfCrowd         = 10400 * time.Millisecond // of 10,000 at 1000/s
	bytesOfCrowd        = 7168
	usedNear40, usedFar = 0.92, 0.85 // with Redis 40 and 150 ms away
	usedVeryFar         = 0.60       // with Redis 300 ms away, 20/s
	usefulBanning       = 0.963      // of the quota

	startsGeneration = 15 // of a process that is killed every 2 s, in real time
	startsCrash      = 35 // in virtual time, at every phase of the windows
	forgotten        = 3 * time.Second

	usedFleet, tripsFleet, jainFleet = 0.99, 1.6, 0.98 // 4 processes of 16
	tripsMany, busyMany              = 2.3, 0.08       // 60 of 4; of a processor of Redis
)

// A line is the rule of a perfect queue: at most n starts in any interval of a
// length. The limit may change.
type line struct {
	n       int
	span    time.Duration // the window and the jitter
	changes []change      // by time
}

// A change is a limit that holds from a time on.
type change struct {
	at time.Duration
	n  int
}

// lineOf returns the line of n a second with the default jitter.
func lineOf(n int, changes ...change) line {
	return line{n, time.Second + acquire.DefaultJitter, changes}
}

// rate is how many starts fit in a second.
func (l line) rate() float64 { return float64(l.n) / l.span.Seconds() }

// at returns the limit at a time and when it changes next.
func (l line) at(t time.Duration) (n int, until time.Duration) {
	n = l.n
	for _, c := range l.changes {
		if c.at > t {
			return n, c.at
		}
		n = c.n
	}
	return n, 1<<63 - 1
}

// perfect returns the visits as a perfect queue serves them: in order of arrival,
// each as early as the line allows. A visit that would start after its maxWait leaves and takes nothing. The visits
// must be sorted by arrival.
func (l line) perfect(visits []visit) []visit {
	served := slices.Clone(visits)
	var starts []time.Duration
	for i := range served {
		v := &served[i]
		v.start, v.err = l.next(starts, v.came, v.cost()), nil
		if v.maxWait > 0 && v.start > v.came+v.maxWait {
			v.start = never
			continue
		}

		for range v.cost() {
			starts = append(starts, v.start)
		}
	}

	return served
}

// next returns the earliest time, from t on and not before the last start, at which the line has room for a cost.
func (l line) next(starts []time.Duration, t time.Duration, cost int) time.Duration {
	booked := len(starts)
	if booked > 0 {
		t = max(t, starts[booked-1])
	}

	for {
		// Under a limit of n, all starts up to index i must have left the window.
		n, until := l.at(t)
		i := booked + cost - 1 - n
		if i < 0 || starts[i]+l.span <= t {
			return t
		}

		// Look again when start i leaves the window, or when the limit changes.
		t = min(starts[i]+l.span, until)
	}
}

// shared returns the visits as a perfect scheduler serves them, with a line for each API and the line wide for all APIs: the
// first waiter of an API starts as soon as both of its lines have room.
func shared(wide, each line, apis int, visits []visit) []visit {
	served := slices.Clone(visits)
	queues, starts := make([][]int, apis), make([][]time.Duration, apis)
	var common []time.Duration

	now, coming := time.Duration(0), 0
	for {
		// Of the first waiters of all APIs find the one that can start first, and of several the one that came first.
		best, at := -1, time.Duration(0)
		for api, q := range queues {
			if len(q) == 0 {
				continue
			}

			t := max(each.next(starts[api], now, 1), wide.next(common, now, 1))
			if best < 0 || t < at || t == at && q[0] < queues[best][0] {
				best, at = api, t
			}
		}

		// A visit that comes before that start gets in line first.
		switch {
		case coming < len(served) && (best < 0 || served[coming].came <= at):
			now = served[coming].came
			queues[served[coming].api] = append(queues[served[coming].api], coming)
			coming++

		case best < 0:
			return served
		default:
			now = at
			served[queues[best][0]].start = at
			queues[best] = queues[best][1:]
			starts[best], common = append(starts[best], at), append(common, at)
		}
	}
}

// A visit is one request of a scenario. Its times count from the scenario's
// beginning.
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

// arriving returns n visits that come one after the other, every after the one before.
func arriving(n int, every time.Duration) []visit {
	all := make([]visit, n)
	for i := range all {
		all[i] = visit{came: time.Duration(i) * every, start: never}
	}
	return all
}

// crowd returns n visits that come at the beginning. A microsecond lies between two of
// them, so that their order is known.
func crowd(n int) []visit { return arriving(n, time.Microsecond) }

// rushed returns n visits that come together, in any order. It takes the place of crowd in real time, where
// microseconds cannot be kept apart.
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

// anyVisit keeps every visit.
func anyVisit(*visit) bool { return true }
