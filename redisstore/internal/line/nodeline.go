package line

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Starts are the callers of a node that wait in line for a start. Redis knows how much waits in
// each line and up to which ticket it is the waiters' turn, and nothing of single callers. So this
// node calls each caller, by closing its Ready, when its turn should have come; the caller then
// books again.
type Starts struct {
	*Options
	mu         sync.Mutex
	all        map[string]*nodeLine // by the keys of the budgets
	full       fullBudgets
	gatherings gatherings
}

// A nodeLine is the part of a budget's line that stands on this node: the node's callers that wait
// there. The lock of the starts guards all of it.
type nodeLine struct {
	starts     *Starts
	key, group string
	charge     store.Charge // a charge of the budget, as a caller had it last
	id         int64        // of the line: Redis gives a new line another id
	waiters    []*turn      // by class, share and ticket
	lead       *turn        // see first; nil: it is looked for again
	shared     int          // how many waiters have a share
	cost       int64        // the sum of the waiters' costs
	waiting    int64        // the sum of costs in the whole line, as Redis said last
	hasShares  bool         // callers of several shares have stood in the line
	hurry      bool         // Redis has offered room that no waiter of the fleet has taken
	heardAt    time.Time    // when Redis said how the line stands, or was asked last
	unasked    bool         // the node has not asked Redis since its first waiter came
	firstStart time.Time    // when the first waiter of the whole line may start; zero: Redis has not said
	nearAt     time.Time    // the earliest nearAt of the waiters, or a time before it
	timerAt    time.Time    // when the timer calls callDue
	timer      *time.Timer
}

const (
	askFirst    = 500 * time.Millisecond // a large part of a line asks for the first time after this: those before may have died
	askRarely   = 15 * time.Second       // a first waiter asks at least so often, unless its turn is far away
	askSmall    = 3 * time.Second        // a small part asks no sooner: other nodes ask, too
	farAway     = 20                     // a first waiter need not ask more often than after this part of half of its wait
	largePart   = 8                      // a node's part of a line is large from a largePart-th of the line on
	leastToCome = 10 * time.Millisecond  // a caller that has to wait again books again no sooner
	leastMost   = 5                      // a caller with a share no sooner than so often that, if it was called as often
)

// add puts a turn into the line.
func (n *nodeLine) add(t *turn) {
	t.lineKey = n.key
	at, _ := slices.BinarySearchFunc(n.waiters, t, compareTurns)
	n.waiters = slices.Insert(n.waiters, at, t)
	n.cost += t.cost
	if t.share != 0 {
		n.shared++
	}
	if n.lead != nil && comesBefore(t, n.lead) {
		n.lead = t
	}
	if !n.starts.NoNews {
		n.starts.Subs.Retain(n.starts.channels())
	}
	if len(n.waiters) == 1 {
		n.setTimer()
	} else { // without a look at each waiter, because thousands may come at once
		n.nearAt = earliest(n.nearAt, t.nearAt)
		n.setTimerTo(earliest(n.timerAt, earliest(t.comeBy, n.askAt())))
	}
}

// remove takes the i-th waiter out of the line.
func (n *nodeLine) remove(i int) {
	t := n.waiters[i]
	n.waiters = slices.Delete(n.waiters, i, i+1)
	n.cost -= t.cost
	if t.share != 0 {
		n.shared--
	}
	if n.lead == t {
		n.lead = nil
	}
	t.lineKey = ""
	if !n.starts.NoNews {
		n.starts.Subs.Release(n.starts.channels())
	}
}

// setTimer sets the timer to when the next waiter is to be called, or Redis is to be asked. A line
// without waiters has no timer, and is forgotten.
func (n *nodeLine) setTimer() {
	if len(n.waiters) == 0 {
		if n.timer != nil {
			n.timer.Stop()
		}
		if n.starts.all[n.key] == n {
			delete(n.starts.all, n.key)
		}
		return
	}
	n.lead = nil
	next := n.askAt()
	n.nearAt = n.waiters[0].nearAt
	for _, t := range n.waiters {
		next, n.nearAt = earliest(next, t.comeBy), earliest(n.nearAt, t.nearAt)
	}
	n.setTimerTo(next)
}

func (n *nodeLine) setTimerTo(next time.Time) {
	n.timerAt = next
	d := max(1, time.Until(next))
	if n.timer == nil {
		n.timer = time.AfterFunc(d, n.callDue)
	} else {
		n.timer.Reset(d)
	}
}

// callDue calls the waiters whose turn should have come, or asks how the line stands.
func (n *nodeLine) callDue() {
	n.starts.mu.Lock()
	defer n.starts.mu.Unlock()
	if len(n.waiters) == 0 {
		return
	}
	now := time.Now()
	if !n.askAt().After(now) && n.nearAt.After(now) {
		n.ask()
	}
	n.callNear(now)
}

// callNear calls the waiters whose start is within their horizon by the estimates of this node, and
// with each of them the waiters of its lane that came before it.
func (n *nodeLine) callNear(now time.Time) {
	if n.hasShares {
		n.putOff(now)
	}
	var below cuts // waiters with lower tickets are called
	for _, t := range n.waiters {
		if !t.nearAt.After(now) {
			below.set(t.laneID(), t.number+1)
		}
	}
	n.call(func(t *turn) bool { return t.number < below.of(t.laneID()) })
}

// putOff puts off waiters of a line with shares that stand behind one of their lane whose start is not near. Callers of other shares that
// came since made their starts later, and those in front, who asked last, know it.
func (n *nodeLine) putOff(now time.Time) {
	for i, t := range n.waiters {
		if i == 0 || t.laneID() != n.waiters[i-1].laneID() {
			continue
		}
		if before := n.waiters[i-1]; !t.nearAt.After(now) && before.nearAt.After(now) {
			t.nearAt, t.comeBy = before.nearAt, latest(t.comeBy, before.comeBy)
		}
	}
}

// callAll calls all waiters.
func (n *nodeLine) callAll() { n.call(func(*turn) bool { return true }) }

// call calls the waiters for which isCalled is true: it takes them out of the line and closes
// their ready, so that they book again together.
func (n *nodeLine) call(isCalled func(*turn) bool) {
	var called []*turn
	for i := 0; i < len(n.waiters); {
		if t := n.waiters[i]; isCalled(t) {
			t.gathering = n.starts.gatherings.expect(n.group)
			called = append(called, t)
			n.remove(i)
		} else {
			i++
		}
	}
	for _, t := range called {
		close(t.ready)
	}
	n.setTimer()
}

// askAt returns when the node must ask Redis how the line stands, or call its first waiter, which
// asks as well when it books again.
func (n *nodeLine) askAt() (at time.Time) {
	first, least := n.first(), wire.AskLeast
	if !n.isLarge() && first.cost == 1 { // a waiter that costs more must show more often that it lives
		least = askSmall
	}
	if !n.firstStart.IsZero() && n.isLarge() {
		// The waiters before this node's may all be dead: the next answer says whether they take the
		// room that they are offered.
		by := latest(n.firstStart.Add(-first.horizon/4), n.heardAt.Add(askFirst))
		defer func() { at = earliest(at, by) }()
	}
	left := first.comeBy.Sub(n.heardAt) / 2
	switch {
	case n.hurry:
		return n.heardAt.Add(wire.AskSoon)
	case n.unasked && n.isLarge():
		return n.heardAt.Add(askFirst)
	case left < least && !n.isLarge():
		return first.comeBy // the first waiter books again soon, which is enough
	}
	if at = n.heardAt.Add(min(max(least, left), max(askRarely, min(left/farAway, wire.AskLast)))); at.Before(first.nearAt) {
		return at
	}
	return first.comeBy
}

// first returns the waiter whose turn comes first, as far as the node knows.
func (n *nodeLine) first() *turn {
	if n.shared == 0 {
		return n.waiters[0]
	}
	if n.lead == nil {
		n.lead = slices.MinFunc(n.waiters, func(a, b *turn) int {
			if comesBefore(a, b) {
				return -1
			}
			return 1
		})
	}
	return n.lead
}

// comesBefore reports whether a comes to its turn before b: if it is of a class that goes before b's, or if its start is
// sooner by the estimates of this node.
func comesBefore(a, b *turn) bool {
	if c := cmp.Compare(a.class, b.class); c != 0 {
		return c < 0
	}
	return a.nearAt.Before(b.nearAt)
}

// isLarge reports whether this node has a large part of all that waits in the line, so that it
// cannot rely on other nodes to ask how the line stands.
func (n *nodeLine) isLarge() bool { return n.cost*largePart >= n.waiting }

// ask makes a call that books nothing, so that Redis says how the line stands, and knows
// that the first waiter will ask again.
func (n *nodeLine) ask() {
	n.heardAt, n.unasked = time.Now(), false
	go n.starts.renew(n.first(), time.Until(n.askAt())) // which locks the starts: they are locked here
}

// renew asks Redis how the lines stand in which a turn has tickets, and tells Redis within what
// time the node will ask again.
func (s *Starts) renew(t *turn, again time.Duration) {
	s.mu.Lock()
	op := commit.NewOp(wire.Renew, t.charges...)
	op.Class, op.Tickets, op.Again = t.class, slices.Clone(t.tickets), again
	s.mu.Unlock()
	s.Post(op)
}
