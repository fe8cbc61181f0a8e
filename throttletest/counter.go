package throttletest

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A counter counts the requests of one budget as an upstream does. It shares no code with the
// stores, so that a mistake of theirs is seen.
type counter struct {
	limit       store.Limit
	bannedUntil time.Time

	counted  []spent   // of windows: the requests that may still count, the oldest first
	level    float64   // of a TokenBucket: the tokens at filledAt
	filledAt time.Time // of a TokenBucket
	freeAt   time.Time // of a LeakyBucket: when the next request may come
	inFlight int       // of Concurrency
}

// spent is the cost of one request, at its time.
type spent struct {
	at   time.Time
	cost int
}

// newCounter returns the counter of a budget of which nothing is used. A TokenBucket is full.
func newCounter(l store.Limit, at time.Time) *counter {
	return &counter{limit: l, level: float64(l.Capacity()), filledAt: at}
}

// rounding is how many tokens may be missing although there is room, because a float64 is rounded.
const rounding = 1e-6

// room reports whether a request of a cost has room at a time. If it has not, wait is the time
// until it has, or 0 if that time is unknown. If it has room, wait means nothing. count is the use of
// the limit, with this request, or 0 for a limit that counts no requests. room forgets requests that
// have left the window.
func (c *counter) room(at time.Time, cost int) (wait time.Duration, count int, ok bool) {
	switch c.limit.Kind() {
	case store.KindSlidingWindow:
		c.forget(func(s spent) bool { return at.Sub(s.at) >= c.limit.Per() })
		count = c.sum() + cost
		return c.untilFreed(at, count-c.limit.N()), count, count <= c.limit.N()

	case store.KindFixedWindow:
		start, end := c.limit.Window(at)
		c.forget(func(s spent) bool { return s.at.Before(start) })
		count = c.sum() + cost
		return end.Sub(at), count, count <= c.limit.N()

	// A leaky bucket counts no requests: it only keeps them apart.
	case store.KindLeakyBucket:
		return c.freeAt.Sub(at), 0, !at.Before(c.freeAt)

	case store.KindTokenBucket:
		missing := float64(cost) - c.tokens(at)
		return time.Duration(missing * float64(c.limit.Per()) / float64(c.limit.N())), 0, missing <= rounding

	case store.KindConcurrency:
		count = c.inFlight + cost
		return 0, count, count <= c.limit.N()
	}

	// Unlimited and Told always have room.
	return 0, 0, true
}

// add counts a request that arrives at a time. Unlimited and Told count nothing.
func (c *counter) add(at time.Time, cost int) {
	switch c.limit.Kind() {
	case store.KindSlidingWindow, store.KindFixedWindow:
		c.counted = append(c.counted, spent{at, cost})
	case store.KindLeakyBucket:
		c.freeAt = at.Add(time.Duration(float64(c.limit.Per()) * float64(cost) / float64(c.limit.N())))
	case store.KindTokenBucket:
		c.level, c.filledAt = c.tokens(at)-float64(cost), at
	case store.KindConcurrency:
		c.inFlight += cost
	}
}

// end notes that the answer to a request is written. Only Concurrency counts until then.
func (c *counter) end(cost int) {
	if c.limit.Kind() == store.KindConcurrency {
		c.inFlight -= cost
	}
}

// tokens returns the tokens that a TokenBucket has at a time.
func (c *counter) tokens(at time.Time) float64 {
	// Tokens flow in all the time, not at the beginning of each window.
	flow := float64(c.limit.N()) * float64(at.Sub(c.filledAt)) / float64(c.limit.Per())
	return min(float64(c.limit.Capacity()), c.level+flow)
}

// forget drops the oldest requests, as long as they do not count any more.
func (c *counter) forget(isOver func(spent) bool) {
	n := 0
	for n < len(c.counted) && isOver(c.counted[n]) {
		n++
	}
	c.counted = c.counted[n:]
}

// sum returns the cost of the requests that count.
func (c *counter) sum() (n int) {
	for _, s := range c.counted {
		n += s.cost
	}
	return n
}

// untilFreed returns how long it takes until counted requests with a cost of at least missing have left
// the window, or 0 if all together cost less.
func (c *counter) untilFreed(at time.Time, missing int) time.Duration {
	freed := 0
	for _, s := range c.counted {
		freed += s.cost

		// When this request leaves the window, all before it have left.
		if freed >= missing {
			return s.at.Add(c.limit.Per()).Sub(at)
		}
	}
	return 0
}
