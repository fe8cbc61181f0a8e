package node

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A batch is one call of lua/book.lua. Keys and rules that several ops share stand in the call once, and
// neighbours that ask for the same are merged.
type batch struct {
	ops    []*op
	merged []mergedOps
	number int64     // of the call, among all calls that this node makes
	sent   time.Time // when the first copy of the call was sent, or the zero time before that
	copied time.Time // when the last copy was sent, or the zero time before that and after the call is lost

	exchange *conn.Exchange // of the last copy, until it has an answer or has failed
	call     *wire.BookCall // the last copy
	failed   error          // why the leader's call failed, for the first try of the goroutine that goes on

	leases  []*lease           // that the call reports, whose records it has locked
	replies []wire.ReportReply // what Redis answered to each report, or nil without an answer

	rowsChosen bool              // chooseRows has set rows
	rows       map[[16]byte]bool // the keys of the unlimited budgets that are rows in the call
}

// A mergedOps is the ops of a batch from index from to before index to, which ask for the same. They become one operation.
type mergedOps struct {
	from, to int
	maxWait  int64 // the least MaxWait of the ops, in microseconds
}

// waitTolerance is the MaxWait, in microseconds, above which ops are merged although one MaxWait is up to
// twice the other. An op that is refused for the lower MaxWait asks again: see refusedForOthers.
const waitTolerance = int64(100 * time.Millisecond / time.Microsecond)

// mergeable reports whether two ops with MaxWaits a and b can be merged.
func mergeable(a, b int64) bool {
	return a == b || min(a, b) > waitTolerance && min(a, b) > max(a, b)/2
}

// newBatch returns the batch of some ops. The batch keeps the slice. Neighbours that ask the same are merged. If each
// op needs one budget, and none has a start or a place, only the order of the ops of one budget matters: then
// newBatch sorts the slice by budget first, so that more of the ops are neighbours.
func newBatch(ops []*op, number int64) *batch {
	b := &batch{ops: ops, number: number}

	// The order of all ops matters if an op needs several budgets, or has a start or a place.
	if len(ops) == 1 || slices.ContainsFunc(ops, func(o *op) bool { return len(o.Charges) > 1 || o.hasPlace() }) {
		b.merge(0, len(ops))
		return b
	}

	// Sort by budget, and merge the neighbours in each run of ops of one budget.
	slices.SortStableFunc(ops, compareBudgets)
	for from, to := 0, 1; from < len(ops); to++ {
		if to == len(ops) || compareBudgets(ops[from], ops[to]) != 0 {
			b.merge(from, to)
			from = to
		}
	}

	return b
}

// compareBudgets compares the budgets of ops that need one each.
func compareBudgets(a, b *op) int {
	return bytes.Compare(a.Charges[0].Budget.Key[:], b.Charges[0].Budget.Key[:])
}

// merge merges neighbours among the ops from index from to before index to. The order of these ops matters.
func (b *batch) merge(from, to int) {
	before := len(b.merged)

	// Try to make one operation of all ops.
	b.mergeIf(mergeable, from, to)
	if len(b.merged) > before+1 {
		// There are several operations. An op that is refused for the lower MaxWait of its operation asks again, and the
		// operations behind it must not pass it meanwhile: so merge only ops of equal MaxWaits.
		b.merged = b.merged[:before]
		b.mergeIf(func(a, b int64) bool { return a == b }, from, to)
	}
}

// mergeIf merges neighbours among the ops from index from to before index to that ask the same, if canMerge is true of
// their MaxWaits.
func (b *batch) mergeIf(canMerge func(a, b int64) bool, from, to int) {
	for i := from; i < to; i++ {
		o, last := b.ops[i], len(b.merged)-1
		if i > from && b.ops[i-1].asksSame(o) && canMerge(b.ops[i-1].MaxWait, o.MaxWait) {
			b.merged[last].to++
			b.merged[last].maxWait = min(b.merged[last].maxWait, o.MaxWait)
		} else {
			b.merged = append(b.merged, mergedOps{i, i + 1, o.MaxWait})
		}
	}
}

// asksSame reports whether two ops can be one operation with two callers: both book, they differ in their MaxWait alone,
// neither has a start or a place or needs slots, and neither has noMerge.
func (o *op) asksSame(p *op) bool {
	return o.Kind == wire.Reserve && p.Kind == wire.Reserve && !o.hasPlace() && !p.hasPlace() &&
		!o.forSlots && !o.noMerge && !p.noMerge &&
		o.Horizon == p.Horizon && o.Class == p.Class && o.Returns == p.Returns && o.Informed == p.Informed &&
		o.NotBefore == p.NotBefore && o.Spread == p.Spread && slices.Equal(o.Charges, p.Charges)
}

// refusedForOthers reports whether the op was refused only because it was merged with ops of a lower MaxWait.
func (o *op) refusedForOthers(m mergedOps) bool {
	isRefused := !o.outcome.Booked() && o.outcome.State != wire.Unsettled && o.ready == nil // ready: it stands in a line
	return isRefused && o.MaxWait > m.maxWait && o.outcome.Wait <= o.MaxWait
}

// hasPlace reports whether the caller has a start, or a place in a line.
func (o *op) hasPlace() bool { return o.Start != 0 || o.Arrival != 0 || o.turnCount() > 0 }

// turnCount is 1 for a caller that has been in a line for a start, and otherwise 0.
func (o *op) turnCount() int {
	if o.turn == nil && len(o.Tickets) == 0 {
		return 0
	}

	return 1
}

// The ranks of ops, in the order in which a call serves them.
const (
	givesBack = iota // books nothing
	returner         // of a caller that had a start, or a place in a line for slots
	inTurn           // of a caller that waited in line
	newcomer         // of any other caller
)

// compareOps orders the ops of a queue: by rank, and within a rank by rankOrder. Newcomers stay in the order in
// which they came.
func compareOps(a, b *op) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 || a.rank() == newcomer {
		return c
	}

	return cmp.Compare(a.rankOrder(), b.rankOrder())
}

// rank returns the rank of an op: the first rank is served first.
func (o *op) rank() int {
	switch {
	case o.Kind != wire.Reserve:
		return givesBack
	case o.Returns:
		return returner
	case o.turn != nil:
		return inTurn
	}
	return newcomer
}

// rankOrder is the number by which the ops of one rank are sorted, the lowest first. For a returner it is the start that
// the caller had or, if it had none, the moment when it joined a line for slots. For an op in turn it is the class,
// above the 56 bits of the ticket. It is 0 for all other ops.
func (o *op) rankOrder() int64 {
	switch o.rank() {
	case returner:
		return o.Start + o.Arrival // one of the two is 0
	case inTurn:
		return o.Class<<56 + o.turn.number
	}
	return 0
}

// forSlots reports whether some ops need slots, whose leases are locked during a call.
func (b *batch) forSlots() bool {
	return slices.ContainsFunc(b.ops, func(o *op) bool { return o.forSlots })
}

// try makes the call of a batch once, or goes on with a copy of the call that a leader left without an answer. It
// gets the answer from await. If try returns nil the ops have their outcomes. If the leader's call has failed, the
// next try returns that error, and makes no call.
func (n *Node) try(b *batch, await func(*conn.Exchange) (wire.Frame, error)) error {
	// The goroutine that goes on first reports the failure of the leader's call, so that it waits before it tries again.
	if err := b.failed; err != nil {
		b.failed = nil
		return err
	}

	// Without an exchange no copy is on its way.
	if b.exchange == nil {
		n.send(b)
	}

	f, err := await(b.exchange)
	if err == conn.ErrUnanswered {
		return err
	}

	// The call has an answer or has failed: the next try sends a new copy.
	b.exchange = nil
	if err != nil {
		return err
	}

	reply, err := b.call.Read(f)
	if err != nil {
		return err
	}

	// The server read its clock after the call was sent. A time that is cut off is earlier, so the call
	// counts as sent earlier by the same length.
	b.copied = b.copied.Add(-n.Conn.CutOff(reply.Now))
	n.observe(b, &reply, b.copied, time.Now())
	return nil
}

// send sends a copy of a batch's call. All copies have the same number until the leases that the call reports are over.
func (n *Node) send(b *batch) {
	now := time.Now()
	if b.sent.IsZero() {
		b.sent = now
	}

	// Time went by since the last copy, and the callers' MaxWait with it.
	if !b.copied.IsZero() {
		b.shortenMaxWaits(now.Sub(b.copied))
	}

	b.copied = now

	// The leases are over, so the slots that the call may have taken are free: make a new call, with a new number.
	if len(b.leases) > 0 && now.Sub(b.sent) > wire.SureLease {
		b.number, b.sent = n.nextNumber(), now
	}

	// Begin builds the call once more if Redis has not done it, for example because gates were shut.
	again := false
	b.exchange = n.Conn.Begin(func(e wire.Boundaries, shut []wire.Gate) wire.Call {
		n.noteShut(shut)
		n.chooseRows(b, again, shut)
		again = true
		b.call = n.bookRequest(b).Write(e, budgets{n})
		return b.call.Call
	})
}

// shortenMaxWaits takes the time that has passed off the MaxWait of each caller that has one. A caller whose time is over
// gets a start at once or none, and no place in a line: see store.Booking.
func (b *batch) shortenMaxWaits(passed time.Duration) {
	shorten := func(wait *int64) {
		if *wait > 0 && *wait < wire.AnyWait {
			*wait = max(0, *wait-wire.Micros(passed))
		}
	}

	for _, o := range b.ops {
		shorten(&o.MaxWait)
	}
	for i := range b.merged {
		shorten(&b.merged[i].maxWait)
	}
}

// bookRequest returns the request for a copy of a batch's call, as of now.
func (n *Node) bookRequest(b *batch) *wire.BookRequest {
	r := &wire.BookRequest{
		Record: n.Names.Record(b.ops[0].group()), Number: b.number, Age: time.Since(b.sent), Rows: b.rows,
		Ops: make([]*wire.Op, 0, len(b.merged)), Pauses: n.knownPauses(b.ops),
		Shared: n.Names.Shared(), Node: n.Names.Node, Own: n.Names.OwnPrefix(),
	}

	for _, m := range b.merged {
		// The first of merged ops stands in the call for all of them, with the least of their MaxWaits: see refusedForOthers.
		o := &b.ops[m.from].Op
		if o.MaxWait != m.maxWait {
			own := *o
			o = &own
			o.MaxWait = m.maxWait
		}

		o.Callers = m.to - m.from
		r.Ops = append(r.Ops, o)
	}

	if len(b.leases) > 0 {
		r.Reports = n.writeReports(b.leases)
	}

	return r
}

// observe applies the reply to the last copy of a batch's call, which was sent at sent: it sets the outcomes of the ops,
// and passes what the reply says of clocks and budgets on to the offsets, the history, the pauses and the lines. It calls
// Lost for each budget that Redis has lost.
func (n *Node) observe(b *batch, p *wire.BookReply, sent, received time.Time) {
	group := b.ops[0].group()

	// at is the server's time when Redis decided: the time of this reply, unless Redis had done an earlier copy.
	at, since := p.Now, time.Time{}
	last := history.Reply{Group: group, Number: b.number, Sent: b.sent, ServerTime: p.Now, By: received}

	if p.DecidedAt != 0 {
		// The earlier copy was sent CopyAge after the first copy, and surely before the reply was received.
		last.Sent, last.ServerTime, last.By = b.sent.Add(min(p.CopyAge, received.Sub(b.sent))), p.DecidedAt, time.Time{}
		last.Age = history.Between(p.DecidedAt, p.Now)
		at, since = history.DecidedAt(last.Sent, received, p.DecidedAt, p.Now)
	} else {
		n.Offsets.Observe(group, p.Now, sent, received)
	}

	b.replies = p.Reports

	// Waits and pauses count from the time when Redis decided.
	for _, m := range b.merged {
		for i := m.from; i < m.to; i++ {
			o := &p.Outcomes[i]
			b.ops[i].outcome = outcome{*o, o.At - at, max(0, o.PausedUntil-at), since}

			// Merged ops with equal starts have one pause to note.
			if i == m.from || o.At != p.Outcomes[i-1].At {
				n.noteHeld(b.ops[i], received)
			}
		}
	}

	for i := range p.Budgets {
		// If the row in Redis knows less than this node, Redis has lost it.
		r := &p.Budgets[i]
		if n.History.Observe(r.Key, observation(r, last, at, received), received) {
			n.Lost(r.Key)
		}
		n.observeLine(r.Key, r.Line)
	}
}

// budgets gives the encoder of a call the keys of budgets and the node's history of them.
type budgets struct{ n *Node }

// Key implements [wire.Budgets].
func (bs budgets) Key(b *store.Budget) string { return bs.n.Names.Row(b) }

// Known implements [wire.Budgets].
func (bs budgets) Known(budget *store.Budget, key string, b wire.Boundaries) wire.Known {
	return bs.n.History.Known(key, budget.Group, time.Now(), b.ServerTime())
}

// observation returns the part of a reply that is about one budget. last is the reply. at is a time of the server's clock
// that had come when the reply was received.
func observation(b *wire.BudgetReply, last history.Reply, at int64, received time.Time) history.Observation {
	o := history.Observation{Reply: last, Generations: b.Generations, Older: b.Older, Keep: Keep(b.Charge)}
	o.Starts = history.Sample{By: received.Add(history.Between(at, b.Last)), Count: b.Starts} // as late as the last start can be: at may have been before received

	// No start of an unlimited budget is remembered.
	if wire.Unlimited(b.Charge) {
		o.Starts.Count = 0
	}
	return o
}

// Keep returns for how long after a start the start matters to a charge.
func Keep(c *store.Charge) time.Duration {
	switch c.Limit.Kind() {
	case store.KindFixedWindow:
		// Two windows, because the next window may be longer.
		start, end := c.Limit.Window(time.Now())
		_, end = c.Limit.Window(end)
		return end.Sub(start)
	case store.KindTold:
		return wire.ToldKeep
	}
	return c.Span()
}

// knownPauses returns the ops' budgets that are paused, as far as the node knows.
func (n *Node) knownPauses(ops []*op) []wire.Pause {
	if n.Pauses.Empty() {
		return nil
	}

	return n.Pauses.Known(n.keysOf(ops), time.Now())
}

// keysOf returns the keys of the ops' budgets.
func (n *Node) keysOf(ops []*op) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, o := range ops {
			for i := range o.Charges {
				if !yield(n.Names.Row(&o.Charges[i].Budget)) {
					return
				}
			}
		}
	}
}

// noteHeld notes the pause of the budget that held an op back, if the outcome says that the budget is paused. Budgets of
// slots are noted, too: knownPauses does not tell Redis of them, but a share obeys them while Redis is away.
func (n *Node) noteHeld(o *op, received time.Time) {
	if out := &o.outcome; out.paused > 0 && out.Charge >= 0 {
		n.Pauses.Note(n.Names.Of(&o.Charges[out.Charge]), received.Add(min(wire.Wait(out.paused), store.MaxPenalty)), received)
	}
}

// A call names the unlimited budgets of its callers as gates: keys that the script only looks at, as long as
// nobody has closed the budgets. A gate that is shut stands in the call as a row. See
// docs/internals/unlimited.md and the part answer of lua/book.lua.

// isShut reports whether an unlimited budget is closed, or in the probe time after a penalty, as far as the
// program knows.
func (n *Node) isShut(key string, now time.Time) bool {
	return n.Shut.End(key).After(now) || n.Pauses.End(key).Add(wire.MinProbe).After(now)
}

// chooseRows decides which unlimited budgets of a batch are rows in its call and not gates: budgets that are
// shut, and budgets in whose line a caller has a place. Copies of a call are alike, so chooseRows decides once.
// If again is true it adds the gates in shut, because of which Redis did not do the last copy.
func (n *Node) chooseRows(b *batch, again bool, shut []wire.Gate) {
	if b.rowsChosen && !again {
		return
	}

	// Budgets that were shut in an earlier copy stay rows: copies of a call are alike.
	b.rowsChosen = true
	for _, o := range b.ops {
		for i := range o.Charges {
			ch := &o.Charges[i]
			if wire.Unlimited(ch) && !b.rows[ch.Budget.Key] && n.isRow(o, &ch.Budget, shut) {
				if b.rows == nil {
					b.rows = make(map[[16]byte]bool)
				}
				b.rows[ch.Budget.Key] = true
			}
		}
	}
}

// isRow reports whether an op's unlimited budget must be a row: see chooseRows.
func (n *Node) isRow(o *op, b *store.Budget, shut []wire.Gate) bool {
	if slices.ContainsFunc(o.Tickets, func(t wire.Ticket) bool { return t.Budget == b.Key }) {
		return true
	}

	// Most programs know of no budget that is closed, and need no key.
	if len(shut) == 0 && n.Shut.Empty() && n.Pauses.Empty() {
		return false
	}

	key := n.Names.Row(b)
	return n.isShut(key, time.Now()) || slices.ContainsFunc(shut, func(g wire.Gate) bool { return g.Key == key })
}

// noteShut notes until when the gates of a call are shut.
func (n *Node) noteShut(gates []wire.Gate) {
	now := time.Now()
	for _, g := range gates {
		n.Shut.Note(g.Key, now.Add(min(wire.Wait(g.Left), store.MaxPenalty)), now)
	}
}
