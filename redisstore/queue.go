package redisstore

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// queues are the callers of this store that wait in line for a start, by the keys of the
// budgets that hold them. Redis knows how much waits and whose turn it is, and nothing
// of single callers: each is called here when its turn should have come.
type queues struct {
	mu     sync.Mutex
	all    map[string]*queue
	coming map[string]*gathering // by group
	deaf   bool                  // nobody listens for news: a test has a clock of its own
}

// A queue is the callers that wait in one line.
type queue struct {
	key, group string
	charge     throttle.Charge // one of the budget, as it was last seen
	line       int64
	waiters    []*turn   // by class and ticket
	cost       int64     // of all of them
	waiting    int64     // in the whole line, as Redis said last
	hurry      bool      // there is room that nobody takes
	told       time.Time // when Redis said how the line stands, or was asked last
	fresh      bool      // nobody has asked again since the first one came
	near       time.Time // the first time when one of them may come
	next       time.Time // when the timer calls
	timer      *time.Timer
}

const never = math.MinInt64 // before any ticket

const (
	askSoon     = 250 * time.Millisecond // while there is room that nobody takes
	askFirst    = 500 * time.Millisecond // a large part of the line that is new: others may have died
	askLeast    = time.Second
	askRarely   = 15 * time.Second
	askLast     = time.Minute     // where the turn is far away
	farAway     = 20              // where askRarely is too often, one in so many parts of half of the wait
	largePart   = 8               // one in so many
	evenMost    = 2 * time.Second // longer windows are not served evenly
	leastToCome = 10 * time.Millisecond
	comeLate    = 60 * time.Millisecond  // after a start is within the horizon: the guess may be a little off
	moveLeast   = 250 * time.Millisecond // a turn in a line of many that is sooner by less is not worth a call: they do not flow evenly
	spareMost   = 60 * time.Millisecond  // for so long a caller waits for a call that is made anyway
)

// add lets a caller wait, and returns its Ready.
func (qs *queues) add(s *Store, t *turn, c *caller) <-chan struct{} {
	o := &c.outcome
	i := slices.IndexFunc(t.tickets, func(k wire.Ticket) bool { return k.Budget == c.Charges[o.Charge].Budget.Key })
	ch := &c.Charges[o.Charge]
	key := s.key(&ch.Budget)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[key]
	if q == nil {
		q = &queue{key: key, group: ch.Budget.Group, fresh: true, told: time.Now()}
		qs.all[key] = q
	}
	q.line, q.charge = t.tickets[i].Line, *ch
	t.queue, t.number, t.cost, t.ready = q, t.tickets[i].Number, wire.Cost(ch), make(chan struct{})
	t.until = time.Time{}
	if c.MaxWait >= 0 {
		t.until = time.Now().Add(time.Duration(c.MaxWait) * time.Microsecond)
	}
	t.horizon, t.least = c.Horizon, time.Now().Add(leastToCome)
	late := comeLate
	if t.calls++; t.calls > 1 {
		late = 0 // else others come in time for its start, again and again
	}
	t.comes(time.Now().Add(wire.Wait(o.wait) - c.Horizon + late))
	at, _ := slices.BinarySearchFunc(q.waiters, t, compareTurns)
	q.waiters = slices.Insert(q.waiters, at, t)
	q.cost += t.cost
	if !qs.deaf {
		s.subs.Retain(s.channels(q.group))
	}
	if len(q.waiters) == 1 {
		q.wind(s)
	} else { // of thousands that come at once, nobody looks at all
		q.near = earliest(q.near, t.near)
		q.windTo(s, earliest(q.next, earliest(t.come, q.asks())))
	}
	return t.ready
}

func compareTurns(a, b *turn) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.number, b.number))
}

// remove ends a wait. The caller may have been called.
func (qs *queues) remove(s *Store, t *turn) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := t.queue; q != nil {
		at, _ := slices.BinarySearchFunc(q.waiters, t, compareTurns)
		q.remove(s, at+slices.Index(q.waiters[at:], t))
		if len(q.waiters) == 0 {
			q.wind(s)
		} // else the timer may be too early, and is wound then
	}
}

// remove takes a waiter out. The queues are locked, as in all methods of a queue.
func (q *queue) remove(s *Store, i int) {
	t := q.waiters[i]
	q.waiters = slices.Delete(q.waiters, i, i+1)
	q.cost -= t.cost
	t.queue = nil
	if !s.queues.deaf {
		s.subs.Release(s.channels(q.group))
	}
}

// wind sets the timer to when the next one is to be called.
func (q *queue) wind(s *Store) {
	if len(q.waiters) == 0 {
		if q.timer != nil {
			q.timer.Stop()
		}
		if s.queues.all[q.key] == q {
			delete(s.queues.all, q.key)
		}
		return
	}
	next := q.asks()
	q.near = q.waiters[0].near
	for _, t := range q.waiters {
		next, q.near = earliest(next, t.come), earliest(q.near, t.near)
	}
	q.windTo(s, next)
}

// windTo sets the timer to a time.
func (q *queue) windTo(s *Store, next time.Time) {
	q.next = next
	d := max(0, time.Until(next))
	if q.timer == nil {
		q.timer = time.AfterFunc(d, func() { s.callDue(q) })
	} else {
		q.timer.Reset(d)
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// asks returns when the first waiter asks whether anything has changed, though its turn
// has not come.
func (q *queue) asks() time.Time {
	switch left := q.waiters[0].come.Sub(q.told) / 2; {
	case q.hurry:
		return q.told.Add(askSoon)
	case q.fresh && q.isLarge():
		return q.told.Add(askFirst)
	case left < askLeast && !q.isLarge():
		return q.waiters[0].come // soon enough
	default:
		return q.told.Add(min(max(askLeast, left), max(askRarely, min(left/farAway, askLast))))
	}
}

// isLarge reports whether the program has a large part of all that waits: how the line moves
// it has to find out by itself.
func (q *queue) isLarge() bool { return q.cost*largePart >= q.waiting }

// callDue calls those whose turn should have come, or asks how the line stands.
func (s *Store) callDue(q *queue) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	if len(q.waiters) == 0 {
		return
	}
	now := time.Now()
	if !q.asks().After(now) && q.near.After(now) {
		q.ask(s)
	}
	q.callNear(s, now)
}

// callNear calls those whose start is within the horizon, as far as one can tell.
func (q *queue) callNear(s *Store, now time.Time) {
	last := [3]int64{never, never, never} // nobody is called before those of its class who came earlier
	for _, t := range q.waiters {
		if !t.near.After(now) {
			last[t.class-1] = t.number + 1
		}
	}
	q.call(s, func(t *turn) bool { return t.number < last[t.class-1] })
}

// ride calls those whose start is within the horizon and who wait for the same budgets as a
// caller: they share its call.
func (qs *queues) ride(s *Store, charges []throttle.Charge) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(qs.all) == 0 {
		return
	}
	now := time.Now()
	for i := range charges {
		if q := qs.all[s.key(&charges[i].Budget)]; q != nil && !q.near.After(now) {
			q.callNear(s, now)
		}
	}
}

// ask makes a call that books nothing, so that Redis says how the line stands.
func (q *queue) ask(s *Store) {
	q.told, q.fresh = time.Now(), false
	go s.renew(q.waiters[0], time.Until(q.asks()))
}

// renew asks how the line stands that a caller is the first of in this program, and says
// that it will ask again.
func (s *Store) renew(t *turn, again time.Duration) {
	s.lanes.mu.Lock()
	own := &turn{charges: t.charges, class: t.class, tickets: slices.Clone(t.tickets)}
	s.lanes.mu.Unlock()
	s.lanes.join(&caller{
		Op: wire.Op{Kind: wire.Renew, Charges: own.charges, Again: again, Class: own.class}, turn: own, done: make(chan struct{}, 1),
	})
}

// call calls some.
func (q *queue) call(s *Store, which func(*turn) bool) {
	var called []*turn
	for i := 0; i < len(q.waiters); {
		if t := q.waiters[i]; which(t) {
			s.queues.expect(t, q.group)
			called = append(called, t)
			q.remove(s, i)
		} else {
			i++
		}
	}
	for _, t := range called {
		close(t.ready)
	}
	q.wind(s)
}

// callNow, as a hurry, says that those whose turn it is are called.
const callNow = 2

// lineNews is what Redis says of the line of one budget.
type lineNews struct {
	line, waiting int64 // 0: there is none
	hurry         int64 // see lua/queue.lua
	cuts          [3]int64
	joined        [3]int64         // the next ticket of each class; only in answers
	first, last   [3]time.Duration // in how long the first and the last of each will have their turn
}

// answered takes in what the answer to a call said of a line.
func (qs *queues) answered(s *Store, key string, n lineNews) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[key]
	if q == nil {
		return
	}
	q.waiting, q.told, q.hurry = n.waiting, time.Now(), n.hurry > 0
	q.move(n)
	q.hear(s, n)
}

// move lets those come sooner whose turn is sooner than they were told, as far as one can
// tell: what waits is served evenly, but that of a long window may be served at its end.
func (q *queue) move(n lineNews) {
	if n.line != q.line || q.charge.Limit.Kind() == throttle.KindFixedWindow {
		return // those leave all at once when their window begins
	}
	late, least := comeLate, time.Duration(0)
	if !q.isLarge() {
		least = moveLeast
	}
	if per := q.charge.Limit.Per(); per > evenMost {
		late += per
	}
	for _, t := range q.waiters {
		k := t.class - 1
		if all := n.joined[k] - n.cuts[k]; all > 0 && t.number >= n.cuts[k] {
			part := float64(t.number+t.cost-n.cuts[k]) / float64(all)
			wait := n.first[k] + time.Duration(part*float64(n.last[k]-n.first[k])).Truncate(time.Microsecond)
			if near := q.told.Add(wait - t.horizon + late); near.Before(t.near.Add(-least)) {
				t.comes(near)
			}
		}
	}
}

// heard takes in what was published.
func (qs *queues) heard(s *Store, key string, n lineNews) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.all[key]; q != nil {
		q.hear(s, n)
	}
}

// hear calls those whose turn it is, if they are to hurry, and all if theirs is another
// line than that of Redis.
func (q *queue) hear(s *Store, n lineNews) {
	switch {
	case n.line != q.line:
		q.call(s, func(*turn) bool { return true })
	case n.hurry == callNow:
		q.call(s, func(t *turn) bool { return t.number < n.cuts[t.class-1] })
	default:
		q.wind(s)
	}
}

// ask asks how a line stands, because something may have changed.
func (qs *queues) ask(s *Store, key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.all[key]; q != nil {
		q.ask(s)
		q.wind(s)
	}
}

// closed lets those ask to whom no start is of use when a pause has ended, so that they are
// told.
func (qs *queues) closed(s *Store, key string, until time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.all[key]; q != nil {
		q.call(s, func(t *turn) bool { return !t.until.IsZero() && t.until.Before(until) })
	}
}

// callAll lets all ask who wait in a group.
func (qs *queues) callAll(s *Store, which func(*queue) bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.all {
		if which(q) {
			q.call(s, func(*turn) bool { return true })
		}
	}
}

// waitTurn is how a grant tells of a place in line.
func (c *caller) waitTurn(g *throttle.Grant) {
	if c.turn == nil {
		return
	}
	g.Turn = c.turn
	if c.outcome.State == wire.InLine {
		g.Mark = 0
	}
}
