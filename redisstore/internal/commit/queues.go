package commit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Queues are the commit queues of a node, one for each group of budgets that is in use.
type Queues struct {
	Options
	unused sync.Pool // of ops

	mu    sync.Mutex
	calls int64             // the number of the last call
	all   map[string]*queue // by group
}

// Options are what Queues work with. All are required.
type Options struct {
	Conn    *conn.Conn
	Names   *names.Space
	History *history.History
	Offsets *history.ClockOffsets
	Pauses  *history.PauseEnds // of budgets
	Shut    *history.PauseEnds // of unlimited budgets that Redis said to be shut; see gates.go
	Line    Line               // the callers in line
	Lost    func(key string)   // is told that Redis lost a budget
}

// A Line is what queues need of the layer above, which knows the callers in line. The
// queues, and their ops, are locked while they call Arrived and Settled.
type Line interface {
	// Gather waits for callers that were called and are on their way to a queue.
	Gather(group string)
	// Arrived notes that an op is in its queue.
	Arrived(*Op)
	// Report begins the reports that go along with a call for some ops; nil: there are none.
	Report([]*Op) Reports
	// Observe takes in what a reply says of the line for starts of the budget with that key; nil:
	// there is none.
	Observe(key string, l *wire.Line)
	// Answered notes the answer to an op: its Outcome and Err are set. If the caller stands in line
	// from now on, Answered sets the op's Turn and, unless the caller has left, its Ready. It does
	// not count what was granted to a caller that has left.
	Answered(op *Op)
}

// New returns queues that are empty.
func New(o Options) *Queues { return &Queues{Options: o, all: make(map[string]*queue)} }

// NewOp returns an op for a copy of the charges, which are their owner's again when
// Do returns, even if a call is still on its way.
func (qs *Queues) NewOp(k wire.Kind, charges []store.Charge) *Op {
	op, _ := qs.unused.Get().(*Op)
	if op == nil {
		op = &Op{done: make(chan struct{}, 1)}
	}
	*op = Op{Op: wire.Op{Kind: k, Charges: append(op.Charges[:0], charges...)}, done: op.done, forSlots: needSlots(charges)}
	return op
}

// Free lets another caller use an op that is done.
func (qs *Queues) Free(op *Op) { qs.unused.Put(op) }

// Len returns how many ops are queued, and how many queues have a goroutine that makes
// calls.
func (qs *Queues) Len() (ops, running int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.all {
		if ops += len(q.ops); q.running {
			running++
		}
	}
	return ops, running
}

// A queue is the commit queue of one group: the ops that wait for the next call. It makes one call
// after the other. A call belongs to no caller, so a caller that leaves does not disturb the others.
// A queue runs only while callers wait: then a leader, or a goroutine, makes its calls. It exists
// while it runs, or has a lost call. The lock of the queues guards all of it.
type queue struct {
	ops     []*Op
	running bool
	lost    *batch        // a call without an answer, for which nobody waited any more; see next
	leavers int           // how many callers have left since the last sweep: at most so many ops are of callers that left
	left    chan struct{} // told when a caller leaves, for a call that waits before it is made again
	due     time.Time     // when the next call must be made, if there are ops
	sooner  chan struct{} // told when due becomes earlier
}

// batchMost bounds how many ops one script call serves, and with it how
// long Redis is busy with one call, and the record of its answers: 4 KB at most.
const batchMost = 80

// turnsMost bounds how many of them may come from a line, or to it again: each has an answer
// of its own, and Redis keeps the answers to the last call.
const turnsMost = 32

// next returns the next call of the queue; nil: there are no ops, and the queue stops. A lost call
// goes first, so that what it may have booked is given back, unless Redis has forgotten it.
func (qs *Queues) next(group string, q *queue) *batch {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.stopIfEmptyLocked(group, q) {
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
	turns := q.ops[0].turnCount()
	for n < min(len(q.ops), batchMost) && !q.ops[0].isolated && !q.ops[n].isolated {
		if turns += q.ops[n].turnCount(); turns > turnsMost {
			break
		}
		n++
	}
	ops := q.ops[:n:n]
	q.ops = append(make([]*Op, 0, len(q.ops)), q.ops[n:]...) // with room for as many ops as this call has
	q.due = time.Time{}                                      // the ops that are left have waited enough
	for _, op := range ops {
		op.subtractPatience()
	}
	qs.calls++
	return newBatch(ops, qs.calls)
}

// stopIfEmpty stops the queue if it has no ops, and reports whether it did.
func (qs *Queues) stopIfEmpty(group string, q *queue) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.stopIfEmptyLocked(group, q)
}

// stopIfEmptyLocked is stopIfEmpty while the queues are locked.
func (qs *Queues) stopIfEmptyLocked(group string, q *queue) bool {
	q.sweep()
	if len(q.ops) > 0 {
		return false
	}
	q.ops, q.running = nil, false
	if q.lost == nil {
		delete(qs.all, group)
	}
	return true
}

// nextNumber returns the number of a new call.
func (qs *Queues) nextNumber() int64 {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.calls++
	return qs.calls
}

// noteLeft notes that a caller has left. It wakes a queue that waits to make a call again, which
// nobody may want any more, and sweeps a queue in which most callers have left.
func (q *queue) noteLeft() {
	if q.leavers++; q.leavers > 100 && q.leavers > len(q.ops)/2 {
		q.sweep()
	}
	select {
	case q.left <- struct{}{}:
	default:
	}
}

// sweep takes the ops of callers that left out of the queue. In place of an op of a caller that
// held a start or a place in line it puts an op that gives that back.
func (q *queue) sweep() {
	if q.leavers == 0 {
		return
	}
	q.leavers = 0
	var back []*Op
	q.ops = slices.DeleteFunc(q.ops, func(op *Op) bool {
		if op.left && op.Kind == wire.Reserve {
			if op.Start > 0 {
				back = append(back, op.cancelOp(store.Handle{Start: op.Start}))
			}
			back = append(back, op.leaveOps()...)
		}
		return op.left
	})
	q.ops = append(back, q.ops...)
}

// gather waits for callers that may share the next call of a queue: until one of its ops can wait no
// longer, or so many have come that a call is full, or ctx is done. Then it waits for the callers
// in line that were called and are on their way to the queue.
func (qs *Queues) gather(ctx context.Context, group string, q *queue) {
	for {
		d := qs.spareTime(q)
		if d <= 0 {
			qs.Line.Gather(group)
			return
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-q.sooner:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// spareTime returns for how long the next call of a queue may still wait.
func (qs *Queues) spareTime(q *queue) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(q.ops) == 0 || len(q.ops) >= batchMost {
		return 0
	}
	return time.Until(q.due)
}

// noteDue takes the op that has come last into account in q.due, and tells sooner if the next call
// must be made earlier, or is full. The queues are locked.
func (q *queue) noteDue(op *Op) {
	due := op.due()
	switch first := len(q.ops) == 1; {
	case !first && !due.Before(q.due) && len(q.ops) != batchMost:
		return
	case first || due.Before(q.due):
		q.due = due
	}
	select {
	case q.sooner <- struct{}{}:
	default:
	}
}
