package node

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// What a node does with the news of its lines. The answer to each call says how the lines of its budgets stand:
// the waiters' estimates follow it (moveUp), and waiters whose turn has come are summoned (takeCuts). Messages
// say whose turn it is, and that a pause has begun or ended.

// summonNow is the Hurry of a reply that says: summon the waiters whose turn it is now.
const summonNow = 2

// observeLine records what a reply said of the line for starts of the budget with a key. It summons the waiters whose turn
// it is if the reply tells a new cut, and all waiters if the line in Redis is not theirs any more: a new one has begun or,
// if said is nil, it has ended.
func (n *Node) observeLine(key string, said *wire.Line) {
	n.mu.Lock()
	defer n.mu.Unlock()

	l := n.lines[key]
	if l == nil {
		return
	}

	// Without a line the ID is 0, which no waiter's line has: takeCuts summons all waiters.
	if said == nil {
		said = new(wire.Line)
	}
	l.waiting, l.heardAt, l.hurry = said.Waiting, time.Now(), said.Hurry > 0
	l.hasShares = said.HasShares
	l.firstStart = l.heardAt.Add(said.Soon)
	for _, lane := range said.Lanes {
		n.full.NoteLast(l.charge.Budget.Key, lingerLane(lane.LaneID), l.heardAt.Add(lane.Last))
	}
	l.moveUp(said)
	l.takeCuts(said.ID, cutsOf(said), said.Hurry == summonNow)
}

const (
	minSooner = 250 * time.Millisecond // where other nodes have most of the line, a turn that is sooner by less is not worth a call
	minLater  = 50 * time.Millisecond  // in a line with shares, a turn that is later by less is not put off
)

// moveUp works out anew, from a reply, when the start of each waiter comes within its horizon (nearAt), for the lanes of
// which the reply speaks. A time that is sooner by enough replaces the old one and, in a line with shares, so does a time
// that is later by minLater. A lane is taken to be served evenly between the starts of its first and its last waiter. A
// window longer than store.MaxEvenWindow may be served at its end, so the time is later by a window.
func (l *line) moveUp(said *wire.Line) {
	// There is nothing to guess if a new line has begun. The waiters of a fixed window leave all at once when the window begins.
	if said.ID != l.id || l.charge.Limit.Kind() == store.KindFixedWindow {
		return
	}

	// Other nodes with most of the line ask Redis anyway: then only a turn that is sooner by minSooner is worth a call.
	delay, enough := summonDelay, time.Duration(0)
	if !l.isLarge() {
		enough = minSooner
	}
	if per := l.charge.Limit.Per(); per > store.MaxEvenWindow {
		delay += per
	}

	var lane *wire.Lane
	for i, t := range l.waiters {
		// All waiters of a lane are neighbours, so look each lane up once.
		if i == 0 || t.laneID() != l.waiters[i-1].laneID() {
			lane = laneOf(said, t.laneID())
		}
		if lane == nil {
			continue
		}

		// A caller with a share is summoned sooner.
		d := delay
		if t.share != 0 {
			d -= summonDelay - summonDelayShare
		}

		// The waiter's part of the lane's costs tells where its start lies between the first and the last. A waiter below the cut has its turn already.
		if costs := lane.Joined - lane.Cut; costs > 0 && t.number >= lane.Cut {
			part := float64(t.number+t.cost-lane.Cut) / float64(costs)
			wait := lane.First + time.Duration(part*float64(lane.Last-lane.First)).Truncate(time.Microsecond)
			near := l.heardAt.Add(wait - t.horizon + d)
			isSooner, isLater := near.Before(t.nearAt.Add(-enough)), near.After(t.nearAt.Add(minLater))
			if isSooner || isLater && l.hasShares {
				t.setComeBy(near)
			}
		}
	}
}

// laneOf returns a lane of a line, or nil if the reply does not speak of it.
func laneOf(l *wire.Line, id wire.LaneID) *wire.Lane {
	if k := id.Class - 1; id.Share == 0 {
		return &wire.Lane{LaneID: id, Cut: l.Cuts[k], Joined: l.Joined[k], First: l.First[k], Last: l.Last[k]}
	}
	if i := slices.IndexFunc(l.Lanes, func(o wire.Lane) bool { return o.LaneID == id }); i >= 0 {
		return &l.Lanes[i]
	}
	return nil
}

// takeCuts summons the waiters below the cuts c of the line with an ID, whose turn it is, if isNews says that a cut was just
// published. If the waiters stand in a line with a different ID it summons all of them, whatever isNews is. In both cases
// newcomers for the budget ask at once from now on: see package linger. Otherwise takeCuts only sets the timer.
func (l *line) takeCuts(id int64, c cuts, isNews bool) {
	switch {
	// The tickets are of a line that is gone: all must ask again.
	case id != l.id:
		l.node.full.Forget(l.charge.Budget.Key)
		l.summonAll()
	case isNews:
		l.node.full.Forget(l.charge.Budget.Key)
		l.summon(func(t *turn) bool { return t.number < c.of(t.laneID()) })
	default:
		l.setTimer()
	}
}

// cuts has the cut of each lane: it is the turn of waiters with lower tickets.
type cuts struct {
	classes [3]int64 // of callers without a share
	shares  map[wire.LaneID]int64
}

// cutsOf returns the cuts in a reply about a line. Of a line with shares they are only the new cuts: waiters below an
// old cut already know that it is their turn.
func cutsOf(l *wire.Line) (c cuts) {
	if !l.HasShares {
		return cuts{classes: l.Cuts}
	}

	for i := range l.Lanes {
		if l.Lanes[i].News {
			c.set(l.Lanes[i].LaneID, l.Lanes[i].Cut)
		}
	}
	return c
}

// set sets the cut of a lane.
func (c *cuts) set(id wire.LaneID, cut int64) {
	if id.Share == 0 {
		c.classes[id.Class-1] = cut
		return
	}

	if c.shares == nil {
		c.shares = make(map[wire.LaneID]int64)
	}
	c.shares[id] = cut
}

// of returns the cut of a lane, or 0 if it is not known.
func (c *cuts) of(id wire.LaneID) int64 {
	if id.Share == 0 {
		return c.classes[id.Class-1]
	}

	return c.shares[id]
}

// Turns summons the waiters of which a message says that it is their turn. It summons all waiters for the budget if the
// message is about a line with a different ID.
func (n *Node) Turns(m notify.Turns) {
	n.mu.Lock()
	defer n.mu.Unlock()

	l := n.lines[m.Key]
	if l == nil {
		return
	}

	// A message can be anything, and a class is an index.
	c := cuts{classes: m.Cuts}
	for _, lane := range m.Lanes {
		if lane.Class >= 1 && lane.Class <= 3 {
			c.set(wire.LaneID{Class: lane.Class, Share: lane.Share}, lane.Cut)
		}
	}

	l.noteCalled(m.Line, c)
	l.takeCuts(m.Line, c, true)
}

// connected is called when the node begins to receive messages about turns. Redis may have published turns between its
// last answer about a line and now. If that answer is at least askFirst old, the node asks at once how the line stands.
// Otherwise the first waiter of a large part of the line asks soon. n.mu is held.
func (n *Node) connected() {
	now := time.Now()
	for _, l := range n.lines {
		l.unasked = true
		if now.Sub(l.heardAt) >= askFirst {
			l.ask()
		}
		l.setTimer()
	}
}

// Lifted asks how the line of a budget stands, because the budget's pause has ended early. It forgets which budgets were
// full.
func (n *Node) Lifted(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.forgetFull()
	if l := n.lines[key]; l != nil {
		l.ask()
		l.setTimer()
	}
}

// Paused summons those waiters of a budget whose deadline is before until, the end of the budget's pause: they book again,
// and are refused.
func (n *Node) Paused(key string, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.lines[key]; l != nil {
		l.summon(func(t *turn) bool { return !t.deadline.IsZero() && t.deadline.Before(until) })
	}
}

// Forgotten summons the waiters of a budget that Redis lost. It also summons those who wait for the end of the penalty of
// any unlimited budget, because no node finds out that an unlimited budget was lost. It forgets which budgets were full.
func (n *Node) Forgotten(key string) {
	n.wake(func(l *line) bool { return l.key == key || wire.Unlimited(&l.charge) })
}

// Wake summons all waiters for budgets of a group. It forgets which budgets were full, of all groups.
func (n *Node) Wake(group string) {
	n.wake(func(l *line) bool { return l.group == group })
}

// wake summons all waiters of the lines for which isSummoned is true. It also forgets which budgets were full, whatever
// their lines: see forgetFull.
func (n *Node) wake(isSummoned func(*line) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.forgetFull()
	for _, l := range n.lines {
		if isSummoned(l) {
			l.summonAll()
		}
	}
}

// forgetFull forgets which budgets were full: there may be room now, so newcomers do not linger. It also forgets budgets that
// are still full, which only costs some calls. n.mu is held.
func (n *Node) forgetFull() { n.full.ForgetAll() }

// Waiting reports whether callers of this node stand in line for starts under budgets of a group. Waiters for slots do not
// count.
func (n *Node) Waiting(group string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		if l.group == group {
			return true
		}
	}
	return false
}
