package node

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A lineModelWriter writes a world down, such that two worlds that can have no different future are
// the same. Nodes are interchangeable: no row knows them.
type lineModelWriter struct{ out []byte }

func (k *lineModelWriter) num(all ...int64) {
	for _, v := range all {
		k.out = binary.AppendVarint(k.out, v)
	}
}

func (k *lineModelWriter) flag(all ...bool) {
	for _, b := range all {
		v := int64(0)
		if b {
			v = 1
		}
		k.num(v)
	}
}

func (k *lineModelWriter) text(s string) {
	k.num(int64(len(s)))
	k.out = append(k.out, s...)
}

// keyOf names a world.
func (m *lineModel) keyOf(w *lineModelWorld) [32]byte {
	k := new(lineModelWriter)
	k.num(w.now)
	k.text(w.row)
	k.num(int64(w.left.deaths), int64(w.left.leaves), int64(w.left.lost), int64(w.left.unheard), int64(w.left.sleeps))
	k.text(w.known)
	k.num(w.used...)
	var nodes []string
	for _, n := range w.nodes {
		nodes = append(nodes, n.key(w.now))
	}
	slices.Sort(nodes)
	for _, n := range nodes {
		k.text(n)
	}
	return sha256.Sum256(k.out)
}

// key names a node.
func (n *lineModelNode) key(now int64) string {
	if n.dead {
		return ""
	}
	k := new(lineModelWriter)
	k.num(int64(n.plan.cost), int64(n.plan.priority), max(0, n.until-now))
	for i := range n.callers {
		c := &n.callers[i]
		k.num(int64(c.state))
		if c.state >= lineModelStarted {
			continue
		}
		k.num(c.start, c.latest)
		k.flag(c.asked == now, c.asked == now && c.heard, c.turn != nil)
		if c.asked == now {
			k.text(c.answered)
		}
		if c.turn != nil {
			k.turn(n, c.turn)
		}
	}
	for _, ops := range [][]lineModelOp{n.queued, n.flying} {
		k.num(int64(len(ops)))
		for _, op := range ops {
			k.num(int64(op.Kind), int64(op.caller), op.Start, wire.Micros(op.Again))
			k.tickets(op.Tickets)
		}
	}
	if n.reply != nil {
		for _, o := range n.reply.Outcomes {
			k.num(int64(o.State), o.At)
			k.tickets(o.Tickets)
		}
		for _, b := range n.reply.Budgets {
			k.text(fmt.Sprint(b.Line))
		}
	}
	for _, t := range n.mail {
		k.num(t.Line)
		k.num(t.Cuts[:]...)
	}
	for _, key := range slices.Sorted(maps.Keys(n.node.lines)) {
		l := n.node.lines[key]
		k.num(l.id, l.cost, l.waiting)
		k.flag(l.hurry, l.unasked)
		k.times(n, l.heardAt, l.nearAt, l.timerAt)
		for _, t := range l.waiters {
			k.num(t.number)
		}
	}
	return string(k.out)
}

func (k *lineModelWriter) turn(n *lineModelNode, t *turn) {
	k.tickets(t.tickets)
	k.flag(t.inLine, t.started, t.lineKey != "", t.waits > 1)
	if t.lineKey != "" {
		k.num(t.number)
		k.times(n, t.nearAt, t.comeBy, t.notBefore)
	}
}

func (k *lineModelWriter) tickets(all []wire.Ticket) {
	k.num(int64(len(all)))
	for _, t := range all {
		k.num(t.Line, t.Number, int64(t.State), t.Round)
	}
}

func (k *lineModelWriter) times(n *lineModelNode, all ...time.Time) {
	for _, t := range all {
		k.num(n.due(t))
	}
}
