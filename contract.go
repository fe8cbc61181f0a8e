package throttle

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// The names of the contract between callers and stores that programs type. Package [store] has the
// whole contract, and documents each name.
type (
	// A Store keeps budgets and books starts in them.
	Store = store.Store

	// A Limit is a sentence that can be checked, such as "at most 20 starts in any second".
	Limit = store.Limit

	// A Budget names what one policy counts for one key.
	Budget = store.Budget

	// A Quota is an upstream's statement of the free part of one budget.
	Quota = store.Quota

	// A Priority is how much a request matters.
	Priority = store.Priority

	// A Place is a caller's place in line, which [Limiters.Reserve] returns to work that would have to wait.
	Place = store.Place

	// A Status is the state of a budget at one moment.
	Status = store.Status
)

// The units of a [CalendarWindow]. [WeekFrom] returns the units of weeks from any day.
const (
	Day     = store.Day     // from midnight to midnight
	Week    = store.Week    // from Monday, as in ISO 8601
	Month   = store.Month   // from the 1st
	Quarter = store.Quarter // from the 1st of January, April, July and October
	Year    = store.Year    // from the 1st of January
)

// WeekFrom returns the unit of a week that begins on a day, such as [time.Sunday].
func WeekFrom(day time.Weekday) store.Unit { return store.WeekFrom(day) }

// The priorities.
const (
	PriorityLow    = store.PriorityLow    // batch work
	PriorityNormal = store.PriorityNormal // the default
	PriorityHigh   = store.PriorityHigh   // a user is waiting for it
)

// Never is the RetryAfter of a [LimitError] where no wait helps: the cost is above
// the limit, or the limit's next window is further away than any start is booked.
const Never = store.Never

// MaxPenalty caps what any [Policy.Answer] can close a budget for, so that no
// answer, however wrong or hostile, stops a fleet for longer.
const MaxPenalty = store.MaxPenalty

// SlidingWindow allows at most n starts in any interval of length per. It is
// right against every upstream that counts n per interval, whatever kind of
// window that upstream uses, because each of its windows is one interval.
func SlidingWindow(n int, per time.Duration) Limit { return store.SlidingWindow(n, per) }

// PerSecond is [SlidingWindow](n, time.Second).
func PerSecond(n int) Limit { return store.PerSecond(n) }

// PerMinute is [SlidingWindow](n, time.Minute).
func PerMinute(n int) Limit { return store.PerMinute(n) }

// PerHour is [SlidingWindow](n, time.Hour).
func PerHour(n int) Limit { return store.PerHour(n) }

// FixedWindow allows at most n starts in each window of length per, aligned to
// the Unix epoch by the store's clock. It uses all of a quota where the
// upstream resets at those moments, and passes up to 2n around an edge where it
// does not: when in doubt, use [SlidingWindow].
func FixedWindow(n int, per time.Duration) Limit { return store.FixedWindow(n, per) }

// CalendarWindow allows at most n starts in each day, week, month, quarter or year of the
// calendar in the time zone loc. A nil loc means UTC. Days of 23 and 25 hours and months of
// any length are counted as the calendar has them.
func CalendarWindow(n int, unit store.Unit, loc *time.Location) Limit {
	return store.CalendarWindow(n, unit, loc)
}

// LeakyBucket spaces starts out: at least per/n lies between two of them, and
// a start of cost c keeps the next one away c times as long. Nothing is saved
// up in quiet moments.
func LeakyBucket(n int, per time.Duration) Limit { return store.LeakyBucket(n, per) }

// TokenBucket allows the starts that a bucket of burst tokens allows, into which n tokens
// flow in each per, evenly: in any interval of length d at most burst and d·n/per starts
// together. TokenBucket is right where the upstream keeps such a bucket (Shopify, Amazon's
// SP-API). Where the upstream counts windows it is wrong, because it lets burst + n through
// in one window: use [SlidingWindow] there.
func TokenBucket(n int, per time.Duration, burst int) Limit { return store.TokenBucket(n, per, burst) }

// Concurrency allows at most n requests in flight at any moment. A request ends when its
// answer's body is closed, is read to its end or fails, when the request fails, or when its
// context ends, whichever comes first. The work of a [Limiter] ends with [Permit.Release].
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
func Concurrency(n int) Limit { return store.Concurrency(n) }

// Unlimited allows every start until a penalty or [Limiter.Pause] closes the budget. It is
// for a row of a provider's table whose number does not exist or is not known, although
// refusals speak of the row. A request that meets such a row obeys its penalties. While the
// budget is open it holds nothing, counts nothing and costs a store next to nothing: see
// the page on [unlimited budgets].
//
// [unlimited budgets]: https://github.com/fleetthrottle/throttle/blob/main/docs/internals/unlimited.md
func Unlimited() Limit { return store.Unlimited() }

// Told is for an API whose answers tell its limit. The budget is as under Unlimited until
// an answer tells a limit, by [Quota].Told: see the readers of package feedback. From then
// on the whole fleet keeps the told limit as a SlidingWindow, until a window and ten
// minutes after an answer told it last. Where answers disagree the tightest limit counts:
// see the page on [told limits]. For a ceiling of your own, set a second policy with a
// number.
//
// [told limits]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/bans.md#limits-that-answers-tell
func Told() Limit { return store.Told() }

// ParseLimit reads a limit the way people write it and [Limit.String] prints
// it:
//
//	40/s                      SlidingWindow; s, m, h or any Go duration
//	10000/20s                 the same; 2d is 48 hours
//	40/s paced                LeakyBucket
//	100/m fixed               FixedWindow
//	100/day                   CalendarWindow in UTC; day, week, month, quarter or year
//	500/week Sunday           CalendarWindow of weeks from Sunday; from any day of the week
//	5000/month Asia/Shanghai  CalendarWindow in a zone of the IANA database
//	7/week +08:00             CalendarWindow at an offset from UTC
//	2/s burst 40              TokenBucket
//	20 in flight              Concurrency
//	unlimited                 Unlimited
//	told                      Told
//
// Spaces around the slash, "per" instead of it, and longer names of units
// ("10000 per 20 seconds") are understood too. Words are in lower case; days of the
// week may be in any.
//
// A limit that ParseLimit returns is valid, except that its window may be too short
// for a [Policy.Jitter]. An error quotes the text that was not understood, with its
// offset, and lists the forms that are.
func ParseLimit(s string) (Limit, error) { return store.ParseLimit(s) }
