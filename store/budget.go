package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// A Budget names the starts that one policy counts for one key. Group is not part of the
// name: two programs whose remaining policies differ have different groups for one budget.
// All budgets of one booking have the same Group, so that a store can queue its calls by
// group.
type Budget struct {
	Policy string   // the policy's name
	Group  string   // policies that can match the same request share it
	Key    [16]byte // a hash of the policy's name and the key: the key itself stays in the program
}

// String returns the policy's name and the hashed key, for logs and metrics.
func (b Budget) String() string { return b.Policy + "/" + hex.EncodeToString(b.Key[:6]) }

// A Charge is what one request costs one budget.
type Charge struct {
	Budget Budget
	Limit  Limit
	Cost   int // at least 1 and at most Limit.Capacity

	// Jitter is how long after its grant a start may arrive at the upstream. It is
	// resolved: 0 means no jitter, and a microsecond is the part that the store's clock
	// leaves out. See Policy.Jitter.
	Jitter time.Duration

	Shadow bool // the charge is counted, but neither holds nor refuses the caller
	Node   bool // the budget belongs to this Store alone, and not to the fleet: see Policy.Scope

	// Adaptive says that the ceiling of the budget counts, if it has one: starts are booked
	// as if the limit were the ceiling, except that a larger cost still fits an idle
	// budget. See Store.Refuse.
	Adaptive bool

	// KeepFree is how many units of the limit the start must leave free: the start is
	// booked as if the limit, or the burst of a TokenBucket, were smaller by KeepFree.
	// Later starts may use these units.
	KeepFree int

	// Pace is for SlidingWindow charges. If Pace is not 0 and this charge alone makes the
	// request wait, no later start comes within Pace times the charge's cost. So a queue
	// does not leave in bursts.
	Pace time.Duration

	// Share is the share of the budget to which the caller belongs. The zero Share is the
	// share of all callers that name none.
	Share Share
}

// A Share is a group of callers of one budget: a tenant, a job, an agent. While callers
// wait in the budget's line, the shares with callers of one priority take turns, by weight.
// Within a share callers are served in the order of their arrival. All callers without a
// share have the zero Share.
type Share struct {
	ID     uint64 // a hash of the policy's name and the share's name, below 2^53; 0 for callers without a share
	Weight int    // from 1 to 1000, where 0 means 1
}

// BudgetOf returns the budget that a policy of this name has for a key, as the policy's Key
// returns it. A policy without a Key has the budget of the key "". By BudgetOf a program
// finds, without a request, a budget that events, metrics or the fleet's commands name. The
// Group of the result is empty, because a group depends on all policies of a program.
func BudgetOf(policy, key string) Budget { return Budget{Policy: policy, Key: budgetKey(policy, key)} }

// budgetKey hashes a policy's name and a key, so that no two pairs share a
// budget and the key itself stays here.
func budgetKey(policy, key string) (k [16]byte) {
	var room [192]byte
	b := binary.AppendUvarint(room[:0], uint64(len(policy)))
	b = append(append(b, policy...), key...)
	sum := sha256.Sum256(b)
	copy(k[:], sum[:])
	return k
}

// ShareOf returns the ID of the share that a policy of this name has for a share's name, as
// the policy's Share returns it. The ID of "" is 0, which is no share. By ShareOf a program
// finds its share in [Status].Shares, which holds no names.
func ShareOf(policy, share string) uint64 {
	if share == "" {
		return 0
	}
	k := budgetKey(policy, share)
	return max(2, binary.BigEndian.Uint64(k[:])>>11) // 53 bits, which every store can hold; the ID 1 is taken, see ShareStatus
}

// A Priority is how much a request matters. The priority decides which waiter in line goes
// first and, with a policy's Headroom, how many units of the limit a request must leave
// free. High goes before Normal, and Normal before Low, however long the waiters of lower
// priority have waited. A booked start, which is at most a horizon away, is never taken
// away by a request of higher priority.
type Priority int8

// The priorities.
const (
	PriorityLow    Priority = -1 // batch work
	PriorityNormal Priority = 0  // the default
	PriorityHigh   Priority = 1  // a user is waiting for it
)

// String returns the priority's name in lower case.
func (p Priority) String() string {
	switch p {
	case PriorityLow:
		return "low"
	case PriorityNormal:
		return "normal"
	case PriorityHigh:
		return "high"
	}
	return fmt.Sprintf("priority %d", int8(p))
}

// Span returns the length of time for which a store counts a SlidingWindow charge, and the
// time that one unit of a LeakyBucket charge occupies, in whole microseconds. Span is 0 for
// a Concurrency charge, and for a FixedWindow charge, whose windows come from
// [Limit.Window] and whose starts keep out of the last Jitter of each window. For an
// Unlimited charge Span is the least time for which one start goes first after a penalty:
// an unlimited budget counts nothing. Span is the same for a Told charge, whose window only
// the store knows.
//
// The span of a sliding window is per, Jitter and one microsecond: two starts a span apart
// are never in one closed interval of length per, nor are their arrivals if neither arrival
// is later than Jitter. A paced unit is (per + Jitter) / n, so that a window of per at the
// upstream never holds more than n arrivals. If there is a Jitter, a paced unit is at least
// a microsecond longer than per / n, so that starts are per / n apart whatever fraction of
// a microsecond the store's clock leaves out.
func (c Charge) Span() time.Duration {
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
		// A full bucket of spent tokens has flowed in again by then.
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
	n, per := int64(c.Limit.n), int64(ceilMicro(c.Limit.per)/time.Microsecond)

	// Euclid's algorithm: a is the greatest common divisor when b is 0.
	for a, b := n, per; ; a, b = b, a%b {
		if b == 0 {
			n, per = n/a, per/a
			break
		}
	}

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
// charge that learns nothing.
func (c Charge) LearningPeriod() time.Duration {
	switch l := c.Limit; {
	case !c.Adaptive || !l.Counts() || l.kind == KindTold:
		return 0 // the store knows the window of a told limit
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

// Status is the state of a budget at one moment. Used, Booked and Waiting are sums of
// costs, in the units of the limit.
//
// Starts of a large limit are counted together for a 128th of its window. Once one of these
// starts has come, all of them are in Used. So Used is never lower than the number of
// starts, and Booked and Waiting are lower by the difference.
type Status struct {
	Limit   Limit
	Used    int           // costs of starts that have come and still count, and of requests in flight
	Booked  int           // costs of starts that are booked for later
	Waiting int           // costs of all waiters: with a booked start, or in line without one
	Wait    time.Duration // how long a request of cost 1 would wait if it came now, without the unknown wait for a slot
	Paused  time.Duration // how long a penalty still closes the budget; 0 while the budget is open

	// Callers is how many callers stand in line, whatever they cost. Callers with a booked
	// start are not among them. Where a store lists only the first callers of a long line,
	// Callers estimates the rest by their costs, which is exact if all callers of the line
	// cost the same. A store that cannot tell leaves Callers 0.
	Callers int

	// Repeated is how many refusals in a row came right after the end of the penalty before,
	// each of which made the next penalty longer.
	Repeated int

	// Ceiling is the part of Limit.N that an Adaptive policy may use, as the fleet has
	// learned it, cut off after three decimals. It rises with time. Windows hold whole
	// starts. Zero means that the limit alone counts.
	Ceiling float64

	// Told is the limit that the upstream has told, and that a budget under [Told] keeps. The
	// zero Limit says that no limit is told. ToldAgo is how long ago an answer told it last.
	Told    Limit
	ToldAgo time.Duration

	// Shares lists the shares whose callers stand in the line for a start, and the shares
	// that had turns beside them lately, by ID: at most 128, and in memory any number. Shares
	// is nil without shares, and in a store in which shares take no turns.
	Shares []ShareStatus
}

// A ShareStatus is the state of one share of a budget at one moment. Callers without a
// share have the ID 0. Callers of shares that the budget no longer tells apart have the ID
// 1 together.
type ShareStatus struct {
	Share
	Waiting int // the costs of its callers in line
	Served  int // the costs of its turns since its callers began to wait, or -1 if the store had no room to count them
}
