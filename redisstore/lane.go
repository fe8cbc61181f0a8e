package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
)

// batchMost bounds how many callers one script call serves, and with it how
// long Redis is busy with one call, and the record of its answers: 4 KB at most.
const batchMost = 80

// turnsMost bounds how many of them may come from a line, or to it again: each has an answer
// of its own, and Redis keeps the answers to the last call.
const turnsMost = 32

// Lanes are the calls that a process makes, one at a time for each group of
// budgets. Callers that come while a call is on its way wait for the next one,
// which serves them all, in the order in which they came: this is group commit.
// A call belongs to no caller, so one that leaves does not disturb the others.
// A lane has a goroutine only while somebody waits in it.
type lanes struct {
	mu    sync.Mutex
	calls int64            // how many batches there were
	all   map[string]*lane // by group
}

// A lane is one group's queue. It exists while it moves or has lost something.
type lane struct {
	queue  []*caller
	moving bool
	lost   *batch        // nobody waited for it when Redis did not answer; see next
	gone   int           // how many callers left, at most so many of them in the queue
	left   chan struct{} // told when a caller leaves while the lane pauses
}

// join queues the caller, and starts the lane if it stands still.
func (s *Store) join(c *caller) {
	if own := s.enter(c); own != nil {
		go s.serve(c.charges[0].Budget.Group, own)
	}
}

// lead is join for a caller that cannot leave: if the lane stands still, the
// caller makes the call by itself, which saves a goroutine.
func (s *Store) lead(c *caller) {
	own := s.enter(c)
	if own == nil {
		return
	}
	group := c.charges[0].Budget.Group
	s.queues.gather(group)
	s.insist(own, s.lanes.next(group, own))
	if !s.lanes.stop(group, own) {
		go s.serve(group, own)
	}
}

// enter queues the caller. It returns the lane if that stood still: then it must
// be served.
func (s *Store) enter(c *caller) *lane {
	group := c.charges[0].Budget.Group
	l := &s.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.all[group]
	if own == nil {
		own = &lane{left: make(chan struct{}, 1)}
		l.all[group] = own
	}
	own.queue = append(own.queue, c)
	s.queues.came(c.turn)
	if own.moving {
		return nil
	}
	own.moving = true
	return own
}

// ask sends the caller through its lane. If ctx ends first, or the time is up,
// ask returns at once, and a start that is booked all the same is given back.
func (s *Store) ask(ctx context.Context, c *caller, timeUp <-chan time.Time) error {
	if c.horizon > 0 {
		s.queues.ride(s, c.charges)
	}
	if ctx.Done() == nil && timeUp == nil && c.observer == nil {
		s.lead(c)
		<-c.done
		return c.err
	}
	s.join(c)
	if s.await(ctx, c, timeUp) {
		return c.err
	}
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	default:
	}
	c.left = true
	s.lanes.all[c.charges[0].Budget.Group].leave()
	return s.conn.Unavailable(c.unavailability(), context.Cause(ctx))
}

// serve makes one call after another until nobody waits in the lane.
func (s *Store) serve(group string, l *lane) {
	for {
		s.queues.gather(group)
		b := s.lanes.next(group, l)
		if b == nil {
			return
		}
		if !s.insist(l, b) {
			return
		}
		// Whoever was served may come again at once: let them, before the next
		// call leaves without them.
		runtime.Gosched()
	}
}

// next returns the next call of the lane; nil ends it. A call of which nobody
// knows what became of it goes first: what it may have booked is given back.
func (l *lanes) next(group string, own *lane) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	own.sweep()
	if len(own.queue) == 0 {
		own.queue = nil
		l.stopped(group, own)
		return nil
	}
	if b := own.lost; b != nil {
		own.lost = nil
		if time.Since(b.sent) < history.RecordTime {
			return b
		}
	}
	slices.SortStableFunc(own.queue, compareCallers)
	n := 1
	turns := own.queue[0].turns()
	for n < min(len(own.queue), batchMost) && !own.queue[0].single && !own.queue[n].single {
		if turns += own.queue[n].turns(); turns > turnsMost {
			break
		}
		n++
	}
	callers := slices.Clone(own.queue[:n])
	own.queue = own.queue[n:]
	l.calls++
	return newBatch(callers, l.calls)
}

// sweep takes those who left out of the queue. What they wanted to replace is
// given back. The lanes are locked.
func (own *lane) sweep() {
	if own.gone == 0 {
		return
	}
	own.gone = 0
	var back []*caller
	own.queue = slices.DeleteFunc(own.queue, func(c *caller) bool {
		if c.left && c.maxWait >= anyWait {
			if c.mark > 0 {
				back = append(back, c.undoing(c.mark))
			}
			if q := c.turn.quitting(); q != nil {
				back = append(back, q)
			}
		}
		return c.left
	})
	own.queue = append(back, own.queue...)
}

// number returns the number of another call.
func (l *lanes) number() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	return l.calls
}

// singly queues the callers of a batch again, first and each for a call of its own,
// because one of them has something that cannot be served.
func (l *lanes) singly(own *lane, b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range b.callers {
		c.single = true
		if c.left {
			own.gone++
		}
	}
	own.queue = append(slices.Clone(b.callers), own.queue...)
}

// stop ends a lane in which nobody waits, and reports whether it did.
func (l *lanes) stop(group string, own *lane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(own.queue) > 0 {
		return false
	}
	l.stopped(group, own)
	return true
}

// stopped notes that a lane stands still. The lanes are locked.
func (l *lanes) stopped(group string, own *lane) {
	own.moving = false
	if own.lost == nil {
		delete(l.all, group)
	}
}

// deliver gives each caller its part of an answer. What was booked for a caller
// that has left is given back by the next call.
func (s *Store) deliver(own *lane, b *batch, got []outcome, sent time.Time, err error) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	var undone, back []*caller
	for _, r := range b.runs {
		for i := r.from; i < r.to; i++ {
			c := b.callers[i]
			c.first, c.sent, c.err = b.sent, sent, err
			if err == nil {
				c.outcome = got[i]
			}
			s.note(c, b.flights)
			if err == nil {
				s.stand(c)
			}
			switch {
			case err == nil && c.left && c.outcome.stands:
				undone = append(undone, c.turn.quitting())
			case err == nil && c.left && (c.outcome.booked || c.ready != nil):
				s.giveUp(c.charges, c.outcome.mark, c.outcome.holds)
				undone = append(undone, c.undoing(c.outcome.mark))
			case err == nil && !c.left && c.refusedForOthers(r):
				c.alone = true
				back = append(back, c)
			default:
				c.done <- struct{}{}
			}
		}
	}
	own.queue = slices.Concat(undone, back, own.queue)
}

// refusedForOthers reports whether the caller would have been booked if it had
// not shared a run with less patient ones.
func (c *caller) refusedForOthers(r run) bool {
	return c.maxWait > r.maxWait && !c.outcome.booked && !c.outcome.again && c.ready == nil && c.outcome.wait <= c.maxWait
}

// failed notes why a call failed, and reports whether anybody waits in the lane.
// If nobody does, the lane stops: the next caller will find out what became of
// the call.
func (l *lanes) failed(own *lane, b *batch, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range b.callers {
		c.fail(err)
	}
	for _, c := range own.queue {
		c.fail(err)
	}
	if slices.ContainsFunc(b.callers, (*caller).waits) || slices.ContainsFunc(own.queue, (*caller).waits) {
		return true
	}
	own.lost, own.moving = b, false
	return false
}

// waits reports whether anybody waits for the caller's answer. For a start that
// is given back that is so for a moment only.
func (c *caller) waits() bool {
	if c.maxWait == giveBack {
		return time.Since(c.joined) < conn.ReplyTime
	}
	return !c.left
}

// leave wakes the lane, so that it need not make calls for nobody, and keeps a
// queue that stands still from growing with those who come and go.
func (own *lane) leave() {
	if own.gone++; own.gone > 100 && own.gone > len(own.queue)/2 {
		own.sweep()
	}
	select {
	case own.left <- struct{}{}:
	default:
	}
}
