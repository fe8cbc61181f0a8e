package throttle

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

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

// LearnsPer returns the length of time by which a store measures what an Adaptive charge
// has learned: the limit's window, a month for 30 days; 0 if the charge learns nothing.
func (c Charge) LearnsPer() time.Duration {
	const day = 24 * time.Hour
	switch l := c.Limit; {
	case !c.Adaptive || !l.counts():
		return 0
	case l.unit != 0:
		return [...]time.Duration{Day: day, Week: 7 * day, Month: 30 * day}[l.unit]
	default:
		return ceilMicro(l.per)
	}
}

// The waiters of a window leave evenly. In a window of at most longestEven that is always in use
// starts are nearly per/n apart, and a store may place them a little further apart while the
// window is full. In a longer window the last requests of a short job must not wait until the
// window ends, so the starts of a full window leave within maxSpread.
const (
	longestEven = 2 * time.Second
	maxSpread   = 250 * time.Millisecond
)

// probeTime is how long, at the least, one start goes first after a penalty: see docs/internals/bans.md.
const probeTime = 250 * time.Millisecond

// pace returns the Pace of the charges of a policy with the limit. Without a Pace all waiters of
// a window would leave at one moment, come back at one moment, and be served in the order in
// which the network happened to deliver them.
func pace(l Limit) time.Duration {
	if l.kind != KindSlidingWindow || l.n < 1 {
		return 0
	}
	within := maxSpread
	if l.per <= longestEven {
		within = l.per * 9 / 10
	}
	return (within / time.Duration(l.n)).Truncate(time.Microsecond)
}

// ceilMicro rounds a duration up to whole microseconds, the unit of every store.
func ceilMicro(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// mostSettled returns the highest cost that a response can settle a charge at. Under a
// LeakyBucket each unit of cost keeps the next start away for per/n, and no response
// closes anything for longer than [MaxPenalty].
func mostSettled(c *Charge) int {
	if c.Limit.kind != KindLeakyBucket {
		return maxCost
	}
	most := float64(MaxPenalty) / float64(c.Limit.per) * float64(c.Limit.n)
	return max(c.Cost, int(min(most, maxCost)))
}

// costsOf returns the costs of charges.
func costsOf(charges []Charge) []int {
	costs := make([]int, len(charges))
	for i := range charges {
		costs[i] = charges[i].Cost
	}
	return costs
}

// checkCosts returns the error of a charge whose cost is above its limit: no wait can make it
// fit. It lowers such a cost of a shadow charge instead.
func checkCosts(charges []Charge) error {
	for i := range charges {
		c := &charges[i]
		switch most := c.Limit.capacity() - c.Reserve; {
		case c.Cost <= most:
		case c.Shadow:
			c.Cost = most // a shadow refuses nobody, so it counts as much as fits
		default:
			return &LimitError{Policy: c.Budget.Policy, Limit: c.Limit, RetryAfter: Never, cost: c.Cost}
		}
	}
	return nil
}

// BudgetOf returns the budget that a policy of this name has for a key, as [Policy.Key] would
// return it; "" if the policy has none. Programs can so find a budget that events, metrics or
// the fleet's commands name, without a request. Its Group is empty: that depends on the
// other policies of a transport.
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
