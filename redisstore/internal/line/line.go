// Package line keeps the callers of a node that wait: for starts that are further away than
// they may be booked ([Starts]), and for slots of Concurrency budgets ([Slots]). Redis knows how
// much waits for starts, and the first waiters of each node for slots. It tells nodes about tickets
// and arrivals, and this package knows the callers that have them. See docs/internals/line.md and
// docs/internals/in-flight.md.
package line

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Lines are all lines in which callers of a node wait. They implement [commit.Line].
type Lines struct {
	Starts
	Slots
}

// New returns lines in which nobody waits.
func New(o *Options) *Lines {
	return &Lines{
		Starts: Starts{Options: o, all: make(map[string]*nodeLine), full: fullBudgets{all: make(map[[16]byte]*fullBudget)}, gatherings: make(gatherings)},
		Slots:  Slots{RenewEvery: renewEvery, options: o, all: make(map[string]*lease)},
	}
}

// Report implements [commit.Line].
func (l *Lines) Report(ops []*commit.Op) commit.Reports {
	if leases := l.Slots.lockRecords(ops); len(leases) > 0 {
		return &reports{&l.Slots, leases}
	}
	return nil
}

// Answered implements [commit.Line].
func (l *Lines) Answered(op *commit.Op) {
	l.Slots.answered(op)
	if op.Err == nil {
		l.Starts.answered(op)
	}
}

// moveLeast is by how much a turn must be sooner than the last guess to be worth a call, where other
// nodes have most of the line.
const moveLeast = 250 * time.Millisecond

// putOffLeast is by how much a turn in a line with shares must be later than the last guess to be put off.
const putOffLeast = 50 * time.Millisecond

// callNow is the Hurry of a reply that says: call the waiters whose turn it is now.
const callNow = 2

// Observe implements [commit.Line].
func (s *Starts) Observe(key string, l *wire.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.all[key]; n != nil {
		if l == nil {
			l = new(wire.Line) // the line has ended
		}
		n.waiting, n.heardAt, n.hurry = l.Waiting, time.Now(), l.Hurry > 0
		n.hasShares = l.HasShares
		n.firstStart = n.heardAt.Add(l.Soon)
		s.full.noteLanes(n.charge.Budget.Key, l, n.heardAt)
		n.moveUp(l)
		n.takeCuts(l.ID, cutsOf(l), l.Hurry == callNow)
	}
}

// moveUp has waiters book again sooner if their turn is sooner than the last guess, and in a line with shares later if it is later. The guess takes
// a line to be served evenly, between the starts of its first and its last waiter. The line of a
// window longer than evenMost may be served at the window's end.
func (n *nodeLine) moveUp(l *wire.Line) {
	if l.ID != n.id || n.charge.Limit.Kind() == store.KindFixedWindow {
		return // it is another line; or the waiters of a fixed window leave all at once when it begins
	}
	lateness, least := comeLate, time.Duration(0)
	if !n.isLarge() {
		least = moveLeast
	}
	if per := n.charge.Limit.Per(); per > evenMost {
		lateness += per
	}
	var lane *wire.Lane
	for i, t := range n.waiters {
		if i == 0 || t.laneID() != n.waiters[i-1].laneID() {
			lane = laneOf(l, t.laneID())
		}
		if lane == nil {
			continue
		}
		late := lateness
		if t.share != 0 {
			late -= comeLate - comeLateShare
		}
		if all := lane.Joined - lane.Cut; all > 0 && t.number >= lane.Cut {
			part := float64(t.number+t.cost-lane.Cut) / float64(all)
			wait := lane.First + time.Duration(part*float64(lane.Last-lane.First)).Truncate(time.Microsecond)
			if near := n.heardAt.Add(wait - t.horizon + late); near.Before(t.nearAt.Add(-least)) || n.hasShares && near.After(t.nearAt.Add(putOffLeast)) {
				t.setComeBy(near)
			}
		}
	}
}

// laneOf returns what a line says of a lane; nil if it says nothing.
func laneOf(l *wire.Line, id wire.LaneID) *wire.Lane {
	if k := id.Class - 1; id.Share == 0 {
		return &wire.Lane{LaneID: id, Cut: l.Cuts[k], Joined: l.Joined[k], First: l.First[k], Last: l.Last[k]}
	}
	if i := slices.IndexFunc(l.Lanes, func(o wire.Lane) bool { return o.LaneID == id }); i >= 0 {
		return &l.Lanes[i]
	}
	return nil
}

// takeCuts takes in the cuts of a line: the tickets of each lane below which it is the waiters'
// turn. It calls the waiters whose turn it is, if now says so, and all waiters if the line in Redis
// is another one than theirs.
func (n *nodeLine) takeCuts(line int64, cuts cuts, now bool) {
	switch {
	case line != n.id:
		n.starts.full.forget(n.charge.Budget.Key)
		n.callAll()
	case now:
		n.starts.full.forget(n.charge.Budget.Key)
		n.call(func(t *turn) bool { return t.number < cuts.of(t.laneID()) })
	default:
		n.setTimer()
	}
}

// Turns takes in whose turn it is.
func (s *Starts) Turns(m notify.Turns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.all[m.Key]; n != nil {
		c := cuts{classes: m.Cuts}
		for _, l := range m.Lanes {
			if l.Class >= 1 && l.Class <= 3 {
				c.set(wire.LaneID{Class: l.Class, Share: l.Share}, l.Cut)
			}
		}
		n.takeCuts(m.Line, c, true)
	}
}

// Lifted takes in that a pause has ended early: it asks how the line stands.
func (s *Starts) Lifted(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.full.all)
	if n := s.all[key]; n != nil {
		n.ask()
		n.setTimer()
	}
}

// Paused takes in a pause. It calls the waiters to which no start after its end is of use, so
// that they are refused.
func (s *Starts) Paused(key string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.all[key]; n != nil {
		n.call(func(t *turn) bool { return !t.deadline.IsZero() && t.deadline.Before(until) })
	}
}

// Lost takes in that Redis lost a budget: it calls the budget's waiters. No node finds out that an
// unlimited budget was lost, so the waiters for the end of an unlimited budget's penalty are called
// whatever was lost.
func (s *Starts) Lost(key string) {
	s.wake(func(n *nodeLine) bool { return n.key == key || wire.Unlimited(&n.charge) })
}

// Wake calls all waiters for budgets of a group.
func (s *Starts) Wake(group string) {
	s.wake(func(n *nodeLine) bool { return n.group == group })
}

// wake calls all waiters of the lines for which isCalled is true.
func (s *Starts) wake(isCalled func(*nodeLine) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.full.all)
	for _, n := range s.all {
		if isCalled(n) {
			n.callAll()
		}
	}
}
