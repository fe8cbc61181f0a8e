package redisstore

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A turn is what this store knows of a caller that waits in line for a start, or did:
// its tickets. See docs/line.md and lua/queue.lua.
type turn struct {
	charges []throttle.Charge // what it asked for last
	class   int64
	started bool // it had a start: where it has no ticket it goes before all others

	// The lock of the lanes guards the next two.
	tickets []wire.Ticket
	stands  bool // Redis believes that it waits

	// The lock of the queues guards the rest.
	queue    *queue // where it waits to be called; nil: nowhere
	number   int64  // its ticket there
	cost     int64
	ready    chan struct{}
	near     time.Time // when its start is within the horizon
	come     time.Time // when to come at the latest
	least    time.Time // and not before
	calls    int       // how often it had to stand here
	until    time.Time // a start after that is of no use; zero: any is
	horizon  time.Duration
	expected *gathering // it was called, and is not there yet
}

// comes sets when to come. There is time for some answers of the store until the start.
func (t *turn) comes(near time.Time) {
	t.near = latest(near, t.least)
	t.come = t.near.Add(max(0, min(spareMost, t.horizon/2-comeLate)))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// classOf is the class of a priority: see lua/queue.lua.
func classOf(p throttle.Priority) int64 {
	return int64(throttle.High-max(throttle.Low, min(p, throttle.High))) + 1
}

// turnOf returns what the caller of a booking has in lines. Places that are of no use
// to the booking are left.
func (s *Store) turnOf(b *throttle.Booking) *turn {
	t, _ := b.Turn.(*turn)
	if t == nil {
		return nil
	}
	if !slices.EqualFunc(t.charges, b.Charges, sameBudget) {
		s.quitLines(t)
	}
	return t
}

func sameBudget(a, b throttle.Charge) bool { return a.Budget == b.Budget && a.Cost == b.Cost }

// quitLines leaves all lines that the turn stands in.
func (s *Store) quitLines(t *turn) {
	if c := s.quitting(t); c != nil {
		s.lanes.join(c)
	}
}

// quitting returns the caller that leaves the lines of a turn, if it stands in any.
func (s *Store) quitting(t *turn) *caller {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	return t.quitting()
}

// quitting is Store.quitting where the lanes are locked.
func (t *turn) quitting() *caller {
	if t == nil || !t.stands {
		return nil
	}
	t.stands = false
	left := &turn{charges: t.charges, class: t.class, tickets: slices.Clone(t.tickets)}
	t.tickets = nil
	return &caller{
		Op:   wire.Op{Kind: wire.Cancel, Charges: t.charges, Class: t.class},
		turn: left, joined: time.Now(), done: make(chan struct{}, 1),
	}
}

// cancelTurn is Cancel for a place in line. A caller that comes back with its turn has
// kept its arrival.
func (s *Store) cancelTurn(t *turn) {
	s.queues.remove(s, t)
	s.queues.came(t)
	s.lanes.mu.Lock()
	tickets := t.tickets
	c := t.quitting()
	if c != nil {
		for i := range tickets {
			tickets[i].State = wire.HadStart
		}
		t.tickets = tickets
	}
	s.lanes.mu.Unlock()
	if c != nil {
		s.tell(c)
	}
}

// loseTurn leaves the lines of a caller whose call failed. Of one that waits no longer for
// its answer, the lane does.
func (s *Store) loseTurn(c *caller) {
	s.lanes.mu.Lock()
	left, q := c.left, (*caller)(nil)
	if !left {
		q = c.turn.quitting()
	}
	s.lanes.mu.Unlock()
	if q != nil {
		s.lanes.join(q)
	}
}

// turns is 1 for a caller that has been in line.
func (c *caller) turns() int {
	if c.turn == nil {
		return 0
	}
	return 1
}

// stand notes what a call said of a caller's places in line. The lanes are locked.
func (s *Store) stand(c *caller) {
	t, o := c.turn, &c.outcome
	switch {
	case c.Kind != wire.Reserve || o.State == wire.Unsettled:
		return
	case o.State != wire.InLine && t == nil:
		return
	case o.State != wire.InLine:
		t.stands, t.started = false, t.started || o.Booked()
		for i := range t.tickets {
			t.tickets[i].State = wire.HadStart
		}
		return
	case t == nil:
		t = new(turn)
		c.turn = t
	}
	t.charges, t.class, t.stands = slices.Clone(c.Charges), c.Class, true
	t.tickets = o.Tickets
	if !c.left {
		c.ready = s.queues.add(s, t, c)
	}
}
