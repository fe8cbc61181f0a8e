// Package commit makes the booking calls of a node. While a call for a group of budgets
// is on its way, other callers' operations wait in a queue, and the next call serves them
// all, in order: this is group commit. A caller that finds no call on its way makes one, as
// their leader. The package hides batches, merged operations, the
// numbers of calls, calls that are made again, and callers that leave before they have
// their answer. See docs/once.md.
package commit

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

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
