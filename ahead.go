package throttle

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// The ahead are the callers of this program with several variants that stand in line, by budget. A
// caller that comes later does not ask for a start now where one of them waits: the start is not its
// own. So under full load it asks once for each variant and not twice, which halves what
// the store has to do.
type ahead struct {
	count atomic.Int32 // of known, so that nobody needs the lock while it is 0
	mu    sync.Mutex
	known map[lineName]*line
}

// A lineName is the line of a budget for the callers of a priority.
type lineName struct {
	budget   Budget
	priority Priority
}

// A line is what is known of a line.
type line struct {
	name    lineName
	callers int
	until   time.Duration // when the caller that asked last will start, as it was told
}

// join notes that a caller stands in a line, and was told to wait until a time. It returns the line.
func (h *ahead) join(name lineName, until time.Duration) *line {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.known[name]
	if l == nil {
		if h.known == nil {
			h.known = make(map[lineName]*line)
		}
		l = &line{name: name}
		h.known[name] = l
		h.count.Add(1)
	}
	l.callers++
	l.until = until
	return l
}

// leave notes that a caller has left a line.
func (h *ahead) leave(l *line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(h.known, l.name)
		h.count.Add(-1)
	}
}

// of returns until when a caller with the charges would have to wait, because callers whose priority
// is no lower stand in line for one of the budgets. It returns false if none do.
func (h *ahead) of(charges []store.Charge, p Priority) (until time.Duration, found bool) {
	if h.count.Load() == 0 {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range charges {
		for q := p; q <= PriorityHigh; q++ {
			l := h.known[lineName{charges[i].Budget, q}]
			if l != nil && (!found || l.until > until) {
				until, found = l.until, true
			}
		}
	}
	return until, found
}
