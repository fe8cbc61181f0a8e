package promthrottle

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// mostClosed is for how many closed budgets of a policy the end is kept at a time. For all others together only the latest end
// is kept.
const mostClosed = 64

// A closed knows until when the budgets of a policy are closed, and sets its gauge to the last end.
type closed struct {
	gauge prometheus.Gauge

	mu   sync.Mutex
	ends map[string]time.Time // by the budget's name
	rest time.Time            // the latest end of budgets that found no room in ends
}

// close notes that a budget is closed until a time, and sets the gauge. An end that is earlier than the budget's known end changes nothing.
func (c *closed) close(budget string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Forget ends that have passed, to make room for budgets that are closed.
	now := time.Now()
	for b, end := range c.ends {
		if !end.After(now) {
			delete(c.ends, b)
		}
	}

	end, known := c.ends[budget]
	switch {
	// Without room for the budget, keep its end in rest.
	case !known && len(c.ends) >= mostClosed:
		c.rest = later(c.rest, until)
	case c.ends == nil:
		c.ends = map[string]time.Time{budget: until}
	default:
		c.ends[budget] = later(end, until)
	}

	c.tell(until)
}

// open notes that a budget is open. If the budget had the latest end, the gauge falls to the latest
// end among the remaining budgets, or to now if that is later. A budget whose end is not kept, or has passed, changes nothing.
func (c *closed) open(budget string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end, known := c.ends[budget]

	// An end in the past is true as it is.
	if now := time.Now(); known && end.After(now) {
		delete(c.ends, budget)
		c.tell(now)
	}
}

// tell sets the gauge to the latest end, or to least if that is later. The mutex is held.
func (c *closed) tell(least time.Time) {
	latest := later(least, c.rest)
	for _, end := range c.ends {
		latest = later(latest, end)
	}
	c.gauge.Set(float64(latest.UnixMilli()) / 1000)
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
