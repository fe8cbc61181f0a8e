package node

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A model explores worlds. It has one [Queues], which is each node in turn: what that
// does without goroutines is what it does here.
type model struct {
	modelScope
	wire    *modelWire
	queues  *Node
	seen    map[[16]byte]struct{}
	broken  error // the first promise that is
	story   []string
	numbers modelTally
	stop    func() bool
}

// mount makes the queues those of the node.
func (m *model) mount(w *modelWorld, i int) (*Node, *modelNode) {
	s, n := m.queues, w.nodes[i]
	s.Names.Node, s.calls, s.History = n.name, n.calls, history.Restore(n.memory)
	s.queues = make(map[string]*queue)
	if n.queue != nil {
		s.queues[modelGroup] = n.queue
	}
	s.Pauses = history.RestorePauseEnds(n.closed)
	m.wire.world = w
	return s, n
}

// unmount takes back what the queues know.
func (n *modelNode) unmount(s *Node) {
	n.calls, n.queue = s.calls, s.queues[modelGroup]
	n.memory, n.closed = s.History.Snapshot(), s.Pauses.Snapshot()
}

// modelGroup is that of all budgets: each node has one queue.
const modelGroup = "group"

// charges are those of a wish.
func (m *model) charges(h modelWish) (all []store.Charge) {
	for _, k := range h.budgets {
		all = append(all, store.Charge{Budget: modelBudgetOf(k), Limit: m.limits[k], Jitter: m.jitter, Cost: h.cost})
	}
	return all
}

// modelBudgetOf is the budget of that place in scope.limits.
func modelBudgetOf(k int) store.Budget {
	return store.Budget{Policy: string(rune('A' + k)), Group: modelGroup, Key: [16]byte{byte(k)}}
}

// op is a booking for a wish.
func (m *model) op(h modelWish) *op {
	op := m.queues.newOp(wire.Reserve, m.charges(h))
	op.MaxWait, op.Class = wire.MaxWait(h.maxWait), 2
	return op
}

// ask queues a caller of a node.
func (m *model) ask(w *modelWorld, i int, c *op) {
	s, n := m.mount(w, i)
	if s.enqueue(c) != nil {
		w.focus = i
	}
	n.unmount(s)
}

// begin has a node want what it wants next.
func (m *model) begin(w *modelWorld, i int) {
	n := w.nodes[i]
	c := m.op(m.plans[i][n.next])
	n.jobs = append(n.jobs, &modelJob{wish: n.next, c: c, start: -1})
	n.next++
	m.ask(w, i, c)
}

// call has a node's queue make its call, or make it again.
func (m *model) call(w *modelWorld, i int, f modelFate) {
	s, n := m.mount(w, i)
	defer n.unmount(s)
	w.focus = -1
	if n.now == nil {
		if n.now = s.next(modelGroup, n.queue); n.now == nil {
			return
		}
	}
	b := n.now
	if f == modelArrives {
		b.copied = time.Time{} // no other copy is sent
	}
	m.wire.fate, m.wire.plan, m.wire.reply = f, n.plan(b), ""
	if f == modelArrives {
		m.wire.reply, m.wire.know, m.wire.age = n.reply.text, n.reply.know, w.truth-n.reply.at
	}
	err := s.try(b, func(x *conn.Exchange) (wire.Frame, error) { return x.Await(context.Background()) })
	if f == modelArrives {
		b.copied = n.reply.sent
	}
	switch {
	case f == modelSlow && errors.Is(err, errModelAway):
		n.reply = &modelReply{m.wire.reply, b.copied, m.wire.know, w.truth - m.wire.age}
		return
	case err == nil:
		n.known |= m.wire.know
		w.delay += m.wire.age
		s.deliver(n.queue, b, nil)
		n.now, n.reply = nil, nil
		m.hear(w, i)
		if len(n.queue.ops) == 0 {
			s.next(modelGroup, n.queue) // ends it
		}
	case !errors.Is(err, errModelAway):
		m.breaks(w, "P8: a call fails: %w", err)
	case !s.noteFailure(n.queue, b, err):
		n.now = nil
	}
}

// plan says what a batch is for.
func (n *modelNode) plan(b *batch) modelPlan {
	p := modelPlan{name: n.name, number: b.number, merged: b.merged, know: n.known}
	for _, c := range b.ops {
		q := modelQuestion{job: -1, charges: c.Charges, mark: c.Start, patient: c.Kind == wire.Reserve && c.MaxWait == wire.AnyWait}
		for k, j := range n.jobs {
			if j.c == c {
				q.job, q.turn = k, j.turn
			}
		}
		p.asks = append(p.asks, q)
	}
	return p
}

// hear has the callers of a node hear what was answered.
func (m *model) hear(w *modelWorld, i int) {
	s, n := m.queues, w.nodes[i]
	for _, j := range n.jobs {
		if j.c == nil || j.state != modelWaits {
			continue
		}
		select {
		case <-j.c.done:
		default:
			continue
		}
		o := j.c.outcome
		if o.State == wire.Unsettled {
			// Whatever the others do meanwhile is a move of its own.
			j.c = m.op(m.plans[i][j.wish])
			j.c.Informed = true
			s.enqueue(j.c)
			continue
		}
		if !o.Booked() {
			j.state, j.c = modelRefused, nil
			continue
		}
		g := j.c.grant()
		if j.start < 0 || w.starts[j.start].mark != o.At {
			m.breaks(w, "P8: node %d is told of a start that is not its own", i)
			return
		}
		if g.Age > m.jitter {
			// Too old: it takes another one instead.
			w.starts[j.start].phase = modelGiven
			c := m.op(m.plans[i][j.wish])
			c.setHandle(store.Handle{Start: o.At})
			j.c, j.start, j.turn = c, -1, j.turn+1
			s.enqueue(c)
			continue
		}
		st := &w.starts[j.start]
		st.phase, st.at = modelGranted, w.truth+wire.Micros(g.Wait)
		w.latest = max(w.latest, st.at)
		j.state, j.c = modelServes, nil
	}
}

// leave has a caller of a node leave before it is answered.
func (m *model) leave(w *modelWorld, i, k int) {
	n := w.nodes[i]
	j := n.jobs[k]
	j.c.left, j.state = true, modelLeft
	n.queue.noteLeft()
	if j.start >= 0 {
		w.starts[j.start].phase = modelGiven
	}
}

// cancel has a node give back a start.
func (m *model) cancel(w *modelWorld, i, k int) {
	j := w.nodes[i].jobs[k]
	st := &w.starts[j.start]
	st.phase, j.state = modelGiven, modelLeft
	c := m.op(m.plans[i][j.wish])
	c.Kind, c.MaxWait, c.Start = wire.Cancel, 0, st.mark
	m.ask(w, i, c)
}

// crash ends a node. Another one takes its place, which knows nothing.
func (m *model) crash(w *modelWorld, i int) {
	old := w.nodes[i]
	for _, j := range old.jobs {
		if j.start < 0 {
			continue
		}
		if st := &w.starts[j.start]; st.phase == modelBooked || st.phase == modelGranted && st.at > w.truth {
			st.phase = modelVoid
		}
	}
	w.nodes[i] = modelNewNode(old.name + "'")
	w.nodes[i].next = old.next
}

func modelNewNode(name string) *modelNode {
	return &modelNode{name: name, memory: make(map[string]history.Budget), closed: make(map[string]time.Time)}
}

// deliver has a call arrive that was long on its way.
func (m *model) deliver(w *modelWorld, k int) {
	l := w.late[k]
	w.late = append(w.late[:k:k], w.late[k+1:]...)
	m.wire.world, m.wire.plan = w, l.plan
	w.delay += w.truth - l.at
	text, err := m.wire.run(m.wire.t.Context(), l.args)
	if err != nil {
		m.breaks(w, "P8: a late call fails: %w", err)
		return
	}
	m.done(w, l.args, l.plan, text)
}

// forget takes the server back to what a modelReplica has, or to nothing.
func (m *model) forget(w *modelWorld, r *modelReplica) {
	w.pass(time.Microsecond) // no server loses anything and serves in no time
	w.keys, w.stored = maps.Clone(r.keys), r.stored
	w.lost++
	w.expire()
}
