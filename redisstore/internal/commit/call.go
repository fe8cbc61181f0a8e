package commit

import (
	"iter"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// try makes the call of a batch once, or goes on with a copy of the call that a leader left without
// an answer. After nil the ops have their outcomes.
func (qs *Queues) try(b *batch, await func(*conn.Exchange) (wire.Frame, error)) error {
	if err := b.failed; err != nil {
		b.failed = nil
		return err
	}
	if b.exchange == nil {
		qs.send(b)
	}
	f, err := await(b.exchange)
	if err == conn.ErrUnanswered {
		return err
	}
	b.exchange = nil
	if err != nil {
		return err
	}
	reply, err := b.call.Read(f)
	if err != nil {
		return err
	}
	// The answer's time is one that the server had after the call was sent, or it is cut off: then the
	// call counts as sent so much earlier.
	b.copied = b.copied.Add(-qs.Conn.CutOff(reply.Now))
	qs.observe(b, &reply, b.copied, time.Now())
	return nil
}

// send sends a copy of a batch's call: the first one, or another one with the same number.
func (qs *Queues) send(b *batch) {
	now := time.Now()
	if !b.isCopied() {
		b.sent = now
	}
	if !b.copied.IsZero() {
		b.shortenMaxWaits(now.Sub(b.copied))
	}
	b.copied = now
	if b.reports != nil && now.Sub(b.sent) > wire.SureLease {
		// The lease is over, and with it all slots that the call may have taken: it is a new call.
		b.number, b.sent = qs.nextNumber(), now
	}
	again := false
	b.exchange = qs.Conn.Begin(func(e wire.Boundaries, shut []wire.Gate) wire.Call {
		qs.noteShut(shut)
		qs.chooseRows(b, again, shut)
		again = true
		b.call = qs.bookRequest(b).Write(e, budgets{qs})
		return b.call.Call
	})
}

// bookRequest returns what the call of a batch asks.
func (qs *Queues) bookRequest(b *batch) *wire.BookRequest {
	group := b.ops[0].group()
	r := &wire.BookRequest{
		Record: qs.Names.Record(group), Number: b.number, Age: time.Since(b.sent), Rows: b.rows,
		Ops: make([]*wire.Op, 0, len(b.merged)), Pauses: qs.knownPauses(b.ops),
		Shared: qs.Names.Shared(), Node: qs.Names.Node, Own: qs.Names.OwnPrefix(),
	}
	for _, m := range b.merged {
		op := &b.ops[m.from].Op
		if op.MaxWait != m.maxWait {
			least := *op
			op, least.MaxWait = &least, m.maxWait
		}
		op.Callers = m.to - m.from
		r.Ops = append(r.Ops, op)
	}
	if b.reports != nil {
		r.Reports = b.reports.Write()
	}
	return r
}

// observe takes in the reply to a copy of a batch's call: it sets the outcomes of the ops, and tells
// the history, the pauses and the lines what the reply says of budgets.
func (qs *Queues) observe(b *batch, p *wire.BookReply, sent, received time.Time) {
	group := b.ops[0].group()
	at, since := p.Now, time.Time{}
	last := history.Reply{Group: group, Number: b.number, Sent: b.sent, ServerTime: p.Now, By: received}
	if p.DecidedAt != 0 { // Redis had done the call by an earlier copy, which was made CopyAge after the first
		last.Sent, last.ServerTime, last.By = b.sent.Add(min(p.CopyAge, received.Sub(b.sent))), p.DecidedAt, time.Time{}
		at, since = history.DecidedAt(last.Sent, received, p.DecidedAt, p.Now)
	} else {
		qs.Offsets.Observe(group, p.Now, sent, received)
	}
	b.replies = p.Reports
	for _, m := range b.merged {
		for i := m.from; i < m.to; i++ {
			o := &p.Outcomes[i]
			b.ops[i].Outcome = Outcome{*o, o.At - at, max(0, o.PausedUntil-at), since}
			if i == m.from || o.At != p.Outcomes[i-1].At {
				qs.noteHeld(b.ops[i], received)
			}
		}
	}
	for i := range p.Budgets {
		r := &p.Budgets[i]
		if qs.History.Observe(r.Key, observation(r, last, at, received), received) {
			qs.Lost(r.Key)
		}
		qs.Line.Observe(r.Key, r.Line)
	}
}

// budgets tells the encoder of a call what the node knows of budgets.
type budgets struct{ qs *Queues }

// Key implements [wire.Budgets].
func (bs budgets) Key(b *store.Budget) string { return bs.qs.Names.Row(b) }

// Known implements [wire.Budgets].
func (bs budgets) Known(budget *store.Budget, key string, b wire.Boundaries) wire.Known {
	return bs.qs.History.Known(key, budget.Group, time.Now(), b.ServerTime())
}

// observation returns what a reply says of a budget; at is the server's time that its moments
// belong to.
func observation(b *wire.BudgetReply, last history.Reply, at int64, received time.Time) history.Observation {
	o := history.Observation{Reply: last, Generations: b.Generations, Older: b.Older, Keep: Keep(b.Charge)}
	o.Starts = history.Sample{By: received.Add(history.Between(at, b.Last)), Count: b.Starts}
	if wire.Unlimited(b.Charge) {
		o.Starts.Count = 0 // it has no starts
	}
	return o
}

// Keep returns for how long after a start the start matters to a charge.
func Keep(c *store.Charge) time.Duration {
	if c.Limit.Kind() != store.KindFixedWindow {
		return c.Span()
	}
	// Two windows, because the next one may be longer.
	start, end := c.Limit.Window(time.Now())
	_, end = c.Limit.Window(end)
	return end.Sub(start)
}

// knownPauses returns the ops' budgets that are paused, as far as the node knows.
func (qs *Queues) knownPauses(ops []*Op) []wire.Pause {
	if qs.Pauses.Empty() {
		return nil
	}
	return qs.Pauses.Known(qs.keysOf(ops), time.Now())
}

// keysOf returns the keys of the ops' budgets.
func (qs *Queues) keysOf(ops []*Op) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, op := range ops {
			for i := range op.Charges {
				if !yield(qs.Names.Row(&op.Charges[i].Budget)) {
					return
				}
			}
		}
	}
}

// noteHeld notes the pause by which an op's outcome says that a budget is closed, if there is one.
func (qs *Queues) noteHeld(op *Op, received time.Time) {
	if o := &op.Outcome; o.paused > 0 && o.Charge >= 0 && !wire.ForSlots(&op.Charges[o.Charge]) {
		qs.Pauses.Note(qs.Names.Row(&op.Charges[o.Charge].Budget), received.Add(min(wire.Wait(o.paused), store.MaxPenalty)), received)
	}
}

// A call names the unlimited budgets of its callers as gates: keys that the script only looks at,
// as long as nobody has closed the budgets. A gate that is shut stands in the call as
// a row like any other. See docs/internals/unlimited.md and lua/answer.lua.

// isShut reports whether an unlimited budget is closed, or in the probe time after a penalty, as far
// as the program knows.
func (qs *Queues) isShut(key string, now time.Time) bool {
	return qs.Shut.End(key).After(now) || qs.Pauses.End(key).Add(wire.LeastProbe).After(now)
}

// chooseRows decides which unlimited budgets of a batch are rows in its call and not gates: those
// that are shut, and those in whose line a caller has a place. Copies of a call are alike, so it
// decides once, unless again is true: Redis did not do the last copy, because the gates in shut are
// shut.
func (qs *Queues) chooseRows(b *batch, again bool, shut []wire.Gate) {
	if b.rowsChosen && !again {
		return
	}
	b.rowsChosen = true
	for _, op := range b.ops {
		for i := range op.Charges {
			ch := &op.Charges[i]
			if wire.Unlimited(ch) && !b.rows[ch.Budget.Key] && qs.isRow(op, &ch.Budget, shut) {
				if b.rows == nil {
					b.rows = make(map[[16]byte]bool)
				}
				b.rows[ch.Budget.Key] = true
			}
		}
	}
}

// isRow reports whether an op's unlimited budget must be a row: see chooseRows.
func (qs *Queues) isRow(op *Op, b *store.Budget, shut []wire.Gate) bool {
	if slices.ContainsFunc(op.Tickets, func(t wire.Ticket) bool { return t.Budget == b.Key }) {
		return true
	}
	if len(shut) == 0 && qs.Shut.Empty() && qs.Pauses.Empty() {
		return false
	}
	key := qs.Names.Row(b)
	return qs.isShut(key, time.Now()) || slices.ContainsFunc(shut, func(g wire.Gate) bool { return g.Key == key })
}

// noteShut takes in which gates of a call are shut.
func (qs *Queues) noteShut(gates []wire.Gate) {
	now := time.Now()
	for _, g := range gates {
		qs.Shut.Note(g.Key, now.Add(min(wire.Wait(g.Left), store.MaxPenalty)), now)
	}
}
