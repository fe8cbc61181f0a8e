package store

import (
	"errors"
	"fmt"
	"time"
)

// A Kind is the shape of a [Limit]. Users pick one by its constructor; stores
// switch on it.
type Kind uint8

// The kinds of limits.
const (
	KindSlidingWindow Kind = iota + 1 // SlidingWindow and PerSecond, PerMinute, PerHour
	KindFixedWindow                   // FixedWindow and CalendarWindow: see Limit.Window
	KindLeakyBucket                   // LeakyBucket
	KindTokenBucket                   // TokenBucket
	KindConcurrency                   // Concurrency
	KindUnlimited                     // Unlimited
	KindTold                          // Told
)

// A Unit is a period of the calendar.
type Unit uint8

// The units of a [CalendarWindow]. [WeekFrom] returns the units of weeks from any day.
const (
	Day     Unit = iota + 1 // from midnight to midnight
	Week                    // from Monday, as in ISO 8601
	Month                   // from the 1st
	Quarter                 // from the 1st of January, April, July and October
	Year                    // from the 1st of January
)

// weekFrom is the unit of a week from Sunday. The units of weeks from Monday to Saturday
// follow it.
const weekFrom Unit = 16

// WeekFrom returns the unit of a week that begins on a day, such as [time.Sunday].
func WeekFrom(day time.Weekday) Unit {
	if day == time.Monday {
		return Week
	}
	return weekFrom + Unit(day)
}

// known reports whether the unit is one of the constants, or comes from WeekFrom.
func (u Unit) known() bool { return Day <= u && u <= Year || u.isWeek() }

// isWeek reports whether the unit is a week, from whatever day.
func (u Unit) isWeek() bool { return u == Week || u >= weekFrom && u <= weekFrom+Unit(time.Saturday) }

// weekday is the day on which the unit, a week, begins.
func (u Unit) weekday() time.Weekday {
	if u == Week {
		return time.Monday
	}
	return time.Weekday(u - weekFrom)
}

// text is the unit's name in a limit's text. A unit that is not known has its number as a name.
func (u Unit) text() string {
	switch u {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	case Quarter:
		return "quarter"
	case Year:
		return "year"
	}

	if u.isWeek() {
		return "week " + u.weekday().String()
	}

	return fmt.Sprintf("unit %d", uint8(u))
}

// usual is the usual length of the unit: a month has 30 days.
func (u Unit) usual() time.Duration {
	const day = 24 * time.Hour
	switch u {
	case Day:
		return day
	case Month:
		return 30 * day
	case Quarter:
		return 91 * day
	case Year:
		return 365 * day
	}
	return 7 * day // a week from any day
}

// A Limit is a sentence that can be checked, such as "at most 20 starts in any second".
// Make a Limit with the constructors or with [ParseLimit], and print it with
// [Limit.String]. The zero Limit is no limit, and throttle.New refuses it.
//
// SlidingWindow (and PerSecond, PerMinute, PerHour) is right against every upstream that
// counts n per interval. FixedWindow and CalendarWindow use all of a quota where the
// upstream resets at known moments. LeakyBucket spaces starts out. TokenBucket is right
// where the upstream keeps such a bucket, and only there. Unlimited is for rows without a
// number: an unlimited budget is open until an answer closes it. ParseLimit reads limits
// from text, such as "10000/20s" or "5000/month Asia/Shanghai".
//
// The upstream counts arrivals, not starts: see the Jitter of a policy.
type Limit struct {
	kind  Kind
	unit  Unit // of a CalendarWindow, otherwise 0
	n     int
	per   time.Duration
	burst int            // TokenBucket only
	loc   *time.Location // of a CalendarWindow, otherwise nil
}

// SlidingWindow allows at most n starts in any interval of length per. It is
// right against every upstream that counts n per interval, whatever kind of
// window that upstream uses, because each of its windows is one interval.
func SlidingWindow(n int, per time.Duration) Limit {
	return Limit{kind: KindSlidingWindow, n: n, per: per}
}

// PerSecond is [SlidingWindow](n, time.Second).
func PerSecond(n int) Limit { return SlidingWindow(n, time.Second) }

// PerMinute is [SlidingWindow](n, time.Minute).
func PerMinute(n int) Limit { return SlidingWindow(n, time.Minute) }

// PerHour is [SlidingWindow](n, time.Hour).
func PerHour(n int) Limit { return SlidingWindow(n, time.Hour) }

// FixedWindow allows at most n starts in each window of length per, aligned to
// the Unix epoch by the store's clock. It uses all of a quota where the
// upstream resets at those moments, and passes up to 2n around an edge where it
// does not: when in doubt, use [SlidingWindow].
func FixedWindow(n int, per time.Duration) Limit {
	return Limit{kind: KindFixedWindow, n: n, per: per}
}

// CalendarWindow allows at most n starts in each day, week, month, quarter or year of the
// calendar in the time zone loc. A nil loc means UTC. Days of 23 and 25 hours and months of
// any length are counted as the calendar has them.
func CalendarWindow(n int, unit Unit, loc *time.Location) Limit {
	if loc == nil {
		loc = time.UTC
	}
	return Limit{kind: KindFixedWindow, n: n, unit: unit, loc: loc}
}

// LeakyBucket spaces starts out: at least per/n lies between two of them, and
// a start of cost c keeps the next one away c times as long. Nothing is saved
// up in quiet moments.
func LeakyBucket(n int, per time.Duration) Limit {
	return Limit{kind: KindLeakyBucket, n: n, per: per}
}

// TokenBucket allows the starts that a bucket of burst tokens allows, into which n tokens
// flow in each per, evenly: in any interval of length d at most burst and d·n/per starts
// together. TokenBucket is right where the upstream keeps such a bucket (Shopify, Amazon's
// SP-API). Where the upstream counts windows it is wrong, because it lets burst + n through
// in one window: use [SlidingWindow] there.
func TokenBucket(n int, per time.Duration, burst int) Limit {
	return Limit{kind: KindTokenBucket, n: n, per: per, burst: burst}
}

// Concurrency allows at most n requests in flight at any moment. A request ends when its
// answer's body is closed, is read to its end or fails, when the request fails, or when its
// context ends, whichever comes first. The work of a Limiter ends with Permit.Release.
// Requests of a process that died end within 30 seconds. An upstream may go on working at a
// request whose context ended, and count it. A request whose body is neither read to its
// end nor closed stays in flight until its context ends. If that context has no deadline,
// and the program drops the body, the garbage collector ends the request some time later,
// and Observe gets an EventDropped.
//
// Nobody can know beforehand when a slot will be free. Callers stand in line by arrival,
// for the whole fleet, and are woken in that order. A refusal has a RetryAfter of 0. A
// request that waits for the start that its rate limits allow takes no slot until the start
// has come. If no slot is free then, the request gives the start back and gets in line.
func Concurrency(n int) Limit { return Limit{kind: KindConcurrency, n: n} }

// Unlimited allows every start until a penalty or Limiter.Pause closes the budget. It is
// for a row of a provider's table whose number does not exist or is not known, although
// refusals speak of the row. A request that meets such a row obeys its penalties. While the
// budget is open it holds nothing, counts nothing and costs a store next to nothing: see
// the page on [unlimited budgets].
//
// [unlimited budgets]: https://github.com/fleetthrottle/throttle/blob/main/docs/internals/unlimited.md
func Unlimited() Limit { return Limit{kind: KindUnlimited} }

// Told is for an API whose answers tell its limit. The budget is as under Unlimited until
// an answer tells a limit, by [Quota].Told. From then on the whole fleet keeps the told
// limit as a SlidingWindow, until a window and ten minutes after an answer told it last.
// Where answers disagree the tightest limit counts: see the page on [told limits]. For a
// ceiling of your own, set a second policy with a number.
//
// [told limits]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/bans.md#limits-that-answers-tell
func Told() Limit { return Limit{kind: KindTold} }

// MinTold and MaxTold bound the window of a told limit. A store ignores a limit whose
// window is shorter or longer.
const (
	MinTold = time.Second
	MaxTold = time.Hour
)

// MaxCost is the largest cost that Settle can book for one start: 1<<40, and 1<<29 where an
// int has 32 bits.
const MaxCost = 1 << (29 + 11*(^uint(0)>>63))

// Counts reports whether the limit counts starts, so that the cost of a start can be
// settled later. It is false for Concurrency and Unlimited, and true for Told, which counts
// starts while a limit is told.
func (l Limit) Counts() bool { return l.kind != KindConcurrency && l.kind != KindUnlimited }

// Kind returns the limit's shape.
func (l Limit) Kind() Kind { return l.kind }

// N returns the number of the limit: for a window the sum of costs that it allows, for a
// TokenBucket how many tokens flow in per Per, for Concurrency how many requests may be in
// flight. N is 0 for Unlimited and Told, which have no number.
func (l Limit) N() int { return l.n }

// Capacity returns the largest cost that can ever fit: the burst of a TokenBucket, MaxCost
// under Unlimited and Told, N of every other limit.
func (l Limit) Capacity() int { return l.capacity() }

// capacity is Capacity, without a copy of the limit.
func (l *Limit) capacity() int {
	switch l.kind {
	case KindTokenBucket:
		return l.burst
	case KindUnlimited, KindTold:
		return MaxCost
	}
	return l.n
}

// Per returns the length of the window. It is 0 for a CalendarWindow, whose windows differ
// in length, and for Concurrency, Unlimited and Told, which have no window.
func (l Limit) Per() time.Duration { return l.per }

// The bounds of a limit's numbers. A store counts in microseconds, keeps a budget
// as long as its window, and adds costs up in numbers that Lua holds exactly.
// MaxPeriod is the longest window.
const (
	maxStarts = 1 << 40
	maxBurst  = 1 << 32
	minPeriod = time.Microsecond
	MaxPeriod = 366 * 24 * time.Hour
)

// Validate returns an error that joins all reasons why l cannot be counted, for starts that
// may arrive up to jitter after their grant.
func (l Limit) Validate(jitter time.Duration) error {
	if l.kind == 0 {
		return errors.New(`there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`)
	}
	if l.kind == KindUnlimited || l.kind == KindTold {
		return nil
	}
	return errors.Join(l.validateStarts(), l.validatePeriod(jitter), l.validateBucket())
}

// validateStarts refuses a number of starts that no store can count.
func (l Limit) validateStarts() error {
	switch {
	case l.n < 1:
		return fmt.Errorf("%d starts: allow at least 1", l.n)
	case int64(l.n) > maxStarts:
		return fmt.Errorf("%d starts: allow at most %d", l.n, int64(maxStarts))
	}
	return nil
}

// validatePeriod refuses a window that no store can count, and a fixed window that has no room for a start that
// arrives up to jitter late.
func (l Limit) validatePeriod(jitter time.Duration) error {
	switch {
	// Slots have no window.
	case l.kind == KindConcurrency:
		return nil

	// A calendar window has a unit in place of a period.
	case l.loc != nil:
		if !l.unit.known() {
			return fmt.Errorf("%s: use Day, Week, WeekFrom, Month, Quarter or Year", l.unit.text())
		}
		return nil

	case l.per <= 0:
		return fmt.Errorf("a period of %v: use a positive one, such as time.Second", l.per)
	case l.per > MaxPeriod:
		return fmt.Errorf("a period of %v: use at most %v, which is 366 days", l.per, MaxPeriod)
	case l.kind == KindFixedWindow:
		return errors.Join(l.validateMicros(), l.validateRoom(jitter))
	case l.per < minPeriod:
		return fmt.Errorf("a period of %v: use at least %v", l.per, minPeriod)
	}

	return nil
}

// validateMicros refuses a fixed window whose edges are not at whole microseconds,
// the unit of every store.
func (l Limit) validateMicros() error {
	if l.per%time.Microsecond != 0 {
		return fmt.Errorf("a fixed window of %v: use whole microseconds", l.per)
	}
	return nil
}

// validateRoom refuses a window that has no moment for a start, because each
// could arrive after the window's end.
func (l Limit) validateRoom(jitter time.Duration) error {
	if l.per <= jitter {
		return fmt.Errorf("a fixed window of %v has no room for a start that may arrive %v late: "+
			"use a longer window, or set Policy.Jitter to less than the window (negative for none)", l.per, jitter)
	}
	return nil
}

// validateBucket refuses a TokenBucket that no store can count: a token takes at
// least a microsecond to flow in, the whole bucket at most MaxPeriod.
func (l Limit) validateBucket() error {
	switch {
	// The limit is no bucket, or validateStarts or validatePeriod refuses it.
	case l.kind != KindTokenBucket || l.n < 1 || l.per < minPeriod:
		return nil

	case l.burst < 1:
		return fmt.Errorf("a burst of %d: allow at least 1", l.burst)
	case int64(l.burst) > maxBurst:
		return fmt.Errorf("a burst of %d: allow at most %d", l.burst, int64(maxBurst))
	case int64(l.n) > int64(l.per/time.Microsecond):
		return fmt.Errorf("%d tokens in %v: a bucket takes at most one each microsecond", l.n, l.per)
	case float64(l.burst)*float64(l.per)/float64(l.n) > float64(MaxPeriod):
		return fmt.Errorf("a burst of %d that takes more than %v to fill: use a smaller one", l.burst, MaxPeriod)
	}

	return nil
}

// The waiters of a window leave evenly. If a busy window is no longer than MaxEvenWindow its starts
// are nearly per/n apart, and a store may place them a little further apart while the window is
// full. In a longer window the last requests of a short job must not wait until the window ends,
// so the starts of a full window leave within MaxEvenPace.
const (
	MaxEvenWindow = 2 * time.Second
	MaxEvenPace   = 250 * time.Millisecond
)

// Pace returns the [Charge.Pace] that package throttle asks for under the limit. Without a
// Pace all waiters of a window would leave at one moment, come back at one moment, and be
// served in the order in which the network happened to deliver them. Pace is 0 for every
// kind except SlidingWindow.
func (l Limit) Pace() time.Duration {
	if l.Kind() != KindSlidingWindow || l.N() < 1 {
		return 0
	}

	// within is the time in which the starts of a full window leave. It is not all of a short window, because a store may place the
	// starts a little further apart.
	within := MaxEvenPace
	if l.Per() <= MaxEvenWindow {
		within = l.Per() * 9 / 10
	}
	return (within / time.Duration(l.N())).Truncate(time.Microsecond)
}

// A start is booked at most one horizon ahead: a caller that has to wait for longer stands in line.
// A horizon is at least MinHorizon. The page on the [line] explains the numbers.
//
// [line]: https://github.com/fleetthrottle/throttle/blob/main/docs/internals/line.md
const (
	MinHorizon  = 350 * time.Millisecond
	longHorizon = 750 * time.Millisecond
)

// Horizon returns the [Booking.Horizon] that package throttle asks for under the limit, if
// the store is near. A caller of several limits has the farthest of their horizons.
func (l Limit) Horizon() time.Duration {
	// Concurrency and Unlimited keep no starts apart, and the store alone knows the number of a Told limit.
	if !l.Counts() || l.N() < 1 {
		return MinHorizon
	}

	// The starts of a long window leave in bunches. A nearer horizon makes the bunches denser, and where costs are guessed too low
	// a bunch spends more than the limit.
	isBucket := l.Kind() == KindLeakyBucket || l.Kind() == KindTokenBucket
	if l.unit != 0 || !isBucket && l.Per() > MaxEvenWindow {
		return longHorizon
	}

	// Starts that keep a distance of per/n need a horizon of one and a half distances.
	return max(MinHorizon, min(longHorizon, l.Per()*3/2/time.Duration(l.N())))
}

// Span returns the length of time for which a store counts a SlidingWindow or TokenBucket
// charge, and the time that one unit of a LeakyBucket charge occupies, in whole
// microseconds. A TokenBucket charge is counted for the time in which a full bucket of
// tokens flows in, plus Jitter. Span is 0 for a Concurrency charge, and for a FixedWindow
// charge, whose windows come from [Limit.Window] and whose starts keep out of the last
// Jitter of each window. For an Unlimited charge Span is the least time for which one start
// goes first after a penalty: an unlimited budget counts nothing. Span is the same for a
// Told charge, whose window only the store knows.
//
// The span of a sliding window is per, Jitter and one microsecond: two starts a span apart
// are never in one closed interval of length per, nor are their arrivals if neither arrival
// is later than Jitter. A paced unit is (per + Jitter) / n, so that a window of per at the
// upstream never holds more than n arrivals. If there is a Jitter, a paced unit is at least
// a microsecond longer than per / n, so that starts are per / n apart whatever fraction of
// a microsecond the store's clock leaves out.
func (c Charge) Span() time.Duration {
	// Whole microseconds, rounded up: a span that is too short would let too many starts go.
	length := ceilMicro(c.Limit.per + c.Jitter)
	switch c.Limit.kind {
	case KindSlidingWindow:
		return length + time.Microsecond
	case KindLeakyBucket:
		// The longer of two lengths: starts must be per/n apart, and a window must not hold more than n arrivals.
		n := time.Duration(c.Limit.n)
		spaced := ceilMicro((c.Limit.per+n-1)/n) + min(c.Jitter, time.Microsecond)
		return max(spaced, ceilMicro((length+n-1)/n))
	case KindTokenBucket:
		// The time in which a full bucket of tokens flows in, rounded up, plus Jitter.
		tokens, micros := c.Refill()
		return time.Duration((int64(c.Limit.burst)*micros+tokens-1)/tokens)*time.Microsecond + ceilMicro(c.Jitter)
	case KindUnlimited, KindTold:
		return probeTime
	}

	return 0
}

// Refill returns the flow into the bucket of a TokenBucket charge in whole numbers: tokens
// flow in every micros microseconds. The flow is exact where small numbers can express it.
// Otherwise the flow is slower than the limit's, by less than one part in a thousand.
//
// A store must ensure that in any interval of length d the starts' costs sum to at most
// burst + max(0, d - Jitter)·tokens/micros. Then their arrivals, each up to Jitter late,
// never exceed the upstream's bucket.
//
// Both numbers of an Adaptive charge are multiplied by one factor, as large as stores can
// hold and at most 1024, so that a fraction of the flow is a whole number, too.
func (c Charge) Refill() (tokens, micros int64) {
	tokens, micros = c.smallestRefill()
	if c.Adaptive {
		factor := max(1, min(maxFactor, maxBucket/(int64(c.Limit.burst)*micros)))
		tokens, micros = tokens*factor, micros*factor
	}
	return tokens, micros
}

// smallestRefill is Refill in the smallest numbers: n tokens per window, divided by their
// greatest common divisor, and rounded if the numbers are still too large for a bucket of
// the burst.
func (c Charge) smallestRefill() (tokens, micros int64) {
	n, per := int64(c.Limit.n), int64(ceilMicro(c.Limit.per)/time.Microsecond) // per in microseconds

	// Euclid's algorithm: a is the greatest common divisor when b is 0.
	for a, b := n, per; ; a, b = b, a%b {
		if b == 0 {
			n, per = n/a, per/a
			break
		}
	}

	// The bucket is counted in units of 1/micros of a token, and a full one must not overflow.
	if per <= maxBucket/int64(c.Limit.burst) {
		return n, per
	}

	// As many tokens as flow in within about a millisecond, and the whole microseconds that they take, rounded up: the flow is not faster.
	tokens = 1 + (1000*n-1)/per
	return tokens, (per*tokens + n - 1) / n
}

// maxBucket is the largest product of burst and micros for which Refill does not round: a row
// full of such products still fits the numbers of every store.
const maxBucket = 1 << 44

// maxFactor is the largest factor by which the numbers of an Adaptive flow are multiplied.
const maxFactor = 1024

// LearningPeriod returns the length of time by which a store measures the ceiling of an
// Adaptive charge: the limit's window, where a month is 30 days. LearningPeriod is 0 for a
// charge that learns nothing, and for a Told charge.
func (c Charge) LearningPeriod() time.Duration {
	switch l := c.Limit; {
	// Only the store knows the window of a told limit.
	case !c.Adaptive || !l.Counts() || l.kind == KindTold:
		return 0

	case l.unit != 0:
		return l.unit.usual()
	default:
		return ceilMicro(l.per)
	}
}

// probeTime is how long, at the least, one start goes first after a penalty: see docs/internals/bans.md.
const probeTime = 250 * time.Millisecond

// ceilMicro rounds a duration up to whole microseconds, the unit of every store.
func ceilMicro(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}
