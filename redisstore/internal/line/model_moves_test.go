package line

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// moves returns what can happen next in a world.
func (m *model) moves(w *modelWorld) (all []*modelWorld) {
	busy := false
	for i, n := range w.nodes {
		if n.dead || n.until > w.now {
			continue
		}
		// do lets the node do something.
		do := func(text string, what func(v *modelWorld, n *modelNode)) {
			v := *w
			v.nodes = slices.Clone(w.nodes)
			own := n.copyAt(w.now)
			v.nodes[i] = own
			v.story = &modelStory{w.story, w.now, fmt.Sprintf("node %d: %s", i, text)}
			what(&v, own)
			m.settle(own)
			all = append(all, &v)
		}
		m.callerMoves(w, n, do, &busy)
		if len(n.queued) > 0 && n.reply == nil {
			busy = true
			do("calls", func(v *modelWorld, n *modelNode) { m.calls(v, n) })
		}
		if n.reply != nil {
			busy = true
			do("is answered", func(v *modelWorld, n *modelNode) { m.answered(v, n) })
			if w.left.unheard > 0 {
				do("is never answered", func(v *modelWorld, n *modelNode) {
					v.left.unheard--
					for _, op := range n.flying {
						if op.caller >= 0 {
							n.callers[op.caller].state = modelGone
						}
					}
					n.flying, n.reply = nil, nil
				})
			}
		}
		if len(n.mail) > 0 {
			busy = true
			do("hears of a turn", func(_ *modelWorld, n *modelNode) {
				said := n.mail[0]
				n.mail = n.mail[1:]
				for k := range n.callers {
					n.callers[k].heard = true
				}
				n.starts.Turns(said)
			})
			if w.left.lost > 0 {
				do("misses a message", func(v *modelWorld, n *modelNode) {
					v.left.lost--
					n.mail = n.mail[1:]
				})
			}
		}
		for _, l := range n.starts.all {
			if n.due(l.timerAt) <= w.now && m.flaw != modelNoTimers {
				busy = true
				do("its timer is over", func(_ *modelWorld, n *modelNode) {
					n.starts.all[l.key].callDue()
					synctest.Wait() // it may ask in a goroutine of its own
				})
			}
		}
		if w.left.deaths > 0 && !n.over() {
			do("dies", func(v *modelWorld, n *modelNode) {
				v.left.deaths--
				*n = modelNode{dead: true, starts: m.newStarts()}
			})
		}
		if w.left.sleeps > 0 && !n.over() {
			do("sleeps", func(v *modelWorld, n *modelNode) {
				v.left.sleeps--
				n.until = w.now + wire.Micros(modelSleep)
			})
		}
	}
	if !busy {
		all = m.later(w, all)
	}
	return all
}

// callerMoves adds what callers of a node can do.
func (m *model) callerMoves(w *modelWorld, n *modelNode, do func(string, func(*modelWorld, *modelNode)), busy *bool) {
	came := false
	for k := range n.callers {
		c := &n.callers[k]
		switch c.state {
		case modelAway:
			if came {
				continue // the callers of a node that did not come are alike
			}
			came = true
			*busy = *busy || w.now >= modelBegins+wire.Micros(m.lastArrival)
			do(fmt.Sprint("caller ", k, " comes"), func(v *modelWorld, n *modelNode) { m.books(v, n, k) })
		case modelCalled:
			*busy = true
			do(fmt.Sprint("caller ", k, " comes again"), func(v *modelWorld, n *modelNode) { m.books(v, n, k) })
		}
		if w.left.leaves == 0 {
			continue
		}
		switch c.state {
		case modelInLine, modelCalled:
			do(fmt.Sprint("caller ", k, " leaves"), func(v *modelWorld, n *modelNode) {
				v.left.leaves--
				c := &n.callers[k]
				if op := n.starts.Cancel(c.turn); op != nil {
					n.queued = append(n.queued, modelOp{op, -1})
				}
				c.state, c.turn = modelGone, nil
			})
		case modelBooked:
			do(fmt.Sprint("caller ", k, " gives its start back"), func(v *modelWorld, n *modelNode) {
				v.left.leaves--
				c := &n.callers[k]
				op := commit.NewOp(wire.Cancel, m.charge(n.plan.cost))
				op.Start = c.start
				n.queued = append(n.queued, modelOp{op, -1})
				c.state, c.turn = modelGone, nil
			})
		}
	}
}

// due is when a time of the node is, by the world's.
func (n *modelNode) due(t time.Time) int64 {
	return n.at + wire.Micros(time.Until(t))
}

// over reports whether the node wants nothing more.
func (n *modelNode) over() bool {
	for _, c := range n.callers {
		if c.state < modelStarted {
			return false
		}
	}
	return len(n.queued) == 0 && n.reply == nil
}

// later lets time pass until something is due.
func (m *model) later(w *modelWorld, all []*modelWorld) []*modelWorld {
	next, waits := int64(1<<60), false
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		if n.until > w.now {
			next = min(next, n.until)
		}
		for _, l := range n.starts.all {
			if at := n.due(l.timerAt); at > w.now && m.flaw != modelNoTimers {
				next = min(next, at)
			}
		}
		for _, c := range n.callers {
			switch c.state {
			case modelAway:
				next = min(next, w.now+modelArrivals-(w.now-modelBegins)%modelArrivals)
			case modelBooked:
				next = min(next, c.start)
			}
			waits = waits || c.state < modelStarted
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
	v.story = &modelStory{w.story, next, "time has passed"}
	for i, n := range v.nodes {
		own := *n
		own.callers = slices.Clone(n.callers)
		for k := range own.callers {
			if c := &own.callers[k]; c.state == modelBooked && c.start <= next {
				c.state = modelStarted
			}
		}
		v.nodes[i] = &own
	}
	m.judgeEnd(&v, false)
	return append(all, &v)
}
