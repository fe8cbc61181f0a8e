package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// moves returns what can happen next in a world.
func (m *lineModel) moves(w *lineModelWorld) (all []*lineModelWorld) {
	busy := false
	for i, n := range w.nodes {
		if n.dead || n.until > w.now {
			continue
		}
		// do lets the node do something.
		do := func(text string, what func(v *lineModelWorld, n *lineModelNode)) {
			v := *w
			v.nodes = slices.Clone(w.nodes)
			own := n.copyAt(w.now)
			v.nodes[i] = own
			v.story = &lineModelStory{w.story, w.now, fmt.Sprintf("node %d: %s", i, text)}
			what(&v, own)
			m.settle(own)
			all = append(all, &v)
		}
		m.callerMoves(w, n, do, &busy)
		if len(n.queued) > 0 && n.reply == nil {
			busy = true
			do("calls", func(v *lineModelWorld, n *lineModelNode) { m.calls(v, n) })
		}
		if n.reply != nil {
			busy = true
			do("is answered", func(v *lineModelWorld, n *lineModelNode) { m.answered(v, n) })
			if w.left.unheard > 0 {
				do("is never answered", func(v *lineModelWorld, n *lineModelNode) {
					v.left.unheard--
					for _, op := range n.flying {
						if op.caller >= 0 {
							n.callers[op.caller].state = lineModelGone
						}
					}
					n.flying, n.reply = nil, nil
				})
			}
		}
		if len(n.mail) > 0 {
			busy = true
			do("hears of a turn", func(_ *lineModelWorld, n *lineModelNode) {
				said := n.mail[0]
				n.mail = n.mail[1:]
				for k := range n.callers {
					n.callers[k].heard = true
				}
				n.node.Turns(said)
			})
			if w.left.lost > 0 {
				do("misses a message", func(v *lineModelWorld, n *lineModelNode) {
					v.left.lost--
					n.mail = n.mail[1:]
				})
			}
		}
		for _, l := range n.node.lines {
			if n.due(l.timerAt) <= w.now && m.flaw != lineModelNoTimers {
				busy = true
				do("its timer is over", func(_ *lineModelWorld, n *lineModelNode) {
					n.node.lines[l.key].due()
				})
			}
		}
		if w.left.deaths > 0 && !n.over() {
			do("dies", func(v *lineModelWorld, n *lineModelNode) {
				v.left.deaths--
				*n = lineModelNode{dead: true, node: m.newNode()}
			})
		}
		if w.left.sleeps > 0 && !n.over() {
			do("sleeps", func(v *lineModelWorld, n *lineModelNode) {
				v.left.sleeps--
				n.until = w.now + wire.Micros(lineModelSleep)
			})
		}
	}
	if !busy {
		all = m.later(w, all)
	}
	return all
}

// callerMoves adds what callers of a node can do.
func (m *lineModel) callerMoves(w *lineModelWorld, n *lineModelNode, do func(string, func(*lineModelWorld, *lineModelNode)), busy *bool) {
	came := false
	for k := range n.callers {
		c := &n.callers[k]
		switch c.state {
		case lineModelAway:
			if came {
				continue // the callers of a node that did not come are alike
			}
			came = true
			*busy = *busy || w.now >= lineModelBegins+wire.Micros(m.lastArrival)
			do(fmt.Sprint("caller ", k, " comes"), func(v *lineModelWorld, n *lineModelNode) { m.books(v, n, k) })
		case lineModelCalled:
			*busy = true
			do(fmt.Sprint("caller ", k, " comes again"), func(v *lineModelWorld, n *lineModelNode) { m.books(v, n, k) })
		}
		if w.left.leaves == 0 {
			continue
		}
		switch c.state {
		case lineModelInLine, lineModelCalled:
			do(fmt.Sprint("caller ", k, " leaves"), func(v *lineModelWorld, n *lineModelNode) {
				v.left.leaves--
				c := &n.callers[k]
				if op := n.node.leaveLines(c.turn); op != nil {
					n.queued = append(n.queued, lineModelOp{op, -1})
				}
				c.state, c.turn = lineModelGone, nil
			})
		case lineModelBooked:
			do(fmt.Sprint("caller ", k, " gives its start back"), func(v *lineModelWorld, n *lineModelNode) {
				v.left.leaves--
				c := &n.callers[k]
				op := keepOp(wire.Cancel, m.charge(n.plan.cost))
				op.Start = c.start
				n.queued = append(n.queued, lineModelOp{op, -1})
				c.state, c.turn = lineModelGone, nil
			})
		}
	}
}

// due is when a time of the node is, by the world's.
func (n *lineModelNode) due(t time.Time) int64 {
	return n.at + wire.Micros(time.Until(t))
}

// over reports whether the node wants nothing more.
func (n *lineModelNode) over() bool {
	for _, c := range n.callers {
		if c.state < lineModelStarted {
			return false
		}
	}
	return len(n.queued) == 0 && n.reply == nil
}

// later lets time pass until something is due.
func (m *lineModel) later(w *lineModelWorld, all []*lineModelWorld) []*lineModelWorld {
	next, waits := int64(1<<60), false
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		if n.until > w.now {
			next = min(next, n.until)
		}
		for _, l := range n.node.lines {
			if at := n.due(l.timerAt); at > w.now && m.flaw != lineModelNoTimers {
				next = min(next, at)
			}
		}
		for _, c := range n.callers {
			switch c.state {
			case lineModelAway:
				next = min(next, w.now+lineModelArrivals-(w.now-lineModelBegins)%lineModelArrivals)
			case lineModelBooked:
				next = min(next, c.start)
			}
			waits = waits || c.state < lineModelStarted
		}
	}
	if !waits {
		m.judgeEnd(w, true)
		return all
	}
	if next == 1<<60 {
		m.breaks(w, "%w: nothing will ever call it", errForgotten)
		return all
	}
	v := *w
	v.now, v.nodes = next, slices.Clone(w.nodes)
	v.story = &lineModelStory{w.story, next, "time has passed"}
	for i, n := range v.nodes {
		own := *n
		own.callers = slices.Clone(n.callers)
		for k := range own.callers {
			if c := &own.callers[k]; c.state == lineModelBooked && c.start <= next {
				c.state = lineModelStarted
			}
		}
		v.nodes[i] = &own
	}
	m.judgeEnd(&v, false)
	return append(all, &v)
}
