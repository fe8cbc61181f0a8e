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

// lead makes the call for the caller of an op whose queue stood still, and for the callers that
// came with it: a lone caller needs no goroutine of the queue. It reports whether the op is done.
// It leaves to such a goroutine what has no answer within a second, or before the caller leaves,
// what fails, and calls that a lock could delay. A caller that has left by now needs none.
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
	if b.holds() {
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
	if !qs.ends(group, q) {
		go qs.drain(group, q, nil)
	}
	select {
	case <-op.done:
		return true
	default:
		return false // it is in the next call: this one was as patient as the others were
	}
}

// drain makes one call after another until nobody waits in the queue. It begins with what a
// leader left to it; nil: nothing.
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
		// Callers that were served may come again at once: let them, before the next
		// call leaves without them.
		runtime.Gosched()
	}
}

// execute makes a call until it is known what became of it, or nobody wants to
// know; then it returns false. A call that is made again has the same number, by
// which Redis knows whether it was done already.
func (qs *Queues) execute(q *queue, b *batch) bool {
	if b.reports = qs.Line.Report(b.ops); b.reports != nil {
		defer func() { b.reports.Done(b.replies, b.sent) }()
	}
	left := false
	err := conn.Retry(context.Background(), q.left, func(err error) bool {
		left = !qs.failed(q, b, err)
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
			qs.Line.Settled(op)
			switch {
			case err == nil && op.left && op.Outcome.State == wire.InLine:
				undone = append(undone, op.leaving()...)
			case err == nil && op.left && (op.Outcome.Booked() || op.Outcome.State == wire.Waiting):
				undone = append(undone, op.undoing(op.Outcome.Handle()))
			case err == nil && !op.left && op.refusedForOthers(m):
				op.noMerge = true
				back = append(back, op)
			default:
				if err != nil {
					undone = append(undone, op.leaving()...)
				}
				op.done <- struct{}{}
			}
		}
	}
	if len(undone)+len(back) > 0 {
		q.ops = slices.Concat(undone, back, q.ops)
	}
}

// refusedForOthers reports whether the op would have been booked if it had not been merged
// with less patient ones.
func (op *Op) refusedForOthers(m merged) bool {
	return op.MaxWait > m.maxWait && !op.Outcome.Booked() && op.Outcome.State != wire.Unsettled && op.Ready == nil && op.Outcome.Wait <= op.MaxWait
}

// failed notes why a call failed, and reports whether anybody waits in the queue.
// If nobody does, the queue stands still: the next caller will find out what became of
// the call.
func (qs *Queues) failed(q *queue, b *batch, err error) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, op := range b.ops {
		op.fail(err)
	}
	for _, op := range q.ops {
		op.fail(err)
	}
	if slices.ContainsFunc(b.ops, (*Op).waits) || slices.ContainsFunc(q.ops, (*Op).waits) {
		return true
	}
	q.lost, q.running, b.copied = b, false, time.Time{}
	return false
}

// isolate queues the ops of a batch again, first and each for a call of its own,
// because one of them has something that cannot be served.
func (qs *Queues) isolate(q *queue, b *batch) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, op := range b.ops {
		op.isolated = true
		if op.left {
			q.gone++
		}
	}
	q.ops = append(slices.Clone(b.ops), q.ops...)
}

// Do queues an op and waits until it is done, as long as ctx and maxWait allow, which means
// what [throttle.Booking.MaxWait] does. Then it returns at once, and what is booked all the
// same is given back. After an error the op is not the caller's any more.
func (qs *Queues) Do(ctx context.Context, op *Op, maxWait time.Duration) error {
	if op.observer = outage.From(ctx); op.observer != nil {
		op.failed = make(chan struct{}, 1)
	}
	op.Joined = time.Now()
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
	qs.all[op.group()].leave()
	return qs.Conn.Unavailable(op.unavailability(), context.Cause(ctx))
}

// await returns true when the op is done, false when its caller waits no longer.
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

// undoSoon is how long a caller that leaves waits for its place to be given
// back, so that the next caller finds it free. It does not wait for a Redis that has
// not answered for so long.
const undoSoon = 50 * time.Millisecond

// Tell queues an op that gives something back, and waits a little for it. After that others
// use the op, and the memory of its charges.
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

// enqueue queues an op. It returns its queue if that stood still: then it must be drained.
func (qs *Queues) enqueue(op *Op) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[op.group()]
	if q == nil {
		q = &queue{left: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
		qs.all[op.group()] = q
	}
	q.ops = append(q.ops, op)
	q.hasten(op)
	qs.Line.Arrived(op)
	if q.running {
		return nil
	}
	q.running = true
	return q
}
