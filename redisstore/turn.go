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
	tickets []ticket
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

// A ticket is a place in the line of one budget: see lua/queue.lua.
type ticket struct {
	budget [16]byte
	line   int64
	number int64
	state  int64
	round  int64
}

// ticketHad is the state of a ticket whose owner had its start.
const ticketHad = 3

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
		s.join(c)
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
		charges: t.charges, maxWait: giveBack, turn: left, class: t.class, joined: time.Now(), done: make(chan struct{}, 1),
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
			tickets[i].state = ticketHad
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
		s.join(q)
	}
}

// appendTickets appends the caller's tickets to the arguments of a call, each for the
// charge that it belongs to. Of those that the call says something of, at says where they
// stand; nil: of all.
func (c *caller) appendTickets(n wire.Frame, at []int) wire.Frame {
	if c.turn == nil {
		return n
	}
	for _, t := range c.turn.tickets {
		i := slices.IndexFunc(c.charges, func(ch throttle.Charge) bool { return ch.Budget.Key == t.budget })
		if at != nil {
			i = slices.Index(at, i)
		}
		n = n.Add(int64(i)+1, t.line, t.number, t.state, t.round)
	}
	return n
}

// turns is 1 for a caller that has been in line.
func (c *caller) turns() int {
	if c.turn == nil {
		return 0
	}
	return 1
}

// countTickets returns how many those are.
func (c *caller) countTickets() int64 {
	if c.turn == nil {
		return 0
	}
	return int64(len(c.turn.tickets))
}

// stand notes what a call said of a caller's places in line. The lanes are locked.
func (s *Store) stand(c *caller) {
	t, o := c.turn, &c.outcome
	switch {
	case c.maxWait < anyWait || o.again:
		return
	case !o.stands && t == nil:
		return
	case !o.stands:
		t.stands, t.started = false, t.started || o.booked
		for i := range t.tickets {
			t.tickets[i].state = ticketHad
		}
		return
	case t == nil:
		t = new(turn)
		c.turn = t
	}
	t.charges, t.class, t.stands = slices.Clone(c.charges), c.class, true
	t.tickets = t.tickets[:0]
	for _, told := range o.tickets {
		told.budget = c.charges[told.budgetIndex].Budget.Key
		t.tickets = append(t.tickets, told.ticket)
	}
	if !c.left {
		c.ready = s.queues.add(s, t, c)
	}
}
