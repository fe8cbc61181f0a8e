// Package commit makes the booking calls of a node. While a call for a group of budgets
// is on its way, other callers' operations wait in a queue, and the next call serves them
// all, in order: this is group commit. A caller that finds no call on its way makes one, as
// their leader. The package hides batches, merged operations, the
// numbers of calls, calls that are made again, and callers that leave before they have
// their answer. See docs/internals/once.md.
package commit

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// lead makes the next call of a queue that stood still, on the goroutine of the caller of an op, its
// leader. So a lone caller needs no other goroutine. It reports whether the op is done. It starts
// a goroutine, which drains the queue, for a call that has no answer within conn.Silence or before
// the leader leaves, for a call that failed, for a call with reports, which may have to wait for
// locks, and for the ops that have come meanwhile.
func (qs *Queues) lead(ctx context.Context, op *Op, q *queue, maxWait time.Duration) bool {
	group, most := op.group(), conn.Silence
	if d, ends := conn.Patience(ctx, maxWait, op.Joined); ends {
		most = min(most, d)
	}
	qs.gather(ctx, group, q)
	if ctx.Err() != nil {
		go qs.drain(group, q, nil)
		return false
	}
	b := qs.next(group, q)
	if b.forSlots() {
		go qs.drain(group, q, b)
		return false
	}
	timeUp := time.NewTimer(most)
	defer timeUp.Stop()
	err := qs.try(b, func(x *conn.Exchange) (wire.Frame, error) { return x.AwaitUntil(ctx, timeUp.C) })
	if err != nil {
		if err != conn.ErrUnanswered {
			b.failed = err
		}
		go qs.drain(group, q, b)
		return false
	}
	qs.deliver(q, b, nil)
	if !qs.stopIfEmpty(group, q) {
		go qs.drain(group, q, nil)
	}
	select {
	case <-op.done:
		return true
	default:
		return false // the op was refused for the MaxWait of others, and is in the next call
	}
}

// drain makes one call after another until the queue has no ops. It begins with b, the call that a
// leader left to it; nil: there is none.
func (qs *Queues) drain(group string, q *queue, b *batch) {
	conn.GrowStack()
	if b != nil && !qs.execute(q, b) {
		return
	}
	for {
		qs.gather(context.Background(), group, q)
		b := qs.next(group, q)
		if b == nil || !qs.execute(q, b) {
			return
		}
		// Callers that were served may come again at once: they get the processor, so that they
		// share the next call.
		runtime.Gosched()
	}
}

// execute makes a call, again and again, until Redis has answered or refused it. It returns false if
// nobody waits for the answer any more: then the queue has stopped. A call that is made again has
// the same number, by which Redis knows whether the call was done already.
func (qs *Queues) execute(q *queue, b *batch) bool {
	if b.reports = qs.Line.Report(b.ops); b.reports != nil {
		defer func() { b.reports.Done(b.replies, b.sent) }()
	}
	left := false
	err := conn.Retry(context.Background(), q.left, func(err error) bool {
		left = !qs.noteFailure(q, b, err)
		return !left
	}, func() error {
		return qs.try(b, func(x *conn.Exchange) (wire.Frame, error) { return x.Await(context.Background()) })
	})
	switch {
	case left:
		return false
	case err != nil && len(b.ops) > 1 && conn.Unexecuted(err):
		qs.isolate(q, b)
	default:
		qs.deliver(q, b, err)
	}
	return true
}

// deliver tells the callers of a batch that their ops are done. What was booked for a caller
// that has left is given back by the next call.
func (qs *Queues) deliver(q *queue, b *batch, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	var undone, back []*Op
	for _, m := range b.merged {
		for i := m.from; i < m.to; i++ {
			op := b.ops[i]
			op.First, op.Sent, op.Err = b.sent, b.copied, err
			qs.Line.Answered(op)
			switch {
			case err == nil && op.left && op.Outcome.State == wire.InLine:
				undone = append(undone, op.leaveOps()...)
			case err == nil && op.left && (op.Outcome.Booked() || op.Outcome.State == wire.Waiting):
				undone = append(undone, op.cancelOp(op.Outcome.Handle()))
			case err == nil && !op.left && op.refusedForOthers(m):
				op.noMerge = true
				back = append(back, op)
			default:
				if err != nil {
					undone = append(undone, op.leaveOps()...)
				}
				op.done <- struct{}{}
			}
		}
	}
	if len(undone)+len(back) > 0 {
		q.ops = slices.Concat(undone, back, q.ops)
	}
}

// refusedForOthers reports whether the op was refused only because it was merged with ops of a lower
// MaxWait.
func (op *Op) refusedForOthers(m mergedOps) bool {
	return op.MaxWait > m.maxWait && !op.Outcome.Booked() && op.Outcome.State != wire.Unsettled && op.Ready == nil && op.Outcome.Wait <= op.MaxWait
}

// noteFailure notes why a call failed, and reports whether anybody waits in the queue.
// If nobody does, it stops the queue and keeps the call as lost: the next caller of the group will
// make it once more.
func (qs *Queues) noteFailure(q *queue, b *batch, err error) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, op := range b.ops {
		op.fail(err)
	}
	for _, op := range q.ops {
		op.fail(err)
	}
	if slices.ContainsFunc(b.ops, (*Op).isAwaited) || slices.ContainsFunc(q.ops, (*Op).isAwaited) {
		return true
	}
	q.lost, q.running, b.copied = b, false, time.Time{}
	return false
}

// isolate puts the ops of a batch back to the front of the queue, each for a call of its own,
// because Redis cannot do the call, and one op may be the reason.
func (qs *Queues) isolate(q *queue, b *batch) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, op := range b.ops {
		op.isolated = true
		if op.left {
			q.leavers++
		}
	}
	q.ops = append(slices.Clone(b.ops), q.ops...)
}

// Do queues an op and waits until it is done, as long as ctx and maxWait allow. maxWait means
// what [store.Booking.MaxWait] does. When they do not allow more, Do returns an error at once,
// and what is booked all the same is given back. After an error the op is not the caller's any more.
func (qs *Queues) Do(ctx context.Context, op *Op, maxWait time.Duration) error {
	if op.observer = outage.From(ctx); op.observer != nil {
		op.failed = make(chan struct{}, 1)
	}
	op.Joined, op.asked = time.Now(), true
	if q := qs.enqueue(op); q != nil && qs.lead(ctx, op, q, maxWait) {
		return op.Err
	}
	timeUp, stop := conn.Timeout(ctx, maxWait, op.Joined)
	defer stop()
	if qs.await(ctx, op, timeUp) {
		return op.Err
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	select {
	case <-op.done:
		return op.Err
	default:
	}
	op.left = true
	qs.all[op.group()].noteLeft()
	return qs.Conn.Unavailable(op.unavailability(), context.Cause(ctx))
}

// await waits until the op is done, and returns true; or until timeUp is told or ctx ends, and
// returns false. It tells the op's observer of an outage.
func (qs *Queues) await(ctx context.Context, op *Op, timeUp <-chan time.Time) bool {
	if op.observer == nil {
		return conn.Await(ctx, op.Joined, op.done, timeUp, nil, nil)
	}
	return conn.Await(ctx, op.Joined, op.done, timeUp, op.failed, func() {
		qs.mu.Lock()
		why := op.unavailability()
		qs.mu.Unlock()
		op.observer.StoreAway(qs.Conn.Cause(why))
	})
}

// undoSoon is how long a caller that gives something back waits until Redis has it back, so that the
// caller's next booking finds the room. The caller does not wait for a Redis that has not answered
// for undoSoon.
const undoSoon = 50 * time.Millisecond

// Tell queues an op that gives something back, and waits until it is done, for undoSoon at most. The
// caller must not use the op and its charges any more.
func (qs *Queues) Tell(op *Op) {
	op.Joined = time.Now()
	unheard := qs.Conn.Unheard()
	qs.Post(op)
	if unheard >= undoSoon {
		return
	}
	soon := time.NewTimer(undoSoon - max(0, unheard))
	defer soon.Stop()
	select {
	case <-op.done:
		qs.Free(op)
	case <-soon.C:
	}
}

// Post queues an op that nobody waits for.
func (qs *Queues) Post(op *Op) {
	if q := qs.enqueue(op); q != nil {
		go qs.drain(op.group(), q, nil)
	}
}

// enqueue puts an op into the queue of its group. It returns the queue if the queue stood still: then
// it runs now, and the caller must lead or drain it. Otherwise it returns nil.
func (qs *Queues) enqueue(op *Op) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[op.group()]
	if q == nil {
		q = &queue{left: make(chan struct{}, 1), sooner: make(chan struct{}, 1)}
		qs.all[op.group()] = q
	}
	q.ops = append(q.ops, op)
	q.noteDue(op)
	qs.Line.Arrived(op)
	if q.running {
		return nil
	}
	q.running = true
	return q
}
