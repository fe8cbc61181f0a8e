package acquire

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// How old a start may be when it is used, and how far ahead a start is booked.

// DefaultJitter is how long after its grant a start of a policy that does not say otherwise may arrive.
const DefaultJitter = 35 * time.Millisecond

// validFor is how long an answer of the store about a start counts as current. A
// penalty may take effect that much later than it was stored.
const validFor = 5 * time.Millisecond

// usableFor is how long after its start a grant may be used: 10 of the default 35 ms. The
// rest of Jitter is left for the way to the upstream, so that a connection that came late
// does not use it up.
func (c *Caller) usableFor() time.Duration { return c.jitter * 2 / 7 }

// age returns how long ago, at most, the start was. The result is negative before the start. The store may have
// decided as long before its answer arrived as the grant's Age says, so the start may have been that
// much earlier than startAt. The spread is room that the store has left behind the start for that.
func (c *Caller) age() time.Duration {
	return Now() - c.startAt + c.Grant.Age - c.Booking.Spread
}

// Late returns by how much more than Jitter has passed since the start, for work that
// begins now, or 0 if the work is in time, or has no start that it could miss.
func (c *Caller) Late() time.Duration {
	if c.jitter == 0 || c.uncounted {
		return 0
	}
	return max(0, c.age()-c.jitter)
}

// stale reports whether the grant is too old to be used now.
func (c *Caller) stale() bool { return c.jitter > 0 && c.age() > c.usableFor() }

// unusable reports whether the grant will be stale already at startAt, because the store's
// answer took so long. Then the caller books a new start at once, and not after the wait.
func (c *Caller) unusable() bool {
	return c.jitter > 0 && c.Grant.Age-c.Booking.Spread > c.usableFor()
}

// spread returns the Spread of the next booking: room behind the start, if the store is so
// far away that its answer alone would make the grant stale. It goes by the ages of all
// callers' grants. The budgets of this caller may lie on a slower server than most: after
// rttSamples stale answers in a row the last answer to this caller counts, too.
func (c *Caller) spread() time.Duration {
	if c.jitter == 0 {
		return 0
	}

	lag := c.engine.grantAge.upper()
	if c.staleStreak >= rttSamples {
		lag = max(lag, c.Grant.Age)
	}

	room := lag - c.usableFor()/2
	if room <= 0 {
		return 0
	}

	return min(room, spreadLimit(c.Booking.Charges))
}

// adjustPace sets the Pace of each charge: the distance to the next start, which the policy's
// limit gives, less the spread, which keeps the next start away as well. With both distances
// starts would leave a part of the limit unused.
//
// A start that costs more than 1 has no Pace in a short window: starts of different costs do not
// fill a window, and a distance between them leaves room that no start fits into. In a window longer
// than store.MaxEvenWindow starts leave within a moment, because a queue of many windows would end up to
// a window later if they flowed evenly. Where costs turn out to be higher than they were booked, all
// starts of such a window would be too many at once, so there they flow evenly.
func (c *Caller) adjustPace() {
	for i := range c.Booking.Charges {
		charge := &c.Booking.Charges[i]
		long := charge.Limit.Per() > store.MaxEvenWindow
		low := long && c.engine.estimates.areLow(charge.Budget.Policy)
		if charge.Cost == 1 && c.Booking.Spread == 0 && !c.repaced && !low {
			continue // most charges keep the Pace that they came with
		}

		c.repaced = true
		switch {
		case low && charge.Limit.Pace() > 0:
			charge.Pace = evenPace(charge)
		case charge.Cost > 1 && !long:
			charge.Pace = 0
		default:
			charge.Pace = max(0, charge.Limit.Pace()-c.Booking.Spread)
		}
	}
}

// evenPace returns the least Pace with which a store spreads the starts of a full window over all of it: at that
// pace alone the whole limit takes half of its window.
func evenPace(charge *store.Charge) time.Duration {
	return (charge.Span()/(2*time.Duration(charge.Limit.N())) + time.Microsecond).Truncate(time.Microsecond)
}

// needsRevalidation reports whether the store's last word on the start is so old that the store
// must confirm the start before the start is used.
func (c *Caller) needsRevalidation() bool {
	return Now()-c.validatedAt > validFor+min(c.revalidateLead(), c.validateRTT)
}

// revalidateLead returns how long before the start the store is asked to confirm the start:
// as long as the store takes to answer if it takes longer than validFor, and otherwise 0.
// The answer to this caller's own booking bounds the estimate, which older answers to other
// callers may dominate.
func (c *Caller) revalidateLead() time.Duration {
	if lag := min(c.engine.grantAge.get(), c.Grant.Age); lag > validFor {
		return lag
	}
	return 0
}

// countStale counts consecutive answers of the store that took so long that the grant was
// unusable.
func (c *Caller) countStale() {
	if c.Grant.Age-c.Booking.Spread <= c.usableFor() {
		c.staleStreak = 0
		return
	}
	c.staleStreak++
}

// spreadLimit returns the largest spread that the charges allow: half of each fixed window
// less its jitter, so that the window has as much time for starts as for the spread. If the
// store needs more, no grant can be proved to be in time.
func spreadLimit(charges []store.Charge) time.Duration {
	limit := time.Duration(math.MaxInt64) // without a fixed window there is no limit
	for i := range charges {
		if c := &charges[i]; c.Limit.Kind() == store.KindFixedWindow && c.Limit.Per() > 0 {
			limit = min(limit, (c.Limit.Per()-c.Jitter)/2)
		}
	}
	return limit
}

// A start is booked at most one horizon ahead: a caller that has to wait for longer stands in
// line, so that the line can move when something changes. A booked start is not moved any more,
// so the nearer the horizon is, the less a caller that leaves disturbs the order. docs/internals/line.md
// explains the numbers.
const (
	shareHorizon  = 250 * time.Millisecond // in place of store.MinHorizon for callers with a share: a small share waits for all booked starts
	summonHorizon = 5 * time.Millisecond   // in place of shareHorizon and leadMargin for callers of one budget, if the store summons waiters: see store.Traits
	maxHorizon    = 2 * time.Second
	leadMargin    = 250 * time.Millisecond // by how much the horizon reaches beyond the caller's lead
	horizonTrips  = 5                      // round trips to the store that fit into the horizon

	// A start that is booked ahead counts with its estimated cost. If the estimate is k times too high, starts that are
	// booked H ahead leave 1/(1+(k-1)H/per) of the limit: a horizon of per/(k-1)/estimateParts costs a tenth of it.
	estimateParts    = 10
	estimatesHorizon = 5 * time.Millisecond // no horizon is nearer because of estimates
)

// Horizon returns how far ahead the next start is booked at the most. A caller that goes on long
// before its start, because its connections take long, must know its start that early: so the
// horizon reaches beyond the lead.
func (c *Caller) Horizon() time.Duration {
	nearest, margin, farthest := c.horizon, leadMargin, maxHorizon
	if c.engine.estimates.known.Load() {
		for i := range c.Booking.Charges {
			farthest = min(farthest, c.estimateHorizon(&c.Booking.Charges[i]))
		}
	}

	// A caller of several budgets needs a start that is near in all of them, so its horizon stays.
	if c.shared && nearest == store.MinHorizon {
		nearest = shareHorizon
		if c.engine.Traits.SummonsWaiters && len(c.Booking.Charges) == 1 {
			nearest, margin = summonHorizon, summonHorizon
		}
	}

	// Callers that dial, and stores that are far away, need their horizon whatever was estimated.
	nearest, margin = min(nearest, farthest), min(margin, farthest)
	return max(min(max(nearest, horizonTrips*c.engine.rtt.get()), maxHorizon), c.Lead+margin)
}

// estimateHorizon returns how far ahead starts of a charge may be booked at the most, because its cost is estimated
// too high.
func (c *Caller) estimateHorizon(charge *store.Charge) time.Duration {
	times := c.engine.estimates.times(charge.Budget.Policy)
	if times == 1 || charge.Limit.Kind() != store.KindSlidingWindow && charge.Limit.Kind() != store.KindTokenBucket {
		return maxHorizon
	}

	d := float64(charge.Span()) / (times - 1) / estimateParts
	return time.Duration(max(float64(estimatesHorizon), min(d, float64(maxHorizon))))
}

// Now is the time since the process began. It costs half as much as time.Now,
// which reads the wall clock too.
func Now() time.Duration { return time.Since(born) }

// born is when the process began.
var born = time.Now()

// A rttEstimator estimates how long a store's answers take: their mean, but not much more
// than the shortest of the last few. So the mean counts for a store that is far away or
// slow for long. A hiccup does not count, and the first fast answer ends a slow phase. If
// the estimate is too small, a start is booked again. If it is too large, it costs quota:
// starts with too much room stay booked after the store is fast again.
type rttEstimator struct {
	estimate  atomic.Int64 // in nanoseconds
	deviation atomic.Int64 // by how much answers differ from the mean, on average

	mu      sync.Mutex
	mean    time.Duration
	samples [rttSamples]time.Duration
	seen    int           // how many answers have come
	lastAt  time.Duration // when the last one came
}

const (
	// rttSamples is how many answers in a row must be slow until the estimate believes that the
	// store is slow. A store that needs a second for each answer has then been slow for as many
	// seconds.
	rttSamples = 6

	// An answer that took more than outlierFactor times as long as the shortest of the last
	// rttSamples is an outlier, unless it took less than DefaultJitter, which costs little.
	outlierFactor = 4
)

func (e *rttEstimator) get() time.Duration { return time.Duration(e.estimate.Load()) }

// upper returns an upper bound on nearly all answers: a quarter more than the estimate, or less if
// answers hardly differ.
func (e *rttEstimator) upper() time.Duration {
	return e.get() + min(e.get()/4, 4*time.Duration(e.deviation.Load()))
}

// add takes in how long an answer took and when it arrived. Callers share answers, and a
// hiccup delays all answers that are on their way. So an answer says nothing new if it was
// on its way together with the last answer for most of the time. Neither does an answer
// that took no time: it came from memory.
func (e *rttEstimator) add(took, arrivedAt time.Duration) {
	if took <= 0 {
		return
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	if e.seen > 0 && arrivedAt-took/2 < e.lastAt {
		return
	}

	e.lastAt = arrivedAt
	e.samples[e.seen%rttSamples] = took
	e.seen++
	bound := max(outlierFactor*slices.Min(e.samples[:min(e.seen, rttSamples)]), DefaultJitter)
	if took < e.mean {
		e.mean = min(e.mean, bound) // forget the part above the bound
	}

	e.deviation.Add((int64((took - e.mean).Abs()) - e.deviation.Load()) / 4)
	e.mean += (took - e.mean) / 4
	e.estimate.Store(int64(min(e.mean, bound)))
}

// Estimates know for each policy how far the costs of its last starts were estimated wrongly. The zero
// value knows no policy. Many goroutines may use it at once.
type estimates struct {
	known    atomic.Bool // some policy is known, so that most callers need not look for theirs
	byPolicy sync.Map    // of *estimate
}

// An estimate is what is known of the costs of a policy.
type estimate struct {
	remained atomic.Int64 // the settled part of the booked cost, on average, in units of 1/remainedWhole
	low      atomic.Int32 // above 0: one of the last lowMemory starts has cost more than was booked
}

const (
	remainedWhole  = 1 << 20
	remainedMemory = 16 // how many starts the average covers, about
	lowMemory      = 64
)

// note notes that the cost of a start under a policy was settled.
func (e *estimates) note(policy string, booked, settled int) {
	if booked < 1 || settled < 0 {
		return
	}

	known := e.of(policy)
	if known == nil {
		fresh := new(estimate)
		fresh.remained.Store(remainedWhole)
		v, _ := e.byPolicy.LoadOrStore(policy, fresh)
		known = v.(*estimate)
		e.known.Store(true)
	}

	// Of two updates at one moment one may be lost, which only makes the average a little older.
	old := known.remained.Load()
	now := remainedWhole * int64(min(settled, booked)) / int64(booked)
	known.remained.Store(old + (now-old)/remainedMemory)

	switch low := known.low.Load(); {
	case settled > booked:
		known.low.Store(lowMemory)
	case low > 0:
		known.low.Store(low - 1)
	}
}

// of returns the estimate of a policy, or nil if none is known.
func (e *estimates) of(policy string) *estimate {
	if !e.known.Load() {
		return nil
	}
	v, _ := e.byPolicy.Load(policy)
	known, _ := v.(*estimate)
	return known
}

// times returns how many times too high the costs of a policy are, at least 1.
func (e *estimates) times(policy string) float64 {
	known := e.of(policy)
	if known == nil {
		return 1
	}
	return remainedWhole / float64(max(1, known.remained.Load()))
}

// areLow reports whether a start under a policy has lately cost more than was booked for it.
func (e *estimates) areLow(policy string) bool {
	known := e.of(policy)
	return known != nil && known.low.Load() > 0
}
