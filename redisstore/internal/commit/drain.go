package commit

import (
	"runtime"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
)

// batchMost bounds how many ops one script call serves, and with it how
// long Redis is busy with one call, and the record of its answers: 4 KB at most.
const batchMost = 80

// turnsMost bounds how many of them may come from a line, or to it again: each has an answer
// of its own, and Redis keeps the answers to the last call.
const turnsMost = 32

// enqueue queues an op. It returns its queue if that stood still: then it must be drained.
func (qs *Queues) enqueue(op *Op) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[op.group()]
	if q == nil {
		q = &queue{left: make(chan struct{}, 1)}
		qs.all[op.group()] = q
	}
	q.ops = append(q.ops, op)
	qs.Line.Arrived(op)
	if q.running {
		return nil
	}
	q.running = true
	return q
}

// drain makes one call after another until nobody waits in the queue.
func (qs *Queues) drain(group string, q *queue) {
	conn.GrowStack()
	for {
		qs.Line.Gather(group)
		b := qs.next(group, q)
		if b == nil || !qs.execute(q, b) {
			return
		}
		// Callers that were served may come again at once: let them, before the next
		// call leaves without them.
		runtime.Gosched()
	}
}

// next returns the next call of the queue; nil ends it. A call of which nobody
// knows what became of it goes first: what it may have booked is given back.
func (qs *Queues) next(group string, q *queue) *batch {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.sweep()
	if len(q.ops) == 0 {
		q.ops, q.running = nil, false
		if q.lost == nil {
			delete(qs.all, group)
		}
		return nil
	}
	if b := q.lost; b != nil {
		q.lost = nil
		if time.Since(b.sent) < history.RecordTime {
			return b
		}
	}
	slices.SortStableFunc(q.ops, compareOps)
	n := 1
	turns := q.ops[0].turns()
	for n < min(len(q.ops), batchMost) && !q.ops[0].isolated && !q.ops[n].isolated {
		if turns += q.ops[n].turns(); turns > turnsMost {
			break
		}
		n++
	}
	ops := slices.Clone(q.ops[:n])
	q.ops = q.ops[n:]
	qs.calls++
	return newBatch(ops, qs.calls)
}
