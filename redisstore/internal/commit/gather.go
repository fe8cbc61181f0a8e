package commit

import (
	"context"
	"time"
)

// gather waits for callers that may share the next call of a queue: until one of its ops can wait no
// longer, or so many have come that a call is full, or ctx is done. Callers that were called
// are on their way then, and are awaited.
func (qs *Queues) gather(ctx context.Context, group string, q *queue) {
	for {
		d := qs.leisure(q)
		if d <= 0 {
			qs.Line.Gather(group)
			return
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-q.hurry:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// leisure returns for how long the next call of a queue may wait.
func (qs *Queues) leisure(q *queue) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(q.ops) == 0 || len(q.ops) >= batchMost {
		return 0
	}
	return time.Until(q.due)
}

// hasten notes when the call of an op that has come must be made. The queues are locked.
func (q *queue) hasten(op *Op) {
	due := op.due()
	switch first := len(q.ops) == 1; {
	case !first && !due.Before(q.due) && len(q.ops) != batchMost:
		return
	case first || due.Before(q.due):
		q.due = due
	}
	select {
	case q.hurry <- struct{}{}:
	default:
	}
}
