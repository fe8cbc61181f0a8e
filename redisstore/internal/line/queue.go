package line

import (
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Starts are the callers of a node that wait in line for a start, by the keys of the
// budgets that hold them. Redis knows how much waits and whose turn it is, and nothing
// of single callers: each is called here when its turn should have come.
type Starts struct {
	*Options
	mu     sync.Mutex
	all    map[string]*queue
	full   full
	coming gatherings
}

// A queue is the callers of this node that wait in one line. The lock of the starts guards
// all of it.
type queue struct {
	starts     *Starts
	key, group string
	charge     throttle.Charge // one of the budget, as it was last seen
	line       int64
	waiters    []*turn   // by class and ticket
	cost       int64     // of all of them
	waiting    int64     // in the whole line, as Redis said last
	hurry      bool      // there is room that nobody takes
	updated    time.Time // when Redis said how the line stands, or was asked last
	fresh      bool      // nobody has asked again since the first one came
	due        time.Time // the first of the whole line may start then; zero: Redis has not said
	near       time.Time // the first time when one of them may come
	next       time.Time // when the timer calls
	timer      *time.Timer
}

const (
	askFirst    = 500 * time.Millisecond // a large part of the line that is new: others may have died
	askRarely   = 15 * time.Second
	askSmall    = 3 * time.Second // no sooner, a small part: others ask, too
	farAway     = 20              // where askRarely is too often, one in so many parts of half of the wait
	largePart   = 8               // one in so many
	leastToCome = 10 * time.Millisecond
)

// add lets a turn wait.
func (q *queue) add(t *turn) {
	t.queue = q.key
	at, _ := slices.BinarySearchFunc(q.waiters, t, compareTurns)
	q.waiters = slices.Insert(q.waiters, at, t)
	q.cost += t.cost
	if !q.starts.NoNews {
		q.starts.Subs.Retain(q.starts.channels(q.group))
	}
	if len(q.waiters) == 1 {
		q.setTimer()
	} else { // thousands may come at once: none of them looks at all others
		q.near = earliest(q.near, t.near)
		q.setTimerTo(earliest(q.next, earliest(t.come, q.asks())))
	}
}

// remove takes a waiter out.
func (q *queue) remove(i int) {
	t := q.waiters[i]
	q.waiters = slices.Delete(q.waiters, i, i+1)
	q.cost -= t.cost
	t.queue = ""
	if !q.starts.NoNews {
		q.starts.Subs.Release(q.starts.channels(q.group))
	}
}

// setTimer sets the timer to when the next one is to be called.
func (q *queue) setTimer() {
	if len(q.waiters) == 0 {
		if q.timer != nil {
			q.timer.Stop()
		}
		if q.starts.all[q.key] == q {
			delete(q.starts.all, q.key)
		}
		return
	}
	next := q.asks()
	q.near = q.waiters[0].near
	for _, t := range q.waiters {
		next, q.near = earliest(next, t.come), earliest(q.near, t.near)
	}
	q.setTimerTo(next)
}

func (q *queue) setTimerTo(next time.Time) {
	q.next = next
	d := max(0, time.Until(next))
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.callDue)
	} else {
		q.timer.Reset(d)
	}
}

// callDue calls the waiters whose turn should have come, or asks how the line stands.
func (q *queue) callDue() {
	q.starts.mu.Lock()
	defer q.starts.mu.Unlock()
	if len(q.waiters) == 0 {
		return
	}
	now := time.Now()
	if !q.asks().After(now) && q.near.After(now) {
		q.ask()
	}
	q.callNear(now)
}

// callNear calls the waiters whose start is within the horizon, as far as one can tell.
func (q *queue) callNear(now time.Time) {
	var last [3]int64 // tickets below that are called: no waiter before those of its class that came earlier
	for _, t := range q.waiters {
		if !t.near.After(now) {
			last[t.class-1] = t.number + 1
		}
	}
	q.call(func(t *turn) bool { return t.number < last[t.class-1] })
}

// callAll calls all waiters.
func (q *queue) callAll() { q.call(func(*turn) bool { return true }) }

// call calls some waiters.
func (q *queue) call(which func(*turn) bool) {
	var called []*turn
	for i := 0; i < len(q.waiters); {
		if t := q.waiters[i]; which(t) {
			t.expected = q.starts.coming.expect(q.group)
			called = append(called, t)
			q.remove(i)
		} else {
			i++
		}
	}
	for _, t := range called {
		close(t.ready)
	}
	q.setTimer()
}

// asks returns when the first waiter asks whether anything has changed, though its turn
// has not come.
func (q *queue) asks() (at time.Time) {
	first, least := q.waiters[0], wire.AskLeast
	if !q.isLarge() && first.cost == 1 { // what costs more says that it lives
		least = askSmall
	}
	if !q.due.IsZero() && q.isLarge() {
		// Those before may all be dead: the next answer says whether they take what they are offered.
		by := latest(q.due.Add(-first.horizon/4), q.updated.Add(askFirst))
		defer func() { at = earliest(at, by) }()
	}
	left := first.come.Sub(q.updated) / 2
	switch {
	case q.hurry:
		return q.updated.Add(wire.AskSoon)
	case q.fresh && q.isLarge():
		return q.updated.Add(askFirst)
	case left < least && !q.isLarge():
		return first.come // soon enough
	}
	if at = q.updated.Add(min(max(least, left), max(askRarely, min(left/farAway, wire.AskLast)))); at.Before(first.near) {
		return at
	}
	return first.come // which asks as well
}

// isLarge reports whether the node has a large part of all that waits: how the line moves
// it has to find out by itself.
func (q *queue) isLarge() bool { return q.cost*largePart >= q.waiting }

// ask makes a call that books nothing, so that Redis says how the line stands, and knows
// that the first waiter will ask again.
func (q *queue) ask() {
	q.updated, q.fresh = time.Now(), false
	go q.starts.renew(q.waiters[0], time.Until(q.asks())) // the starts are locked
}

// renew asks how the line stands that a caller is the first of on this node.
func (s *Starts) renew(t *turn, again time.Duration) {
	s.mu.Lock()
	op := commit.NewOp(wire.Renew, t.charges...)
	op.Class, op.Tickets, op.Again = t.class, slices.Clone(t.tickets), again
	s.mu.Unlock()
	s.Post(op)
}
