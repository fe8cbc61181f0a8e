package history

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// An upstream may say with every response what is left. Nearly always the store knows
// that already, and a second call for each request would be a high price for hearing it
// again. So a node compares what it is told with what it knows without asking, and
// tells the store only where others seem to have spent. See docs/internals/booking.md.

// repeatAfter is for how long after a report no other report is made of the same budget: responses
// say much the same while the store is being told.
const repeatAfter = 100 * time.Millisecond

// ReportsQuota decides whether the store should be told of a quota, and notes that it will be. It
// also returns the generation of the budget's row that the node knows, 0 if it knows none.
func (h *History) ReportsQuota(key string, c *store.Charge, q store.Quota, now time.Time) (generation int64, report bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budgets[key]
	if b == nil || b.Expired(now) {
		return 0, true
	}
	left := int64(q.Left)
	if q.Age > 0 && c.Limit.Kind() != store.KindTokenBucket {
		left -= b.startsSince(now.Add(-q.Age)) // the upstream had not counted these starts yet
	}
	report = left+tolerance(c) < b.estimatedLeft(c, q, now) && now.Sub(b.quota.asked) >= repeatAfter
	if report {
		b.quota.asked = now
	}
	return b.Generations[0].ID, report
}

// ObserveQuota remembers what the store replied to a report.
func (h *History) ObserveQuota(key string, c *store.Charge, q store.Quota, r QuotaReply, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.budgets[key]; b != nil {
		_, end := windowOf(c, q, now)
		b.quota = quotaReply{QuotaReply: r, asked: b.quota.asked, at: now, end: end}
	}
}

// estimatedLeft returns what is left of a budget as far as the node knows: what the store said last
// is left of this window, less what was booked since; or, if the store has said nothing of this
// window, the limit less the starts that the node knows.
func (b *Budget) estimatedLeft(c *store.Charge, q store.Quota, now time.Time) int64 {
	n, last := int64(c.Limit.Capacity()), &b.quota
	if last.Generation.ID != b.Generations[0].ID || !now.Before(last.end) {
		begin, _ := windowOf(c, q, now)
		return n - b.startsSince(begin)
	}
	left := last.Left - (b.Generations[0].Count - last.Generation.Count)
	if c.Limit.Kind() == store.KindTokenBucket {
		left = min(n, left+refill(c, now.Sub(last.at)))
	}
	return left
}

// windowOf returns the window that a quota is about, from the first moment whose starts may count in
// it; for a bucket, the times that it takes to fill up, before now and after.
func windowOf(c *store.Charge, q store.Quota, now time.Time) (begin, end time.Time) {
	switch c.Limit.Kind() {
	case store.KindFixedWindow:
		return c.Limit.Window(now)
	case store.KindTokenBucket:
		return now.Add(-c.Span()), now.Add(c.Span())
	}
	end = now.Add(min(q.Reset, c.Span()))
	return end.Add(-c.Span() - wire.Doubt), end
}

// tolerance returns by how much a quota may fall short of the estimate without a report: by what
// flows into a bucket within a second, and by nothing in a window.
func tolerance(c *store.Charge) int64 {
	if c.Limit.Kind() != store.KindTokenBucket {
		return 0
	}
	return refill(c, time.Second)
}

// refill returns how many tokens flow into a bucket within d.
func refill(c *store.Charge, d time.Duration) int64 {
	tokens, micros := c.Refill()
	return int64(float64(d/time.Microsecond) * float64(tokens) / float64(micros))
}
