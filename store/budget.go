package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// A Budget names what one policy counts for one key. Group is not part of the
// name: two programs whose other policies differ have different groups for one budget.
// Budgets of one booking share their Group, so that a store can queue its calls by group.
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
	Cost   int           // at least 1 and at most Limit.Capacity
	Jitter time.Duration // resolved: 0 means none, a microsecond the part that the store's clock leaves out; see Policy.Jitter
	Shadow bool          // counts, but neither holds nor refuses
	Node   bool          // the budget is this Store's own and not the fleet's; see Policy.Scope

	// Adaptive says that the budget's ceiling counts, if it has one: starts are booked
	// as if the limit were so much smaller, but a cost that is larger fits an idle
	// budget. See Store.Refuse.
	Adaptive bool

	// KeepFree is how much of the limit the start must leave free: it is
	// booked as if the limit, or the burst of a TokenBucket, were so much smaller.
	// Later starts may use what it left.
	KeepFree int

	// Pace is for SlidingWindow charges. If it is not 0 and the charge alone makes
	// the request wait, the start keeps Pace times its own cost away from all
	// others still to come. So a queue does not leave in bursts.
	Pace time.Duration

	// Share is the part of the budget's callers to which the caller belongs: see [Share].
	Share Share
}

// A Share is a part of the callers of one budget: a tenant, a job, an agent. While callers wait
// in the budget's line, the shares with callers of one priority take turns, by weight. Within a
// share the first to come is the first served. The zero Share is that of all callers
// without one.
type Share struct {
	ID     uint64 // a hash of the policy's name and the share's name, below 2^53; 0: no share
	Weight int    // 1 to 1000; 0 means 1
}

// BudgetOf returns the budget that a policy of this name has for a key, as a policy's Key would
// return it; "" if the policy has none. Programs can so find a budget that events, metrics or
// the fleet's commands name, without a request. Its Group is empty: the group
// depends on the other policies of a program.
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

// ShareOf returns the ID of the share that a policy of this name has for a name, as a policy's Share
// would return it; 0, which is no share, for "". Programs can so find a share in [Status].Shares,
// which holds no names.
func ShareOf(policy, share string) uint64 {
	if share == "" {
		return 0
	}
	k := budgetKey(policy, share)
	return max(2, binary.BigEndian.Uint64(k[:])>>11) // 53 bits, which every store can hold; 1 is for shares beyond those that a budget tells apart
}

// A Priority is how much a request matters. It decides which of the waiters in line
// goes first and, with a policy's Headroom, how much a request must leave free.
// High goes before Normal, and Normal before Low, however long the others have
// waited. A start that is booked, for the next second at most, is never taken away
// again.
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

// Span returns the length in which a store counts a SlidingWindow charge, and the
// time that one unit of a LeakyBucket charge occupies, in whole microseconds.
// It is 0 for a Concurrency charge, and for a FixedWindow one, whose windows come from
// [Limit.Window] and whose starts keep out of the last Jitter of each. For an Unlimited
// charge it is how long, at the least, one start goes first after a penalty: nothing
// else counts there.
//
// A sliding span is per and Jitter and a microsecond: two starts a span apart
// are never in one closed interval of length per, nor are their arrivals if
// neither is later than Jitter. A paced unit is (per + Jitter) / n, so that a
// window of per at the upstream never holds more than n arrivals; and, if there is
// a Jitter, at least a microsecond longer than per / n, so that starts are per / n
// apart whatever parts of a microsecond the store's clock leaves out.
func (c Charge) Span() time.Duration {
	length := ceilMicro(c.Limit.per + c.Jitter)
	switch c.Limit.kind {
	case KindSlidingWindow:
		return length + time.Microsecond
	case KindLeakyBucket:
		n := time.Duration(c.Limit.n)
		spaced := ceilMicro((c.Limit.per+n-1)/n) + min(c.Jitter, time.Microsecond)
		return max(spaced, ceilMicro((length+n-1)/n))

	case KindTokenBucket:
		tokens, micros := c.Refill()
		return time.Duration((int64(c.Limit.burst)*micros+tokens-1)/tokens)*time.Microsecond + ceilMicro(c.Jitter)
	case KindUnlimited:
		return probeTime
	}

	return 0
}

// Refill returns the flow into the bucket of a TokenBucket charge, in numbers that
// stores can count with: tokens flow in every micros microseconds. The flow is exact
// where that is possible in small numbers, else a little slower, by less than
// one part in a thousand.
//
// A store sees to it that in any interval of length d the starts' costs sum to
// at most burst + max(0, d - Jitter)·tokens/micros; then their arrivals, each
// up to Jitter late, never exceed what the upstream's bucket holds.
//
// Both numbers of an Adaptive charge are multiplied by one factor, as large as stores can hold
// and at most 1024, so that a part of the flow is a whole number, too.
func (c Charge) Refill() (tokens, micros int64) {
	tokens, micros = c.smallestRefill()
	if c.Adaptive {
		factor := max(1, min(mostFactor, maxBucket/(int64(c.Limit.burst)*micros)))
		tokens, micros = tokens*factor, micros*factor
	}
	return tokens, micros
}

// smallestRefill is Refill in the smallest numbers: n tokens per window, divided by their greatest
// common divisor, and rounded if the numbers are still too large for a bucket of the burst.
func (c Charge) smallestRefill() (tokens, micros int64) {
	n, per := int64(c.Limit.n), int64(ceilMicro(c.Limit.per)/time.Microsecond)
	for a, b := n, per; ; a, b = b, a%b {
		if b == 0 {
			n, per = n/a, per/a
			break
		}
	}
	if per <= maxBucket/int64(c.Limit.burst) {
		return n, per
	}
	tokens = 1 + (1000*n-1)/per
	return tokens, (per*tokens + n - 1) / n
}

// maxBucket is the largest product of burst and micros for which Refill does not round: a row
// full of such products still fits the numbers of every store.
const maxBucket = 1 << 44

// mostFactor is by how much the numbers of an Adaptive flow are multiplied at the most.
const mostFactor = 1024

// LearningPeriod returns the length of time by which a store measures what an Adaptive charge
// has learned: the limit's window, a month for 30 days; 0 if the charge learns nothing.
func (c Charge) LearningPeriod() time.Duration {
	switch l := c.Limit; {
	case !c.Adaptive || !l.Counts():
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

// Status is what a budget looks like at one moment. Used, Booked and Waiting are sums of
// costs, as a limit is.
//
// Starts of a large limit are counted together for a 128th of its window. Once one of
// them has come, all of them are in Used: it never says less than has started, and what it
// says too much, Booked and Waiting say too little.
//
// Callers counts callers, and not those whose start is booked. Where a store lists only the first callers of a long line, the
// number of the others is an estimate by their costs: it is exact if all callers of the line cost the same. A store that cannot
// tell leaves it 0.
type Status struct {
	Limit   Limit
	Used    int           // of starts that have come and count now, and of what is in flight
	Booked  int           // of starts that are booked for later
	Waiting int           // of all that wait: with a start that is booked, or in line without one
	Callers int           // how many callers stand in line, whatever they cost: see below
	Wait    time.Duration // how long a request of cost 1 would wait if it came now
	Paused  time.Duration // how long a penalty still closes the budget; 0: open

	// Repeated is how many times in a row the last penalty was met again right after
	// its end, so that it lasts longer each time.
	Repeated int

	// Ceiling is how much of Limit.N an Adaptive policy may use at most, as far as the
	// fleet has learned, cut off after three decimals; 0 if the limit alone counts. It
	// rises with time. Windows hold whole starts.
	Ceiling float64

	// Shares are those whose callers stand in the line for a start, and those that had
	// turns just now beside them, by ID, and nil without shares: at most 128, and in memory any number. A store in which
	// shares take no turns leaves it nil.
	Shares []ShareStatus
}

// A ShareStatus is what one share of a budget's callers looks like at one moment. Callers without a
// share have the ID 0; those of shares beyond the most that a budget tells apart have the ID 1 together.
type ShareStatus struct {
	Share
	Waiting int // the costs of its callers in line
	Served  int // the costs of the turns that it had since its callers began to wait; -1: the store had no room to count them
}
