package line

import (
	"cmp"
	"slices"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/linecheck"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// books queues what a caller asks for.
func (m *model) books(w *modelWorld, n *modelNode, k int) {
	c := &n.callers[k]
	op := commit.NewOp(wire.Reserve, m.charge(n.plan.cost))
	b := &store.Booking{Charges: op.Charges, MaxWait: -1, Horizon: modelHorizon, Returns: c.turn != nil, Priority: n.plan.priority}
	if c.turn != nil {
		b.Turn = c.turn
	}
	op.MaxWait = wire.MaxWait(b.MaxWait)
	n.starts.Join(op, b)
	n.queued = append(n.queued, modelOp{op, k})
	c.state = modelAsks
}

// settle takes note of what a node's lines did by themselves.
func (m *model) settle(n *modelNode) {
	n.starts.mu.Lock()
	defer n.starts.mu.Unlock()
	for _, n := range n.starts.all {
		n.timer.Stop()
	}
	for _, op := range m.posted {
		n.queued = append(n.queued, modelOp{op, -1})
	}
	m.posted = nil
	for i := range n.callers {
		if c := &n.callers[i]; c.state == modelInLine && (isClosed(c.turn.ready) || m.flaw == modelImpatient) {
			c.state = modelCalled
		}
	}
}

// calls makes the call of what is queued, in the order of commit.
func (m *model) calls(w *modelWorld, n *modelNode) {
	rank := func(op modelOp) int64 {
		switch {
		case op.Kind != wire.Reserve:
			return 0
		case op.Turn != nil:
			return op.Class<<40 + op.Turn.Ticket()
		}
		return 1 << 53
	}
	slices.SortStableFunc(n.queued, func(a, b modelOp) int { return cmp.Compare(rank(a), rank(b)) })
	n.flying, n.queued = n.queued, nil
	var ops []*wire.Op
	for _, op := range n.flying {
		own := op.Op.Op
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
	if l := reply.Budgets[0].Line; l != nil && l.Hurry == callNow {
		for i, o := range w.nodes {
			if o != n && !o.dead && len(o.starts.all) > 0 {
				own := o.copyAt(w.now)
				own.mail = append(own.mail, notify.Turns{Key: m.server.row, Line: l.ID, Cuts: l.Cuts})
				w.nodes[i] = own
			}
		}
	}
}

// answered takes in the reply to a call, as commit does.
func (m *model) answered(w *modelWorld, n *modelNode) {
	r := n.reply
	for i, op := range n.flying {
		o := r.Outcomes[i]
		op.Outcome = commit.Outcome{Outcome: o, Wait: o.At - r.Now}
	}
	for _, b := range r.Budgets {
		n.starts.Observe(b.Key, b.Line)
	}
	for i, op := range n.flying {
		n.starts.answered(op.Op)
		if op.caller < 0 {
			continue
		}
		c := &n.callers[op.caller]
		switch o := &r.Outcomes[i]; o.State {
		case wire.Booked:
			c.state, c.start = modelBooked, o.At
		case wire.InLine:
			c.state = modelInLine
		default:
			m.breaks(w, "%w: a caller that waits for as long as it takes is refused: %+v", errAnswer, o)
		}
		c.turn, _ = op.Turn.(*turn)
	}
	n.flying, n.reply = nil, nil
}
