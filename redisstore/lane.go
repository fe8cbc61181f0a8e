package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
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
	conn *conn.Conn
	up   upper

	mu    sync.Mutex
	calls int64            // how many batches there were
	all   map[string]*lane // by group
}

// An upper is what lanes need of the layers above them, which know who waits for what.
// They call the methods that say so while they are locked.
type upper interface {
	// gather waits for callers that were called and are on their way to a lane.
	gather(group string)
	// arrived notes that a caller is there. The lanes are locked.
	arrived(c *caller)
	// begin has a batch report what is in flight, until end.
	begin(b *batch)
	end(b *batch, answered bool)
	// call makes the call of a batch once, and returns an outcome for each caller.
	call(b *batch) ([]outcome, error)
	// settle notes what became of a caller. The lanes are locked.
	settle(c *caller, b *batch)
	// giveUp ends what a caller that has left holds or waits for. The lanes are locked.
	giveUp(c *caller)
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
func (l *lanes) join(c *caller) {
	if own := l.enter(c); own != nil {
		go l.serve(c.Charges[0].Budget.Group, own)
	}
}

// enter queues the caller. It returns the lane if that stood still: then it must
// be served.
func (l *lanes) enter(c *caller) *lane {
	group := c.Charges[0].Budget.Group
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.all[group]
	if own == nil {
		own = &lane{left: make(chan struct{}, 1)}
		l.all[group] = own
	}
	own.queue = append(own.queue, c)
	l.up.arrived(c)
	if own.moving {
		return nil
	}
	own.moving = true
	return own
}

// ask sends the caller through its lane. If ctx ends first, or the time is up,
// ask returns at once, and a start that is booked all the same is given back.
func (l *lanes) ask(ctx context.Context, c *caller, timeUp <-chan time.Time) error {
	l.join(c)
	if l.await(ctx, c, timeUp) {
		return c.err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	default:
	}
	c.left = true
	l.all[c.Charges[0].Budget.Group].leave()
	return l.conn.Unavailable(c.unavailability(), context.Cause(ctx))
}

// await returns true when the caller has its answer, false when it waits no
// longer.
func (l *lanes) await(ctx context.Context, c *caller, timeUp <-chan time.Time) bool {
	if c.observer == nil {
		return conn.Await(ctx, c.done, timeUp, nil, nil)
	}
	return conn.Await(ctx, c.done, timeUp, c.failed, func() {
		l.mu.Lock()
		why := c.unavailability()
		l.mu.Unlock()
		c.observer(l.conn.Cause(why))
	})
}

// serve makes one call after another until nobody waits in the lane.
func (l *lanes) serve(group string, own *lane) {
	for {
		l.up.gather(group)
		b := l.next(group, own)
		if b == nil || !l.insist(own, b) {
			return
		}
		// Callers that were served may come again at once: let them, before the next
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
		if c.left && c.Kind == wire.Reserve {
			if c.Start > 0 {
				back = append(back, c.undoing(c.Start))
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

// stopped notes that a lane stands still. The lanes are locked.
func (l *lanes) stopped(group string, own *lane) {
	own.moving = false
	if own.lost == nil {
		delete(l.all, group)
	}
}

// deliver gives each caller its part of an answer. What was booked for a caller
// that has left is given back by the next call.
func (l *lanes) deliver(own *lane, b *batch, got []outcome, sent time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var undone, back []*caller
	for _, r := range b.runs {
		for i := r.from; i < r.to; i++ {
			c := b.callers[i]
			c.first, c.sent, c.err = b.sent, sent, err
			if err == nil {
				c.outcome = got[i]
			}
			l.up.settle(c, b)
			switch {
			case err == nil && c.left && c.outcome.State == wire.InLine:
				undone = append(undone, c.turn.quitting())
			case err == nil && c.left && (c.outcome.Booked() || c.ready != nil):
				l.up.giveUp(c)
				undone = append(undone, c.undoing(c.outcome.Mark()))
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
	return c.MaxWait > r.maxWait && !c.outcome.Booked() && c.outcome.State != wire.Unsettled && c.ready == nil && c.outcome.wait <= c.MaxWait
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
	if c.Kind == wire.Cancel {
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
