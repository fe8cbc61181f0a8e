package node

import (
	"cmp"
	"slices"

	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/redisstore/testdata/linecheck"
	"github.com/fleetthrottle/throttle/store"
)

// books queues what a caller asks for.
func (m *lineModel) books(w *lineModelWorld, n *lineModelNode, k int) {
	c := &n.callers[k]
	op := keepOp(wire.Reserve, m.charge(n.plan.cost))
	b := &store.Booking{Charges: op.Charges, MaxWait: -1, Horizon: lineModelHorizon, Returns: c.turn != nil, Priority: n.plan.priority}
	if c.turn != nil {
		b.Turn = c.turn
	}
	op.MaxWait, op.Horizon, op.Class = wire.MaxWait(b.MaxWait), b.Horizon, classOf(b.Priority)
	n.node.join(op, b)
	n.queued = append(n.queued, lineModelOp{op, k})
	c.state = lineModelAsks
}

// settle takes note of what a node's lines did by themselves.
func (m *lineModel) settle(n *lineModelNode) {
	n.node.mu.Lock()
	defer n.node.mu.Unlock()
	for _, l := range n.node.lines {
		l.timer.Stop()
	}
	for _, op := range posted(n.node) {
		n.queued = append(n.queued, lineModelOp{op, -1})
	}
	for i := range n.callers {
		if c := &n.callers[i]; c.state == lineModelInLine && (isClosed(c.turn.ready) || m.flaw == lineModelImpatient) {
			c.state = lineModelCalled
		}
	}
}

// calls makes the call of what is queued, in the order of commit.
func (m *lineModel) calls(w *lineModelWorld, n *lineModelNode) {
	rank := func(op lineModelOp) int64 {
		switch {
		case op.Kind != wire.Reserve:
			return 0
		case op.turn != nil:
			return op.Class<<40 + op.turn.number
		}
		return 1 << 53
	}
	slices.SortStableFunc(n.queued, func(a, b lineModelOp) int { return cmp.Compare(rank(a), rank(b)) })
	n.flying, n.queued = n.queued, nil
	var ops []*wire.Op
	for _, op := range n.flying {
		own := op.Op
		own.Callers = 1
		ops = append(ops, &own)
	}
	before := w.row
	reply, done := m.server.call(w, ops)
	n.reply, w.row = reply, done.row
	w.lines = w.lines.Clone()
	read, err := linecheck.Read(done.args, done.reply)
	if err == nil {
		err = w.lines.Check(read)
		w.known = w.lines.String()
	}
	if err != nil {
		m.breaks(w, "%w: %v", errAnswer, err)
	}
	m.judgeCall(w, n, before)
	if l := reply.Budgets[0].Line; l != nil && l.Hurry == summonNow {
		for i, o := range w.nodes {
			if o != n && !o.dead && len(o.node.lines) > 0 {
				own := o.copyAt(w.now)
				own.mail = append(own.mail, notify.Turns{Key: m.server.row, Line: l.ID, Cuts: l.Cuts})
				w.nodes[i] = own
			}
		}
	}
}

// answered takes in the reply to a call, as commit does.
func (m *lineModel) answered(w *lineModelWorld, n *lineModelNode) {
	r := n.reply
	for i, op := range n.flying {
		o := r.Outcomes[i]
		op.outcome = outcome{Outcome: o, Wait: o.At - r.Now}
	}
	for _, b := range r.Budgets {
		n.node.observeLine(b.Key, b.Line)
	}
	for i, op := range n.flying {
		n.node.startAnswered(op.op)
		if op.caller < 0 {
			continue
		}
		c := &n.callers[op.caller]
		switch o := &r.Outcomes[i]; o.State {
		case wire.Booked:
			c.state, c.start = lineModelBooked, o.At
		case wire.InLine:
			c.state = lineModelInLine
		default:
			m.breaks(w, "%w: a caller that waits for as long as it takes is refused: %+v", errAnswer, o)
		}
		c.turn = op.turn
	}
	n.flying, n.reply = nil, nil
}
