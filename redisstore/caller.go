package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// A caller is one question on its way through a lane: a booking, a start that
// is given back, or one whose cost is changed.
type caller struct {
	charges   []throttle.Charge
	costs     []int // the new ones, for changeCost
	mark      int64 // of a start to give back first, or to change; 0: none
	maxWait   int64 // microseconds; see anyWait and so on
	notBefore time.Duration
	spread    time.Duration
	joined    time.Time
	alone     bool // it must not share a run
	single    bool // nor a call
	told      bool // it has given the others time to tell what was lost
	horizon   time.Duration
	class     int64
	returns   bool  // it goes first in lines where it has no ticket
	turn      *turn // what it has in lines; nil: it was in none

	observer func(error)   // of an outage
	failed   chan struct{} // told when a call has failed, if there is an observer

	done    chan struct{} // told once, when the fields below are set
	outcome outcome
	ready   <-chan struct{} // the place in line; see throttle.Grant
	first   time.Time       // when the call was sent for the first time
	sent    time.Time       // and when it was sent that answered
	err     error           // why there is no outcome; while it waits, why there is none yet
	fails   int             // how many calls failed while it waited
	left    bool            // nobody waits for the answer; guarded by the lanes' lock
}

// Values of caller.maxWait that are not a wait.
const (
	anyWait    = -1
	giveBack   = -2
	changeCost = -3
	renewTurn  = -4 // who holds up a line says that it lives: see lua/queue.lua
)

// newCaller returns a caller for a booking. The booking is its owner's again
// when Book returns, even if a call is still on its way, so it is copied.
func (s *Store) newCaller(b *throttle.Booking) *caller {
	c, _ := s.callers.Get().(*caller)
	if c == nil {
		c = &caller{done: make(chan struct{}, 1)}
	}
	*c = caller{
		done: c.done, charges: append(c.charges[:0], b.Charges...), mark: b.Instead,
		maxWait: waitArg(b.MaxWait), notBefore: b.NotBefore, spread: b.Spread, joined: time.Now(),
		horizon: b.Horizon, class: classOf(b.Priority),
	}
	if b.Horizon > 0 {
		c.turn = s.turnOf(b)
		c.returns = b.Returns && (c.turn == nil || c.turn.started)
	}
	c.alone = slices.ContainsFunc(c.charges, func(ch throttle.Charge) bool { return flies(&ch) })
	return c
}

// free lets another question use c, whose answer was awaited.
func (s *Store) free(c *caller) { s.callers.Put(c) }

// await returns true when the caller has its answer, false when it waits no
// longer.
func (s *Store) await(ctx context.Context, c *caller, timeUp <-chan time.Time) bool {
	if c.observer == nil {
		return conn.Await(ctx, c.done, timeUp, nil, nil)
	}
	return conn.Await(ctx, c.done, timeUp, c.failed, func() {
		s.lanes.mu.Lock()
		why := c.unavailability()
		s.lanes.mu.Unlock()
		c.observer(s.conn.Cause(why))
	})
}

// fail notes why a call failed for which the caller waits. The lanes are locked.
func (c *caller) fail(err error) {
	c.err = err
	c.fails++
	select {
	case c.failed <- struct{}{}:
	default:
	}
}

// unavailability is why the caller has no answer yet. The lanes are locked.
func (c *caller) unavailability() conn.Unavailability {
	return conn.Unavailability{Since: c.joined, Fails: c.fails, Last: c.err}
}

// more is the last thing that the script is told of a charge.
func (c *caller) more(i int) int64 {
	switch {
	case c.maxWait == changeCost:
		return int64(c.costs[i])
	case c.charges[i].Shadow:
		return 1
	}
	return 0
}

// undoing returns the caller that gives back a start of one that has left.
func (c *caller) undoing(mark int64) *caller {
	return &caller{
		charges: slices.Clone(c.charges), mark: mark, maxWait: giveBack, spread: c.spread,
		joined: time.Now(), done: make(chan struct{}, 1),
	}
}

// waitArg is the longest wait as the scripts read it; negative means any.
func waitArg(d time.Duration) int64 {
	if d < 0 {
		return anyWait
	}
	return int64(d / time.Microsecond)
}
