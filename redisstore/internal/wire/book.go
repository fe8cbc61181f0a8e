package wire

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A BookRequest is one call of lua/book.lua. Keys and rules that several
// operations share are written once.
type BookRequest struct {
	Record  string        // the key of the record of the node's last call for this group
	Number  int64         // of the call
	Age     time.Duration // since the call was made for the first time
	Ops     []*Op
	Rows    map[[16]byte]bool // which unlimited budgets are rows. All others are gates.
	Reports []Report          // of all budgets of requests in flight that Ops name

	Shared string  // the channel where all nodes hear of a group
	Node   string  // the node's name
	Own    string  // the prefix of the channels of single nodes
	Pauses []Pause // of the budgets, as far as the node knows
}

// A Pause is a budget that is closed.
type Pause struct {
	Key  string
	Left time.Duration
}

// Budgets tells a request the keys of its budgets in Redis, and the node's
// history of them.
type Budgets interface {
	Key(*store.Budget) string
	Known(b *store.Budget, key string, at Boundaries) Known // key is what Key returns
}

// A BookCall is a BookRequest in writing, which can read its reply.
type BookCall struct {
	Call
	request *BookRequest
	rows    []*store.Charge // a charge of each budget that is a row, in the order of the keys behind the record's
}

// A Kind is the kind of an operation of a booking call.
type Kind uint8

const (
	Reserve Kind = iota // books a start, or gets into line
	Cancel              // gives back a start, or leaves lines; or does nothing, so that reports go along
	Settle              // changes the cost of a start
	Renew               // says that a waiter is still there
)

// An Op is one operation, for one caller or for several callers that want the
// same.
type Op struct {
	Kind    Kind
	Callers int
	Charges []store.Charge
	Costs   []int // Settle: the true costs

	// The start that the callers have, which Reserve replaces, Cancel gives back and
	// Settle changes, or their arrival in a line for slots. Zero means that they have
	// none.
	Start, Arrival int64

	MaxWait   int64 // upper bound on a wait that is of use, in microseconds, or AnyWait
	NotBefore time.Duration
	Spread    time.Duration
	Horizon   time.Duration // Zero means that the callers stand in no line.
	Class     int64
	Tickets   []Ticket      // in lines for starts
	Returns   bool          // they go first in lines where they have no ticket
	Informed  bool          // they have given other programs time to tell which starts were lost
	Again     time.Duration // Renew: in how long the waiter will say so again
}

// AnyWait is the MaxWait, in microseconds, of callers that wait without a bound: no wait is longer.
const AnyWait = 1 << 53

// MaxWait returns the MaxWait of an Op for the MaxWait of a booking, where a
// negative duration means no bound.
func MaxWait(d time.Duration) int64 {
	if d < 0 {
		return AnyWait
	}
	return int64(d / time.Microsecond)
}

// maxWait returns the longest wait that is of use or, to renew, in how long the
// waiter will say so again.
func (o *Op) maxWait() int64 {
	if o.Kind == Renew {
		return Micros(o.Again)
	}
	return o.MaxWait
}

// lastField returns the number of the i-th charge whose meaning depends on the kind: for
// Settle the true cost, and for all others 1 if the charge is a shadow, or 0.
func (o *Op) lastField(i int) int64 {
	switch {
	case o.Kind == Settle:
		return int64(o.Costs[i])
	case o.Charges[i].Shadow:
		return 1
	}
	return 0
}

// ForSlots reports whether the charge is for requests in flight.
func ForSlots(c *store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// Unlimited reports whether the charge is for an unlimited budget. Such budgets
// are gates: keys that Redis looks at and leaves alone as long as they are open. A
// gate that is shut is a row like any other. See docs/internals/unlimited.md and
// the part answer of lua/book.lua.
func Unlimited(c *store.Charge) bool { return c.Limit.Kind() == store.KindUnlimited }

// Cost returns the cost of a charge. The cost of an unlimited charge means
// nothing, so it is 1.
func Cost(c *store.Charge) int64 {
	if Unlimited(c) {
		return 1
	}
	return int64(c.Cost)
}

// Share returns the share of a charge's caller, 0 if it has none, and its weight.
func Share(c *store.Charge) (id uint64, weight int64) {
	return c.Share.ID, ledger.Weight(c.Share)
}

// A Ticket is a place in the line of one budget: see lua/queue.lua.
type Ticket struct {
	Budget [16]byte
	Line   int64
	Number int64
	State  TicketState
	Round  int64
	Share  uint64 // the share of its lane. Zero means the lane of callers without a share.
}

// Front is the number of tickets whose owners go before all waiters of their
// class. All other tickets have numbers from 1 on.
const Front = 0

// A TicketState is the state of a ticket. Only the scripts know all states.
type TicketState int64

const (
	Offered  TicketState = 1 // the owner's turn has come, and Redis keeps room for it
	HadStart TicketState = 3 // the owner had its start
)

// Write returns the request as a call. The request must not change before the call's
// reply is read.
func (r *BookRequest) Write(b Boundaries, budgets Budgets) *BookCall {
	w := writers.Get().(*writer)
	defer w.release()
	w.BookCall = &BookCall{request: r, Call: Call{Script: BookScript, Keys: make([]string, 1, 1+len(r.Ops))}}
	w.boundaries, w.budgets, w.Keys[0] = b, budgets, r.Record

	for _, o := range r.Ops {
		w.op(o)
	}

	// Keys are in the order of lua/book.lua: the record and the rows, which are there by now, then the reports and the gates.
	for i := range r.Reports {
		w.Keys, w.reports = append(w.Keys, r.Reports[i].Key), r.Reports[i].append(w.reports)
	}

	w.Keys = append(w.Keys, w.gates...)

	// The random number is for the names of new generations.
	w.head = w.head.Add(r.Number, rand.Int64N(Names-1)+1, int64(w.ruleCount), Micros(r.Age), int64(len(w.gates)))

	// The call has a copy, because other requests use the writer's memory afterwards.
	w.Frame = slices.Concat(w.head, w.known, w.ruled, w.reports, w.ops)

	w.More = []any{r.Shared}
	if len(r.Reports) > 0 || len(r.Pauses) > 0 {
		w.More = append(w.More, len(r.Reports), r.Node, r.Own)
	}

	for _, p := range r.Pauses {
		w.More = append(w.More, p.Key, Micros(p.Left))
	}

	return w.BookCall
}

// flag returns 1 for true and 0 for false.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// A writer writes a BookRequest, in parts that follow each other in the frame. Its
// memory serves many requests in turn.
type writer struct {
	*BookCall
	boundaries Boundaries
	budgets    Budgets

	places map[[16]byte]place    // of the budgets that are rows
	gated  map[[16]byte]struct{} // the budgets that are gates; after a change of its limit a budget may be both
	rules  []*store.Charge       // a charge of each rule of each budget
	gates  []string              // the keys of gates

	head, known, ruled, reports, ops Frame // parts of the frame: known has the histories, ruled the rules

	ruleCount int // how many rules are in ruled: budgets with equal limits may share one
	ruleAt    int // where the last rule begins in ruled

	common  [11]int64 // the numbers that the last operations have in common
	countAt int       // the index in ops of how many operations these are
}

// A place is where a row stands: the indices of its key in Keys and of its first rule in rules, from 1.
type place struct{ key, rule int }

var writers = sync.Pool{New: func() any {
	return &writer{places: make(map[[16]byte]place), gated: make(map[[16]byte]struct{})}
}}

// release makes the writer free for the next request. It keeps the memory, and no pointer of this request.
func (w *writer) release() {
	clear(w.places)
	clear(w.gated)
	clear(w.rules)
	clear(w.gates)
	*w = writer{
		places: w.places, gated: w.gated, rules: w.rules[:0], gates: w.gates[:0],
		head: w.head[:0], known: w.known[:0], ruled: w.ruled[:0], reports: w.reports[:0], ops: w.ops[:0],
	}
	writers.Put(w)
}

// op writes one operation. Numbers that it has in common with the operation before
// are not written again.
func (w *writer) op(o *Op) {
	// Charges that are gates are not written with the operation. The script knows no class 0, which an operation may have that books nothing.
	written := w.request.writtenCharges(o)
	common := [...]int64{int64(o.Kind), flag(o.Informed), o.Start, o.Arrival, Micros(o.NotBefore), Micros(o.Spread),
		Micros(o.Horizon), max(1, o.Class), flag(o.Returns), int64(len(o.Tickets)), int64(written.size(o))}

	// If only the numbers that follow differ from those of the last operation, this one is counted with it.
	if len(w.ops) > 0 && common == w.common {
		w.ops.Increase(w.countAt)
	} else {
		w.ops = w.ops.Add(common[:]...).Add(1)
		w.common, w.countAt = common, w.ops.Size()-1
	}

	w.ops = w.ops.Add(int64(o.Callers), o.maxWait())

	// A ticket names its charge by the index among the written charges, from 1 on.
	for _, t := range o.Tickets {
		i := slices.IndexFunc(o.Charges, func(ch store.Charge) bool { return ch.Budget.Key == t.Budget })
		w.ops = w.ops.Add(int64(written.index(i))+1, t.Line, t.Number, int64(t.State), t.Round, int64(t.Share))
	}

	// Each charge is its rule and the numbers that differ from caller to caller, or a gate.
	for i := range o.Charges {
		ch := &o.Charges[i]
		if w.request.leavesOut(o, ch) {
			w.gate(o, ch)
			continue
		}

		share, weight := Share(ch)
		w.ops = w.ops.Add(int64(w.rule(ch)), Cost(ch), int64(ch.KeepFree), o.lastField(i), int64(share), weight)
	}
}

// gate adds the key of an unlimited budget to the call, unless the call has it already. To settle, no gate is needed.
func (w *writer) gate(o *Op, ch *store.Charge) {
	if _, known := w.gated[ch.Budget.Key]; known || o.Kind == Settle {
		return
	}
	w.gated[ch.Budget.Key] = struct{}{}
	w.gates = append(w.gates, w.budgets.Key(&ch.Budget))
}

// rule returns the index of a charge's report or, behind all reports, of its rule,
// from 1 on. It writes the rule, and the key and history of its row, if these are new.
func (w *writer) rule(ch *store.Charge) int {
	if ForSlots(ch) {
		return 1 + slices.IndexFunc(w.request.Reports, func(r Report) bool { return r.Budget == ch.Budget.Key })
	}

	at, known := w.places[ch.Budget.Key]

	// After a change of its limit, a budget may have several rules in one call: look for one that is the charge's.
	if known {
		for i, c := range w.rules[at.rule-1:] {
			if sameRule(c, ch) {
				return len(w.request.Reports) + at.rule + i
			}
		}
	}

	w.rules = append(w.rules, ch)

	// The first rule of a budget brings the key and the history of the row.
	if !known {
		name := w.budgets.Key(&ch.Budget)
		w.Keys, w.rows = append(w.Keys, name), append(w.rows, ch)
		at = place{len(w.Keys), len(w.rules)}
		w.places[ch.Budget.Key] = at
		k := w.budgets.Known(&ch.Budget, name, w.boundaries)
		w.known = k.append(w.known)
	}

	// Rows with equal limits share one written rule, whose second number says how many rows share it. Their keys must follow each other: this is so if
	// this rule and the last one are the first rules of their rows.
	n := len(w.rules)
	sharesRule := n > 1 && !known && w.rules[n-2] == w.rows[len(w.rows)-2] && equalLimits(w.rules[n-2], ch)
	if sharesRule {
		w.ruled.Increase(w.ruleAt + 1)
	} else {
		w.ruleCount, w.ruleAt = w.ruleCount+1, w.ruled.Size()
		w.ruled = w.boundaries.AppendRule(w.ruled, at.key, ch)
	}

	return len(w.request.Reports) + len(w.rules)
}

// equalLimits reports whether the rules of two charges are the same, apart from
// their budgets.
func equalLimits(a, b *store.Charge) bool {
	return a.Limit == b.Limit && a.Jitter == b.Jitter && a.Pace == b.Pace && a.Adaptive == b.Adaptive
}

// sameRule reports whether two charges of one call share a rule: then the Pace and
// the Adaptive of the first count for both. Limits in a time zone that was loaded
// twice have two rules, which does no harm.
func sameRule(a, b *store.Charge) bool {
	return a.Budget.Key == b.Budget.Key && a.Jitter == b.Jitter && a.Limit == b.Limit
}

// leavesOut reports whether a charge is not written with its operation: a gate is
// only named once in the call.
func (r *BookRequest) leavesOut(o *Op, ch *store.Charge) bool {
	return Unlimited(ch) && (o.Kind == Settle || !r.Rows[ch.Budget.Key])
}

// chargeIndexes are the indexes of the charges of an operation that are written
// with it. Nil means all.
type chargeIndexes []int

// writtenCharges returns the indexes of the charges that are written with an operation, or nil if all are.
func (r *BookRequest) writtenCharges(o *Op) chargeIndexes {
	isLeftOut := func(ch store.Charge) bool { return r.leavesOut(o, &ch) }
	if !slices.ContainsFunc(o.Charges, isLeftOut) {
		return nil
	}
	written := make(chargeIndexes, 0, len(o.Charges))
	for i := range o.Charges {
		if !isLeftOut(o.Charges[i]) {
			written = append(written, i)
		}
	}
	return written
}

// size returns how many charges are written.
func (w chargeIndexes) size(o *Op) int {
	if w == nil {
		return len(o.Charges)
	}
	return len(w)
}

// index returns the index of a charge among the written charges, or -1 if it is not written.
func (w chargeIndexes) index(charge int) int {
	if w == nil {
		return charge
	}
	return slices.Index(w, charge)
}

// charge returns the index among all charges of the one that is at an index among the written charges.
func (w chargeIndexes) charge(index int) int {
	if w == nil {
		return index
	}
	return w[index]
}

// A BookReply is the answer of lua/book.lua. Times are microseconds of the
// server's clock.
type BookReply struct {
	Now       int64         // the server's time
	DecidedAt int64         // the server's time when an earlier copy of the call was done. Zero means that no earlier copy was done.
	CopyAge   time.Duration // how long after the first copy that earlier copy was sent
	Outcomes  []Outcome     // one for each caller
	Budgets   []BudgetReply // one for each row
	Reports   []ReportReply // one for each report
}

// An Outcome is the result of one caller's part of an operation.
type Outcome struct {
	State
	At          int64   // the start, or when there would have been a start. It is 0 if Waiting.
	Arrival     int64   // by which the caller is known in the line for concurrency
	Charge      int     // the index of the charge that held the caller back, or -1
	PausedUntil int64   // the end of that charge's pause, or 0
	Delays      []int64 // for each charge that is a shadow, by how many microseconds it would have delayed the start. It is nil without shadows.
	Tickets     []Ticket
}

// A State is the result of an operation.
type State int64

const (
	Refused   State = iota // nothing was booked; also of operations that book nothing
	Booked                 // a start was booked
	Held                   // a start was booked, and slots are held with it
	Unsettled              // nothing can be booked before At, when it is known which starts were lost
	InLine                 // the callers stand in lines for starts: At is when they may have their turn
	Waiting                // the callers stand in line for slots, since Arrival
)

// AllNow stands in the place of the number of callers of an answer: all callers
// have a start at the time that follows.
const AllNow = 0

// Booked reports whether there is a start.
func (o *Outcome) Booked() bool { return o.State == Booked || o.State == Held }

// Handle names the start, or the place in line for concurrency.
func (o *Outcome) Handle() store.Handle {
	if o.State == Waiting {
		return store.Handle{Place: o.Arrival}
	}
	return store.Handle{Start: o.At}
}

// A BudgetReply is the part of a reply about one row.
type BudgetReply struct {
	Key         string
	Charge      *store.Charge     // a charge of the budget
	Generations [Lives]Generation // the present one first
	Older       Older
	Starts      int64 // how many starts count now
	Last        int64 // the end of the last start
	Line        *Line // nil without a line
}

// A Line is the part of a reply about the line of one budget: see lua/queue.lua.
type Line struct {
	ID, Waiting int64         // the line, and the costs that wait in it
	Soon        time.Duration // in how long the first of all that wait may start
	Hurry       int64         // 2 if a new cut was published, 1 if waiters should ask again soon, or 0: see queue.tell
	Cuts        [3]int64
	Joined      [3]int64         // the next ticket of each class
	First, Last [3]time.Duration // in how long the first and the last of each will have their turn
	HasShares   bool             // some callers have had a share: then the numbers of classes are of callers without a share
	Lanes       []Lane           // the lanes of shares that the call was about
}

// A Lane is the part of a reply about the callers of one class and one share in a
// line.
type Lane struct {
	LaneID
	Cut, Joined int64
	First, Last time.Duration
	News        bool // the waiters below the cut may not know
}

// A LaneID names a lane of a line.
type LaneID struct {
	Class int64
	Share uint64 // Zero means the callers without a share.
}

// Read reads the reply to the call. Its error is [ErrReply], if the script cannot have made the reply to this call. Then
// the reply is incomplete.
func (c *BookCall) Read(f Frame) (BookReply, error) {
	r := &reader{rest: f}
	p := BookReply{Now: r.next(), DecidedAt: r.next()}

	// The reply must be to this call.
	r.check(r.next() == c.request.Number)
	p.CopyAge = Wait(r.next())

	// An operation has one outcome for each of its callers.
	callers := 0
	for _, o := range c.request.Ops {
		callers += o.Callers
	}

	p.Outcomes = make([]Outcome, 0, callers)
	if r.peek() == AllNow {
		p.Outcomes = r.allNow(p.Outcomes, callers)
	} else {
		for _, o := range c.request.Ops {
			// One answer may be for only some of the callers of an operation.
			for left := o.Callers; left > 0 && !r.failed; {
				n := len(p.Outcomes)
				p.Outcomes = r.outcomes(p.Outcomes, c.request, o, left)
				left -= len(p.Outcomes) - n
			}
		}
	}

	p.Budgets = make([]BudgetReply, len(c.rows))
	for i, ch := range c.rows {
		p.Budgets[i].Key, p.Budgets[i].Charge = c.Keys[i+1], ch
		r.budget(&p.Budgets[i])
	}

	for range c.request.Reports {
		p.Reports = append(p.Reports, r.report())
	}

	// A booked start in the far past is not of this call. The 0 keeps the subtraction from overflowing, whatever Now and
	// DecidedAt are.
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		r.check(!o.Booked() || o.At > max(0, p.Now, p.DecidedAt)-Micros(store.MaxAhead))
	}

	return p, r.end()
}

// allNow reads a single outcome and appends it to all for each of so many callers:
// each has a start at the time that follows.
func (r *reader) allNow(all []Outcome, callers int) []Outcome {
	_ = r.next() // AllNow
	o := Outcome{State: Booked, At: r.next(), Charge: store.NotHeld}
	r.check(o.At > 0)
	for range callers {
		all = append(all, o)
	}
	return all
}

// outcomes reads one answer, and appends an outcome to all for each caller that the
// answer is for. left is how many callers of the operation have no outcome yet, and the
// answer is for one or more of these. An answer that makes no sense fails the reader.
func (r *reader) outcomes(all []Outcome, q *BookRequest, op *Op, left int) []Outcome {
	// An answer can be anything: check each number before it is used as an index.
	written := q.writtenCharges(op)
	callers := r.next()
	o := Outcome{State: State(r.next()), At: r.next(), Charge: int(r.next()) - 1, PausedUntil: r.next()}
	r.check(callers >= 1 && callers <= int64(left))
	r.check(o.State >= Refused && o.State <= Waiting)
	r.check(o.Charge >= -1 && o.Charge < written.size(op))
	r.check(!o.Booked() || o.At > 0)
	if r.failed {
		return all
	}
	if o.Charge >= 0 {
		o.Charge = written.charge(o.Charge)
	}

	last := o.At // of the last of these callers
	switch {
	case o.Booked():
		r.delays(&o, q, op)
	case o.State == InLine:
		last = r.tickets(&o, op, written)

	// The answer has the arrival in the place of a start.
	case o.State == Waiting:
		o.At, o.Arrival = 0, o.At
	}

	// Without valid tickets the loop has no ticket, and no charge that holds the callers.
	if r.failed {
		return all
	}

	for i := range callers {
		all = append(all, o.of(op, i, callers, last))
	}

	return all
}

// delays reads by how much each shadow would have delayed a start. A reply has delays only for a Reserve, and none for
// slots. A shadow that is a gate is not in the reply: its delay is 0.
func (r *reader) delays(o *Outcome, q *BookRequest, op *Op) {
	for i := range op.Charges {
		ch := &op.Charges[i]
		if !ch.Shadow || ForSlots(ch) || op.Kind != Reserve {
			continue
		}
		if o.Delays == nil {
			o.Delays = make([]int64, len(op.Charges))
		}
		if !q.leavesOut(op, ch) {
			o.Delays[i] = r.next()
		}
	}
}

// tickets reads where equal callers stand in line. The reply answers them together: it has the tickets
// of the first caller, which go to o, and the time at which the last caller may have its turn, which tickets returns.
func (r *reader) tickets(o *Outcome, op *Op, written chargeIndexes) (last int64) {
	last = r.next()
	n := r.count()
	r.check(n >= 1 && n <= written.size(op))

	found := false
	for range n {
		i := int(r.next()) - 1
		r.check(i >= 0 && i < written.size(op))
		if r.failed {
			return 0
		}

		i = written.charge(i)
		found = found || i == o.Charge
		o.Tickets = append(o.Tickets, Ticket{
			Budget: op.Charges[i].Budget.Key, Line: r.next(), Number: r.next(), State: TicketState(r.next()), Round: r.next(), Share: r.share(),
		})
	}

	// The charge that holds the callers must be among them.
	r.check(found)
	return last
}

// of returns the outcome of the i-th of some callers that were answered together. o
// is the outcome of the first, and last the time at which the last may have its turn.
// Callers in line have successive tickets in the line of the charge that holds them.
func (o Outcome) of(op *Op, i, callers, last int64) Outcome {
	if o.State != InLine || callers == 1 {
		return o
	}

	// The turns between the first and the last are taken to lie evenly.
	o.At += (last - o.At) * i / (callers - 1)
	ch := &op.Charges[o.Charge]
	k := slices.IndexFunc(o.Tickets, func(t Ticket) bool { return t.Budget == ch.Budget.Key })
	o.Tickets = []Ticket{o.Tickets[max(0, k)]}
	o.Tickets[0].Number += i * Cost(ch)
	return o
}

// The bits that say which lists a reply has about a budget, besides its counts.
const (
	moreGenerations = 1 << iota
	moreLine
	moreLanes
)

// budget reads the part of a reply about one row into b.
func (r *reader) budget(b *BudgetReply) {
	b.Generations[0] = r.generation()
	b.Starts, b.Last = r.next(), r.next()

	// more has a bit for each list that follows. Lanes come only with a line.
	more := r.next()
	r.check(more >= 0 && more <= moreGenerations|moreLine|moreLanes)
	r.check(more&moreLanes == 0 || more&moreLine != 0)

	if more&moreGenerations != 0 {
		b.Generations[1], b.Older = r.generation(), Older{r.next(), r.next()}

		// Two generations are read, and Generations has room for Lives. A longer list fails the reader, and is not read further.
		further := r.count()
		r.check(further <= Lives-2)
		for i := range min(further, Lives-2) {
			b.Generations[2+i] = r.generation()
		}
	}

	if more&moreLine != 0 {
		b.Line = r.line()
		b.Line.HasShares = more&moreLanes != 0
		if b.Line.HasShares {
			b.Line.Lanes = r.lanes()
		}
	}
}

// line reads the numbers of a line, without the lanes of shares.
func (r *reader) line() *Line {
	l := new(Line)
	l.ID, l.Waiting, l.Hurry, l.Soon = r.next(), r.next(), r.next(), Wait(r.next())

	// One number for each class.
	for _, to := range []*[3]int64{&l.Cuts, &l.Joined} {
		for k := range to {
			to[k] = r.next()
		}
	}
	for _, to := range []*[3]time.Duration{&l.First, &l.Last} {
		for k := range to {
			to[k] = Wait(r.next())
		}
	}
	return l
}

// lanes reads the lanes of shares. A class outside 1 to 3 fails the reader.
func (r *reader) lanes() (all []Lane) {
	for range r.count() {
		l := Lane{LaneID: LaneID{r.next(), r.share()}, Cut: r.next(), Joined: r.next(), First: Wait(r.next()), Last: Wait(r.next()), News: r.next() != 0}
		r.check(l.Class >= 1 && l.Class <= 3)
		all = append(all, l)
	}
	return all
}

// share reads the ID of a share. A negative number fails the reader.
func (r *reader) share() uint64 {
	v := r.next()
	r.check(v >= 0)
	return uint64(v)
}
