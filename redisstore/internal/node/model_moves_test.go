package node

import (
	"fmt"
	"maps"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A modelMove leads from one world to another.
type modelMove struct {
	name string
	make func(w *modelWorld)
}

// moves are all that can happen next.
func (m *model) moves(w *modelWorld) (all []modelMove) {
	add := func(make func(*modelWorld), name string, args ...any) {
		all = append(all, modelMove{fmt.Sprintf(name, args...), make})
	}
	for i := range w.nodes {
		if w.focus < 0 || w.focus == i {
			m.nodeMoves(w, i, add)
		}
	}
	if w.focus >= 0 {
		return all // nobody sees that a node has begun to want something
	}
	for k := range w.late {
		add(func(w *modelWorld) { m.deliver(w, k) }, "late call %d arrives", k)
	}
	if w.left.ticks > 0 && m.waitsForTime(w) {
		for _, d := range m.ticks {
			add(func(w *modelWorld) { w.left.ticks--; w.pass(d) }, "%v pass", d)
		}
	}
	if w.left.faults > 0 {
		m.faults(w, m.ended(w), add)
	}
	return all
}

// waitsForTime reports whether anything can still change with time.
func (m *model) waitsForTime(w *modelWorld) bool {
	for i, n := range w.nodes {
		if n.now != nil || n.queue != nil && n.queue.running || n.next < len(m.plans[i]) {
			return true
		}
	}
	return len(w.late) > 0 || w.left.cancels > 0 && w.left.faults > 0
}

// nodeMoves are those of one node.
func (m *model) nodeMoves(w *modelWorld, i int, add func(func(*modelWorld), string, ...any)) {
	n := w.nodes[i]
	idle := n.queue == nil || !n.queue.running
	if n.next < len(m.plans[i]) && m.turn(w, i) && (idle || len(n.queue.ops) < 2) {
		add(func(w *modelWorld) { m.begin(w, i) }, "node %d wants %+v", i, m.plans[i][n.next])
	}
	if n.reply != nil {
		add(func(w *modelWorld) { m.call(w, i, modelArrives) }, "node %d gets its answer", i)
		add(func(w *modelWorld) { w.nodes[i].reply = nil; m.fails(w, i) }, "node %d does not wait for its answer", i)
	} else if !idle {
		add(func(w *modelWorld) { m.call(w, i, modelFine) }, "node %d calls", i)
		if f := w.left; f.faults > 0 {
			if f.lost > 0 {
				add(func(w *modelWorld) { w.left.faults--; w.left.lost--; m.call(w, i, modelLost) }, "node %d calls, the answer is lost", i)
			}
			if f.held > 0 {
				add(func(w *modelWorld) { w.left.faults--; w.left.held--; m.call(w, i, modelHeld) }, "node %d calls, the call is held", i)
			}
			if f.slow > 0 {
				add(func(w *modelWorld) { w.left.faults--; w.left.slow--; m.call(w, i, modelSlow) }, "node %d calls, the answer is slow", i)
			}
		}
	}
}

// turn reports whether a node may begin: of those that want the same, the first
// begins first.
func (m *model) turn(w *modelWorld, i int) bool {
	return i == 0 || w.nodes[i].next > 0 || fmt.Sprint(m.plans[i]) != fmt.Sprint(m.plans[i-1]) || w.nodes[i-1].next > 0
}

// faults are what may go wrong between calls.
func (m *model) faults(w *modelWorld, ended bool, add func(func(*modelWorld), string, ...any)) {
	fault := func(count func(*modelChances) *int, make func(*modelWorld), name string, args ...any) {
		if *count(&w.left) > 0 {
			add(func(w *modelWorld) { w.left.faults--; *count(&w.left)--; make(w) }, name, args...)
		}
	}
	for i, n := range w.nodes {
		for k, j := range n.jobs {
			switch {
			case j.state == modelWaits && n.now != nil:
				fault(func(c *modelChances) *int { return &c.leaves }, func(w *modelWorld) { m.leave(w, i, k) }, "caller %d of node %d leaves", k, i)
			case j.state == modelServes:
				fault(func(c *modelChances) *int { return &c.cancels }, func(w *modelWorld) { m.cancel(w, i, k) }, "node %d gives back start %d", i, k)
			}
		}
		if n.calls > 0 && !ended {
			fault(func(c *modelChances) *int { return &c.crashes }, func(w *modelWorld) { m.crash(w, i) }, "node %d crashes", i)
		}
		if ended {
			continue
		}
		fault(func(c *modelChances) *int { return &c.pauses }, func(w *modelWorld) { m.pause(w, i) }, "node %d pauses budget 0", i)
	}
	if ended {
		return
	}
	if len(w.keys) > 0 {
		fault(func(c *modelChances) *int { return &c.flushes }, func(w *modelWorld) { m.forget(w, &modelReplica{}) }, "the server forgets everything")
		fault(func(c *modelChances) *int { return &c.backs }, func(w *modelWorld) { m.back(w, 3*time.Second) }, "the clock steps back by 3s")
		fault(func(c *modelChances) *int { return &c.backs }, func(w *modelWorld) { m.back(w, time.Hour) }, "the clock steps back by 1h")
	}
	switch {
	case w.left.stale == 0:
	case w.replica == nil:
		add(func(w *modelWorld) { w.replica = &modelReplica{maps.Clone(w.keys), w.stored} }, "the replica lags from now on")
	default:
		fault(func(c *modelChances) *int { return &c.stale }, func(w *modelWorld) { m.forget(w, w.replica); w.replica = nil }, "the replica takes over")
	}
}

// fails is an answer that does not come.
func (m *model) fails(w *modelWorld, i int) {
	s, n := m.mount(w, i)
	defer n.unmount(s)
	if !s.noteFailure(n.queue, n.now, errModelAway) {
		n.now = nil
	}
}

// modelPauseTime is how long a pause is.
const modelPauseTime = 5 * time.Second

// pause has a node close the first budget.
func (m *model) pause(w *modelWorld, i int) {
	s, n := m.mount(w, i)
	defer n.unmount(s)
	m.wire.fate, m.wire.quiet = modelFine, true
	defer func() { m.wire.quiet = false }()
	c := m.charges(modelWish{budgets: []int{0}, cost: 1})[0]
	r, err := conn.AskOnce(m.wire.t.Context(), s.Conn, func() wire.Request[wire.PauseReply] {
		return wire.PauseRequest{Key: m.key(0), Charge: &c, Shared: s.Names.Shared(), Length: modelPauseTime}
	})
	if err != nil {
		m.breaks(w, "P11: no pause: %w", err)
	}
	now := time.Now()
	s.Pauses.Note(m.key(0), now.Add(wire.Wait(r.End-r.Now)), now)
	w.paused = w.truth + wire.Micros(modelPauseTime)
}

// back sets the server's clock back. What is over by then is not there again.
func (m *model) back(w *modelWorld, d time.Duration) {
	w.clock, w.backed = w.clock-wire.Micros(d), w.backed+wire.Micros(d)
}

// settle ends a world: all are served, and when the last start is over the next
// one needs not wait.
func (m *model) settle(w *modelWorld) {
	for i, n := range w.nodes {
		for _, j := range n.jobs {
			if j.state == modelWaits {
				m.breaks(w, "P5: a caller of node %d is never served", i)
			}
		}
		m.judgeGiven(w, n)
	}
	last := w.copy("all is over")
	over := max(0, last.latest-last.truth) + m.longest() + last.doubt()
	if last.paused > 0 {
		over = max(over, last.paused-last.truth) + 3*m.longest()
	}
	last.pass(time.Duration(over) * time.Microsecond)
	for k, l := range m.limits {
		if l.Kind() == store.KindFixedWindow {
			per := wire.Micros(l.Per())
			last.pass(time.Duration((per-last.truth%per)%per) * time.Microsecond)
		}
		v := last.copy("somebody new wants all")
		v.nodes = append(v.nodes, modelNewNode("last"))
		i := len(v.nodes) - 1
		m.plans = append(m.plans, []modelWish{{[]int{k}, l.Capacity(), -1}})
		if l.Kind() == store.KindLeakyBucket {
			m.plans[i][0].cost = 1
		}
		m.begin(v, i)
		m.call(v, i, modelFine)
		if j := v.nodes[i].jobs[0]; m.broken == nil && (j.start < 0 || v.starts[j.start].at != v.truth) {
			m.breaks(v, "P5: budget %d is not free when all is over", k)
		}
		m.plans = m.plans[:i]
	}
}
