package redisstore

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A caller is one operation on its way through a lane.
type caller struct {
	wire.Op
	turn   *turn // what it has in lines; nil: it was in none
	joined time.Time
	alone  bool // it must not share a run
	single bool // nor a call

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

// newCaller returns a caller for a booking. The booking is its owner's again
// when Book returns, even if a call is still on its way, so it is copied.
func (s *Store) newCaller(b *throttle.Booking) *caller {
	c, _ := s.callers.Get().(*caller)
	if c == nil {
		c = &caller{done: make(chan struct{}, 1)}
	}
	*c = caller{
		done: c.done, joined: time.Now(),
		Op: wire.Op{
			Charges: append(c.Charges[:0], b.Charges...), MaxWait: waitArg(b.MaxWait),
			NotBefore: b.NotBefore, Spread: b.Spread, Horizon: b.Horizon, Class: classOf(b.Priority),
		},
	}
	c.has(b.Instead)
	if b.Horizon > 0 {
		c.turn = s.turnOf(b)
		c.Returns = b.Returns && (c.turn == nil || c.turn.started)
	}
	c.alone = slices.ContainsFunc(c.Charges, func(ch throttle.Charge) bool { return wire.Holds(&ch) })
	return c
}

// free lets another question use c, whose answer was awaited.
func (s *Store) free(c *caller) { s.callers.Put(c) }

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

// undoing returns the caller that gives back a start, or a place in line, of one that
// has left.
func (c *caller) undoing(mark int64) *caller {
	back := &caller{
		Op:     wire.Op{Kind: wire.Cancel, Charges: slices.Clone(c.Charges), Spread: c.Spread},
		joined: time.Now(), done: make(chan struct{}, 1),
	}
	back.has(mark)
	return back
}

// has says what the caller has: the start, or the place in line for concurrency, that
// a grant's Mark names.
func (c *caller) has(mark int64) { c.Start, c.Arrival = max(0, mark), max(0, -mark) }

// waitArg is the longest wait in microseconds; negative means any.
func waitArg(d time.Duration) int64 {
	if d < 0 {
		return wire.AnyWait
	}
	return int64(d / time.Microsecond)
}
