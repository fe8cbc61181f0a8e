package wire

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A BookRequest is one call of lua/book.lua. Keys and rules that several operations
// share stand in it once.
type BookRequest struct {
	Record  string        // the key of the record of the node's last call for this group
	Number  int64         // of the call
	Age     time.Duration // since it was made for the first time
	Ops     []Op
	Rows    map[[16]byte]bool // which unlimited budgets are rows; the others are gates
	Reports []Report          // of all budgets of requests in flight that Ops name

	Shared string  // the channel where all nodes hear of a group
	Node   string  // the node's name
	Own    string  // what the channels of single nodes begin with
	Pauses []Pause // of the budgets, as far as the node knows
}

// A Pause is a budget that is closed.
type Pause struct {
	Key  string
	Left time.Duration
}

// Budgets is what a request asks of the budgets that it is about.
type Budgets interface {
	Key(*throttle.Budget) string
	Known(*throttle.Budget, string, Boundaries) Known // by its key
}

// A BookCall is a BookRequest that is written down, and can read its reply.
type BookCall struct {
	Call
	request *BookRequest
	rows    []*throttle.Charge // one for each of the keys after that of the record

	keyOf  map[[16]byte]int
	ruleOf map[ruleID]int // nil, like keyOf, if there is only one
	rules  int
	gates  []string

	known, ruled, ops Frame
}

// A ruleID tells rules apart. A zone that was loaded twice makes two rules of
// one, which does no harm.
type ruleID struct {
	key    [16]byte
	limit  throttle.Limit
	jitter time.Duration
}

// Write writes the request down.
func (r *BookRequest) Write(b Boundaries, budgets Budgets) *BookCall {
	c := &BookCall{request: r, Call: Call{Script: BookScript, Keys: []string{r.Record}}}
	if len(r.Ops) > 1 || len(r.Ops[0].Charges) > 1 {
		c.keyOf, c.ruleOf = make(map[[16]byte]int), make(map[ruleID]int)
	}
	// Room for one budget each; more is made if it is needed.
	n := len(r.Ops)
	c.known, c.ruled, c.ops = make(Frame, 0, 256*n), make(Frame, 0, 96*n), make(Frame, 0, 96*n)
	for i := range r.Ops {
		c.op(&r.Ops[i], b, budgets)
	}
	var reports Frame
	for i := range r.Reports {
		c.Keys, reports = append(c.Keys, r.Reports[i].Key), r.Reports[i].append(reports)
	}
	c.Keys = append(c.Keys, c.gates...)
	head := make(Frame, 0, 40).Add(r.Number, rand.Int64N(1<<53-1)+1, int64(c.rules), Micros(r.Age), int64(len(c.gates)))
	c.Frame = slices.Concat(head, c.known, c.ruled, reports, c.ops)
	c.More = []any{r.Shared}
	if len(r.Reports) > 0 || len(r.Pauses) > 0 {
		c.More = append(c.More, len(r.Reports), r.Node, r.Own)
	}
	for _, p := range r.Pauses {
		c.More = append(c.More, p.Key, Micros(p.Left))
	}
	return c
}

// op writes one operation down.
func (c *BookCall) op(o *Op, b Boundaries, budgets Budgets) {
	at := c.request.written(o)
	c.ops = c.ops.Add(int64(o.Kind), int64(o.Callers), flag(o.Informed), o.Start, o.Arrival, o.maxWait(), Micros(o.NotBefore),
		Micros(o.Spread), Micros(o.Horizon), max(1, o.Class), flag(o.Returns), int64(len(o.Tickets)), int64(at.size(o)))
	for _, t := range o.Tickets {
		i := slices.IndexFunc(o.Charges, func(ch throttle.Charge) bool { return ch.Budget.Key == t.Budget })
		c.ops = c.ops.Add(int64(at.index(i))+1, t.Line, t.Number, int64(t.State), t.Round)
	}
	for i := range o.Charges {
		ch := &o.Charges[i]
		if at != nil && c.request.leavesOut(o, ch) {
			c.gate(o, ch, budgets)
			continue
		}
		c.ops = c.ops.Add(int64(c.rule(ch, b, budgets)), Cost(ch), int64(ch.Reserve), o.more(i))
	}
}

// gate writes down the key of an unlimited budget, if it is new, and of interest.
func (c *BookCall) gate(o *Op, ch *throttle.Charge, budgets Budgets) {
	if _, known := c.keyOf[ch.Budget.Key]; known || o.Kind == Settle {
		return
	}
	c.gates = append(c.gates, budgets.Key(&ch.Budget))
	if c.keyOf != nil {
		c.keyOf[ch.Budget.Key] = 0
	}
}

// rule returns the index of a charge's rule, behind those of the reports, or of its report. It
// writes the rule down if it is new.
func (c *BookCall) rule(ch *throttle.Charge, b Boundaries, budgets Budgets) int {
	if Holds(ch) {
		return 1 + slices.IndexFunc(c.request.Reports, func(r Report) bool { return r.Budget == ch.Budget.Key })
	}
	id := ruleID{ch.Budget.Key, ch.Limit, ch.Jitter}
	if rule, ok := c.ruleOf[id]; ok {
		return len(c.request.Reports) + rule
	}
	key, ok := c.keyOf[ch.Budget.Key]
	if !ok {
		name := budgets.Key(&ch.Budget)
		c.Keys, c.rows = append(c.Keys, name), append(c.rows, ch)
		key = len(c.Keys)
		if c.keyOf != nil {
			c.keyOf[ch.Budget.Key] = key
		}
		known := budgets.Known(&ch.Budget, name, b)
		c.known = known.append(c.known)
	}
	c.rules++
	if c.ruleOf != nil {
		c.ruleOf[id] = c.rules
	}
	c.ruled = b.AppendRule(c.ruled, key, ch)
	return len(c.request.Reports) + c.rules
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// leavesOut reports whether a call says nothing of an operation's charge but, at most,
// that it is a gate.
func (r *BookRequest) leavesOut(o *Op, ch *throttle.Charge) bool {
	return Unlimited(ch) && (o.Kind == Settle || !r.Rows[ch.Budget.Key])
}

// A written says where those of an operation's charges stand that a call says something
// of; nil if those are all.
type written []int

func (r *BookRequest) written(o *Op) written {
	left := func(ch throttle.Charge) bool { return r.leavesOut(o, &ch) }
	if !slices.ContainsFunc(o.Charges, left) {
		return nil
	}
	at := make(written, 0, len(o.Charges))
	for i := range o.Charges {
		if !left(o.Charges[i]) {
			at = append(at, i)
		}
	}
	return at
}

func (w written) size(o *Op) int {
	if w == nil {
		return len(o.Charges)
	}
	return len(w)
}

// index returns where a charge stands among those that are written down.
func (w written) index(charge int) int {
	if w == nil {
		return charge
	}
	return slices.Index(w, charge)
}

// charge returns which charge stands there.
func (w written) charge(index int) int {
	if w == nil {
		return index
	}
	return w[index]
}
