package redisstore

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// An upstream may say with every answer what is left. Nearly always the store knows
// that already, and a second call for each request would be a high price for
// hearing it again. So a program compares what it is told with what it knows
// without asking, and tells the store only where others seem to have spent. See
// docs/booking.md.

// Said is what the store answered last when it was told what is left of a budget.
type said struct {
	asked time.Time
	at    time.Time
	end   time.Time // of the window that it was about
	left  int64     // in the store's own belief,
	birth int64     // when the row was in this life
	count int64     // and had counted so many starts
}

const (
	doubt = 2 * time.Second        // a reset may be so much too late, as in lua/reconcile.lua
	burst = 100 * time.Millisecond // what is answered while the store is told says much the same
)

// worth reports whether the store should be told, and which life of the row the
// program knows; 0 if none.
func (m *memory) worth(key string, c *throttle.Charge, q throttle.Quota, now time.Time) (birth int64, worth bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.budgets[key]
	if r == nil || r.over(now) {
		return 0, true
	}
	left := int64(q.Left)
	if q.Age > 0 && c.Limit.Kind() == throttle.KindSlidingWindow {
		left -= r.since(now.Add(-q.Age)) // not known to who said so
	}
	worth = left+grace(c) < r.believed(c, q, now) && now.Sub(r.said.asked) >= burst
	if worth {
		r.said.asked = now
	}
	return r.lives[0].birth, worth
}

// believed is what is left as far as the program knows: what the store said of this
// window less what was booked since, or else less than the limit by all that was
// heard of.
func (r *recall) believed(c *throttle.Charge, q throttle.Quota, now time.Time) int64 {
	n, s := int64(c.Limit.Capacity()), &r.said
	if s.birth != r.lives[0].birth || !now.Before(s.end) {
		begin, _ := windowOf(c, q, now)
		return n - r.since(begin)
	}
	left := s.left - (r.lives[0].count - s.count)
	if c.Limit.Kind() == throttle.KindTokenBucket {
		left = min(n, left+flowing(c, now.Sub(s.at)))
	}
	return left
}

// since counts the starts that may have been since a time: not fewer than were
// heard of.
func (r *recall) since(t time.Time) (n int64) {
	for _, s := range r.starts {
		if !s.by.Before(t) {
			n += s.n
		}
	}
	return n
}

// answered remembers what the store said: what is left, the count and the birth.
func (m *memory) answered(key string, c *throttle.Charge, q throttle.Quota, v numbers, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.budgets[key]; r != nil {
		_, end := windowOf(c, q, now)
		r.said = said{asked: r.said.asked, at: now, end: end, left: v.at(0), count: v.at(1), birth: v.at(2)}
	}
}

// windowOf returns the window that a statement is about, with all that may count
// as spent of it; for a bucket, the time in which it fills up.
func windowOf(c *throttle.Charge, q throttle.Quota, now time.Time) (begin, end time.Time) {
	switch c.Limit.Kind() {
	case throttle.KindFixedWindow:
		return c.Limit.Window(now)
	case throttle.KindTokenBucket:
		return now.Add(-c.Span()), now.Add(c.Span())
	}
	end = now.Add(min(q.Reset, c.Span()))
	return end.Add(-c.Span() - doubt), end
}

// grace is by how much a statement may fall short of what is believed: by what flows
// into a bucket within a second.
func grace(c *throttle.Charge) int64 {
	if c.Limit.Kind() != throttle.KindTokenBucket {
		return 0
	}
	return flowing(c, time.Second)
}

// flowing is how much flows into a bucket.
func flowing(c *throttle.Charge, d time.Duration) int64 {
	tokens, each := c.Refill()
	return int64(float64(d/time.Microsecond) * float64(tokens) / float64(each))
}
