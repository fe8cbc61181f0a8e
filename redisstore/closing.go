package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Closings are the pauses that a program knows of, by the keys of their budgets. A
// store that forgot a budget is told of its pause with the next booking; see
// docs/state-loss.md.
type closings struct {
	any   atomic.Bool // there may be some
	mu    sync.Mutex
	until map[string]time.Time // by our own clock
}

// mostClosings bounds how many a program remembers.
const mostClosings = 1 << 12

// note remembers a pause. Of several ends the latest counts.
func (cs *closings) note(key string, until time.Time) {
	now := time.Now()
	if !until.After(now) {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.until) >= mostClosings {
		cs.sweep(now)
	}
	if len(cs.until) < mostClosings && cs.until[key].Before(until) {
		cs.until[key] = until
		cs.any.Store(true)
	}
}

// forget is for a pause that was lifted.
func (cs *closings) forget(key string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.until, key)
}

// end returns when a pause ends; the zero time if none is known.
func (cs *closings) end(key string) (until time.Time) {
	if !cs.any.Load() {
		return until
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.until[key]
}

// sweep forgets what is over. The closings are locked.
func (cs *closings) sweep(now time.Time) {
	for key, until := range cs.until {
		if !until.After(now) {
			delete(cs.until, key)
		}
	}
	cs.any.Store(len(cs.until) > 0)
}

// known returns the keys of the charges' budgets that are closed, each followed by
// for how long, in microseconds, as lua/book.lua wants them.
func (s *Store) known(callers []*caller) (told []any) {
	cs := &s.closings
	if !cs.any.Load() {
		return nil
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.sweep(time.Now())
	if len(cs.until) == 0 {
		return nil
	}
	seen := make(map[string]bool)
	for _, c := range callers {
		for i := range c.charges {
			key := s.key(&c.charges[i].Budget)
			if until, ok := cs.until[key]; ok && !seen[key] {
				seen[key] = true
				told = append(told, key, micros(time.Until(until)))
			}
		}
	}
	return told
}

// noteHeld remembers the pause that an outcome speaks of.
func (s *Store) noteHeld(charges []throttle.Charge, o *outcome, received time.Time) {
	if o.paused > 0 && o.held >= 0 && !flies(&charges[o.held]) {
		s.closings.note(s.key(&charges[o.held].Budget), received.Add(min(waitOf(o.paused), throttle.MaxPenalty)))
	}
}
