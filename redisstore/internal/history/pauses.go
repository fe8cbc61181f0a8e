package history

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// PauseEnds are when the pauses end that a node knows of, by the keys of their
// budgets. Redis is told of them with the next booking, in case it forgot.
type PauseEnds struct {
	any  atomic.Bool // there may be some
	mu   sync.Mutex
	ends map[string]time.Time
}

// MostPauses bounds how many pauses a node remembers.
const MostPauses = 1 << 12

// RestorePauseEnds returns PauseEnds that know what a Snapshot holds; nil: nothing.
func RestorePauseEnds(snapshot map[string]time.Time) *PauseEnds {
	p := &PauseEnds{ends: make(map[string]time.Time, len(snapshot))}
	maps.Copy(p.ends, snapshot)
	p.any.Store(len(snapshot) > 0)
	return p
}

// Snapshot returns a copy of all that is known.
func (p *PauseEnds) Snapshot() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.ends)
}

// Note remembers a pause. Of several ends the latest counts.
func (p *PauseEnds) Note(key string, end, now time.Time) {
	if !end.After(now) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ends) >= MostPauses {
		p.sweep(now)
	}
	if len(p.ends) < MostPauses && p.ends[key].Before(end) {
		p.ends[key] = end
		p.any.Store(true)
	}
}

// Forget is for a pause that was lifted.
func (p *PauseEnds) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, key)
}

// End returns when a pause ends; the zero time if none is known.
func (p *PauseEnds) End(key string) (end time.Time) {
	if p.Empty() {
		return end
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[key]
}

// Empty reports whether no pause is known. It is cheap.
func (p *PauseEnds) Empty() bool { return !p.any.Load() }

// Known returns the pauses of some budgets that are not over.
func (p *PauseEnds) Known(keys iter.Seq[string], now time.Time) (all []wire.Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweep(now); len(p.ends) == 0 {
		return nil
	}
	seen := make(map[string]bool)
	for key := range keys {
		if end, ok := p.ends[key]; ok && !seen[key] {
			seen[key] = true
			all = append(all, wire.Pause{Key: key, Left: end.Sub(now)})
		}
	}
	return all
}

// sweep forgets what is over. The ends are locked.
func (p *PauseEnds) sweep(now time.Time) {
	maps.DeleteFunc(p.ends, func(_ string, end time.Time) bool { return !end.After(now) })
	p.any.Store(len(p.ends) > 0)
}
