package wire

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A BookReply is the answer of lua/book.lua. Times are microseconds of the
// server's clock.
type BookReply struct {
	Now       int64         // the server's time
	DecidedAt int64         // the server's time when an earlier copy of the call was done. Zero: no earlier copy was.
	CopyAge   time.Duration // how much later than the first copy that copy was sent
	Outcomes  []Outcome     // one for each caller
	Budgets   []BudgetReply // one for each row
	Reports   []ReportReply // one for each report
}

// An Outcome is the result of one caller's part of an operation.
type Outcome struct {
	State
	At          int64   // the start, or when there would have been one; 0 if Waiting
	Arrival     int64   // by which the caller is known in the line for concurrency
	Charge      int     // the index of the charge that held the caller back, or -1
	PausedUntil int64   // the end of that charge's pause, or 0
	Delays      []int64 // for each charge that is a shadow, by how many microseconds it would have delayed the start; nil without shadows
	Tickets     []Ticket
}

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
	Starts      int64 // that count now
	Last        int64 // the end of the last
	Line        *Line // nil without a line
}

// A Line is the part of a reply about the line of one budget: see lua/queue.lua.
type Line struct {
	ID, Waiting int64
	Hurry       int64
	Soon        time.Duration // in how long the first of all that wait may start
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
	Share uint64 // Zero: the callers without a share.
}

// Read reads the reply to the call.
func (c *BookCall) Read(f Frame) (BookReply, error) {
	r := &reader{rest: f}
	p := BookReply{Now: r.next(), DecidedAt: r.next()}

	// A reply to a different call is none.
	r.check(r.next() == c.request.Number)
	p.CopyAge = Wait(r.next())

	callers := 0
	for _, o := range c.request.Ops {
		callers += o.Callers
	}

	p.Outcomes = make([]Outcome, 0, callers)
	if r.peek() == AllNow {
		p.Outcomes = r.allNow(p.Outcomes, callers)
	} else {
		for _, o := range c.request.Ops {
			// One outcome may be for some of the callers of an operation.
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

	// A start in the far past is not of this call.
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		r.check(!o.Booked() || o.At > max(0, p.Now, p.DecidedAt)-Micros(store.MaxAhead))
	}

	return p, r.end()
}

// allNow reads a single outcome for all callers: each has a start at the time of
// the call.
func (r *reader) allNow(to []Outcome, callers int) []Outcome {
	_ = r.next()
	o := Outcome{State: Booked, At: r.next(), Charge: store.NotHeld}
	r.check(o.At > 0)
	for range callers {
		to = append(to, o)
	}
	return to
}

// outcomes appends the next outcomes, of some of the callers that are left of an
// operation.
func (r *reader) outcomes(to []Outcome, q *BookRequest, op *Op, left int) []Outcome {
	at := q.writtenCharges(op)
	callers := r.next()
	o := Outcome{State: State(r.next()), At: r.next(), Charge: int(r.next()) - 1, PausedUntil: r.next()}
	r.check(callers >= 1 && callers <= int64(left) && o.State <= Waiting && o.State >= Refused &&
		o.Charge >= -1 && o.Charge < at.size(op) && (!o.Booked() || o.At > 0))
	if r.failed {
		return to
	}
	if o.Charge >= 0 {
		o.Charge = at.charge(o.Charge)
	}

	last := o.At
	switch {
	case o.Booked():
		r.delays(&o, q, op)
	case o.State == InLine:
		last = r.tickets(&o, op, at)
	case o.State == Waiting:
		o.At, o.Arrival = 0, o.At
	}

	for i := range callers {
		to = append(to, o.of(op, i, callers, last))
	}

	return to
}

// delays reads by how much shadows are late. One whose gate is open is not.
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

// tickets reads the tickets of the first of some callers in line. It returns when the
// last of them may have its turn.
func (r *reader) tickets(o *Outcome, op *Op, at chargeIndexes) (last int64) {
	last = r.next()
	n := r.count()
	r.check(n >= 1 && n <= at.size(op))
	found := false
	for range n {
		i := int(r.next()) - 1
		r.check(i >= 0 && i < at.size(op))
		if r.failed {
			return 0
		}
		i = at.charge(i)
		found = found || i == o.Charge
		o.Tickets = append(o.Tickets, Ticket{
			Budget: op.Charges[i].Budget.Key, Line: r.next(), Number: r.next(), State: TicketState(r.next()), Round: r.next(), Share: r.share(),
		})
	}
	r.check(found)
	return last
}

// of returns the outcome of the i-th of callers that were answered together.
// Callers in line have successive tickets.
func (o Outcome) of(op *Op, i, callers, last int64) Outcome {
	if o.State != InLine || callers == 1 {
		return o
	}

	// Tickets follow each other, so the turns between the first and the last are taken to be even.
	o.At += (last - o.At) * i / (callers - 1)
	ch := &op.Charges[o.Charge]
	k := slices.IndexFunc(o.Tickets, func(t Ticket) bool { return t.Budget == ch.Budget.Key })
	o.Tickets = []Ticket{o.Tickets[max(0, k)]}
	o.Tickets[0].Number += i * Cost(ch)
	return o
}

func (r *reader) budget(b *BudgetReply) {
	b.Generations[0] = r.generation()
	b.Starts, b.Last = r.next(), r.next()
	more := r.next()
	r.check(more >= 0 && more <= moreGenerations|moreLine|moreLanes && (more&moreLanes == 0 || more&moreLine != 0))

	if more&moreGenerations != 0 {
		b.Generations[1], b.Older = r.generation(), Older{r.next(), r.next()}
		more := r.count()
		r.check(more <= Lives-2)

		for i := range min(more, Lives-2) {
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

// The lists that a reply has about a budget besides its counts.
const (
	moreGenerations = 1 << iota
	moreLine
	moreLanes
)

func (r *reader) line() *Line {
	l := new(Line)
	l.ID, l.Waiting, l.Hurry, l.Soon = r.next(), r.next(), r.next(), Wait(r.next())
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

func (r *reader) lanes() (all []Lane) {
	for range r.count() {
		l := Lane{LaneID: LaneID{r.next(), r.share()}, Cut: r.next(), Joined: r.next(), First: Wait(r.next()), Last: Wait(r.next()), News: r.next() != 0}
		r.check(l.Class >= 1 && l.Class <= 3)
		all = append(all, l)
	}
	return all
}

// share reads the name of a share.
func (r *reader) share() uint64 {
	v := r.next()
	r.check(v >= 0)
	return uint64(v)
}
