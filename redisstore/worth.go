package redisstore

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// An upstream may say with every answer what is left. Nearly always the store knows
// that already, and a second call for each request would be a high price for
// hearing it again. So a program compares what it is told with what it knows
// without asking, and tells the store only where others seem to have spent, or
// when little is left and it has not looked yet. See docs/booking.md.

// Said is what the store answered last when it was told what is left of a budget.
type said struct {
	end   time.Time // of the window that it was about
	at    time.Time
	left  int64 // in the store's own belief
	birth int64 // when the row was in this life
	count int64 // and had counted so many starts

	asked time.Time // when it was told
	quiet time.Time // until then small differences are of no interest
}

const (
	doubt = 2 * time.Second // a reset may be so much too late, as in lua/reconcile.lua

	// What is on its way when the store is told says much the same, and so do for a
	// while the answers to others of the fleet whose starts we have not heard of.
	burst     = 100 * time.Millisecond
	leastCalm = time.Second
	calmShare = 8  // of the time to the reset
	small     = 16 // a part of the limit
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
	birth = r.lives[0].birth
	n, left := int64(c.Limit.Capacity()), int64(q.Left)+grace(c)
	begin, end := windowOf(c, q, now)
	known, ok := r.believed(c, end, now)
	if !ok {
		known = max(n-r.since(begin), n/4)
	}
	if now.Before(r.said.quiet) && q.Left > 0 {
		known -= n / small
	}
	worth = left < known && now.Sub(r.said.asked) >= burst
	if worth {
		r.said.asked = now
	}
	return birth, worth
}

// believed is what the store would believe to be left; ok is false if it did not
// say so of this window.
func (r *recall) believed(c *throttle.Charge, end, now time.Time) (left int64, ok bool) {
	s := &r.said
	if s.birth != r.lives[0].birth || !now.Before(s.end) {
		return 0, false
	}
	left = s.left - (r.lives[0].count - s.count)
	if c.Limit.Kind() == throttle.Bucket {
		return min(left+flowing(c, now.Sub(s.at)), int64(c.Limit.Capacity())), true
	}
	return left, end.Sub(s.end).Abs() <= doubt
}

// since counts the starts that may have been since a time: not fewer than there
// were.
func (r *recall) since(t time.Time) (n int64) {
	for _, s := range r.starts {
		if !s.by.Before(t) {
			n += s.n
		}
	}
	return n
}

// answered remembers what the store said: left, count, birth, and whether it has
// changed anything, as it is if its last number is not 0.
func (m *memory) answered(key string, c *throttle.Charge, q throttle.Quota, v numbers, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.budgets[key]
	if r == nil {
		return
	}
	_, end := windowOf(c, q, now)
	r.said = said{end: end, at: now, left: v.at(0), count: v.at(1), birth: v.at(2), asked: r.said.asked}
	if v.at(4) == 0 {
		r.said.quiet = now.Add(max(leastCalm, end.Sub(now)/calmShare))
	}
}

// windowOf returns the window that a statement is about; for a bucket, in which
// time it fills up.
func windowOf(c *throttle.Charge, q throttle.Quota, now time.Time) (begin, end time.Time) {
	switch c.Limit.Kind() {
	case throttle.Aligned:
		return c.Limit.Window(now)
	case throttle.Bucket:
		return now.Add(-c.Span()), now.Add(c.Span())
	}
	end = now.Add(min(q.Reset, c.Span()))
	return end.Add(-c.Span() - doubt), end
}

// grace is what a statement may be less than what we believe: as much as flows into
// a bucket within a second.
func grace(c *throttle.Charge) int64 {
	if c.Limit.Kind() != throttle.Bucket {
		return 0
	}
	return flowing(c, time.Second)
}

// flowing is how much flows into a bucket.
func flowing(c *throttle.Charge, d time.Duration) int64 {
	tokens, each := c.Refill()
	return int64(float64(d/time.Microsecond) * float64(tokens) / float64(each))
}
