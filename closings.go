package throttle

import (
	"sync"
	"sync/atomic"
	"time"
)

// closings are the budgets of which this program knows that they are closed, so that
// each time makes one event, and another when the budget is open again.
type closings struct {
	count atomic.Int32 // of known, so that starts need no lock while it is 0
	mu    sync.Mutex
	known map[Budget]closing
}

// A closing is the time for which a budget is closed, as far as it is known here.
type closing struct {
	since   time.Duration // when this program learned of it first
	learned time.Duration // and last
	until   time.Duration
}

// mostClosings is how many closed budgets are known at a time. Of others nothing is told.
const mostClosings = 1024

// add notes that a budget is closed until then. It returns false if that was known, or
// too many others are.
func (k *closings) add(b Budget, at, until time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, found := k.known[b]
	if found && at < old.until {
		return false
	}
	if len(k.known) >= mostClosings && !found {
		k.forgetOld(at)
		if len(k.known) >= mostClosings {
			return false
		}
	}
	if k.known == nil {
		k.known = make(map[Budget]closing)
	}
	if !found {
		old.since = at
	}
	old.learned, old.until = at, until
	k.known[b] = old
	k.count.Store(int32(len(k.known)))
	return true
}

// extend notes a later end.
func (k *closings) extend(b Budget, at, until time.Duration) {
	if k.add(b, at, until) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, found := k.known[b]; found {
		c.learned, c.until = at, max(c.until, until)
		k.known[b] = c
	}
}

// remove notes that a budget is open. It returns how long it was closed; false if it was
// not known to be, or only since the store was asked.
func (k *closings) remove(b Budget, asked, at time.Duration) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, found := k.known[b]
	if !found || asked < c.learned {
		return 0, false
	}
	delete(k.known, b)
	k.count.Store(int32(len(k.known)))
	return at - c.since, true
}

// forgetOld drops what must be open by now.
func (k *closings) forgetOld(at time.Duration) {
	for b, c := range k.known {
		if c.until < at {
			delete(k.known, b)
		}
	}
}
