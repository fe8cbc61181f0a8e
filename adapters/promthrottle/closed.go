package promthrottle

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// mostClosed is how many closed budgets of a policy are known at a time. Of any more budgets only the
// last end is known.
const mostClosed = 64

// A closed knows until when the budgets of a policy are closed, and sets its gauge to the last end.
type closed struct {
	gauge prometheus.Gauge

	mu   sync.Mutex
	ends map[string]time.Time // by the budget's name
	rest time.Time            // of budgets that found no room
}

// close notes that a budget is closed until a time.
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
	// Beyond the bound, one end stands for all further budgets: the latest.
	case !known && len(c.ends) >= mostClosed:
		c.rest = later(c.rest, until)
	case c.ends == nil:
		c.ends = map[string]time.Time{budget: until}
	default:
		c.ends[budget] = later(end, until)
	}

	c.tell(until)
}

// open records that a budget is open. If this budget had the last end, the gauge falls to the last
// end among the remaining budgets, or to now.
func (c *closed) open(budget string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end, known := c.ends[budget]

	// An end that has passed needs no correction.
	if now := time.Now(); known && end.After(now) {
		delete(c.ends, budget)
		c.tell(now)
	}
}

// tell sets the gauge to the latest of last and all ends that are known. The mutex is held.
func (c *closed) tell(last time.Time) {
	last = later(last, c.rest)
	for _, end := range c.ends {
		last = later(last, end)
	}
	c.gauge.Set(float64(last.UnixMilli()) / 1000)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
