package node

import (
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// copy returns a world that can be changed.
func (w *modelWorld) copy(move string) *modelWorld {
	v := *w
	v.keys = maps.Clone(w.keys)
	v.starts = slices.Clone(w.starts)
	v.late = slices.Clone(w.late)
	v.story = &modelStory{w.story, move}
	v.nodes = make([]*modelNode, len(w.nodes))
	for i, n := range w.nodes {
		v.nodes[i] = n.copy()
	}
	return &v
}

func (n *modelNode) copy() *modelNode {
	v := *n
	same := make(map[*op]*op)
	v.now, v.queue = modelCopyBatch(n.now, same), modelCopyQueue(n.queue, same)
	v.jobs = make([]*modelJob, len(n.jobs))
	for i, j := range n.jobs {
		c := *j
		c.c = modelCopyOp(j.c, same)
		v.jobs[i] = &c
	}
	return &v
}

func modelCopyOp(c *op, same map[*op]*op) *op {
	if c == nil {
		return nil
	}
	if same[c] == nil {
		v := *c
		v.done = make(chan struct{}, 1)
		same[c] = &v
	}
	return same[c]
}

func modelCopyOps(all []*op, same map[*op]*op) []*op {
	v := make([]*op, len(all))
	for i, c := range all {
		v[i] = modelCopyOp(c, same)
	}
	return v
}

func modelCopyBatch(b *batch, same map[*op]*op) *batch {
	if b == nil {
		return nil
	}
	v := *b
	v.ops, v.merged = modelCopyOps(b.ops, same), slices.Clone(b.merged)
	return &v
}

func modelCopyQueue(l *queue, same map[*op]*op) *queue {
	if l == nil {
		return nil
	}
	v := *l
	v.ops, v.lost, v.left = modelCopyOps(l.ops, same), modelCopyBatch(l.lost, same), make(chan struct{}, 1)
	return &v
}

// pass lets time pass. The nodes' clocks stand still in the bubble, so what they
// remember becomes older.
func (w *modelWorld) pass(d time.Duration) {
	w.clock, w.truth = w.clock+wire.Micros(d), w.truth+wire.Micros(d)
	for _, n := range w.nodes {
		n.age(d)
	}
	w.expire()
}

// expire drops the keys that are over.
func (w *modelWorld) expire() {
	over := func(_ string, k modelKey) bool { return k.expires <= w.clock }
	maps.DeleteFunc(w.keys, over)
	if w.replica != nil {
		keys := maps.Clone(w.replica.keys)
		maps.DeleteFunc(keys, over)
		w.replica = &modelReplica{keys, w.replica.stored}
	}
}

// age makes all that a node remembers older.
func (n *modelNode) age(d time.Duration) {
	older := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(-d)
		}
	}
	n.memory, n.closed = maps.Clone(n.memory), maps.Clone(n.closed)
	for key, b := range n.memory {
		older(&b.Last.Sent)
		older(&b.Last.By)
		b.Starts = slices.Clone(b.Starts)
		for i := range b.Starts {
			older(&b.Starts[i].By)
		}
		n.memory[key] = b
	}
	for key, end := range n.closed {
		n.closed[key] = end.Add(-d)
	}
	seen := make(map[*op]bool)
	callers := func(all []*op) {
		for _, c := range all {
			if c != nil && !seen[c] {
				seen[c] = true
				older(&c.joined)
				older(&c.first)
				older(&c.sent)
			}
		}
	}
	for _, j := range n.jobs {
		callers([]*op{j.c})
	}
	if n.now != nil {
		older(&n.now.sent)
		older(&n.now.copied)
		callers(n.now.ops)
	}
	if n.queue != nil {
		callers(n.queue.ops)
		if n.queue.lost != nil {
			older(&n.queue.lost.sent)
			callers(n.queue.lost.ops)
		}
	}
	if n.reply != nil {
		r := *n.reply
		older(&r.sent)
		n.reply = &r
	}
}
