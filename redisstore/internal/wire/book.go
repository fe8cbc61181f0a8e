package wire

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A BookRequest is one call of lua/book.lua. Keys and rules that several
// operations share are written once.
type BookRequest struct {
	Record  string        // the key of the record of the node's last call for this group
	Number  int64         // of the call
	Age     time.Duration // since it was made for the first time
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
	Known(*store.Budget, string, Boundaries) Known // the string is the key
}

// A BookCall is a BookRequest in writing, which can read its reply.
type BookCall struct {
	Call
	request *BookRequest
	rows    []*store.Charge // in the order of the keys behind the record's
}

// Write writes the request down.
func (r *BookRequest) Write(b Boundaries, budgets Budgets) *BookCall {
	w := writers.Get().(*writer)
	defer w.release()
	w.BookCall = &BookCall{request: r, Call: Call{Script: BookScript, Keys: make([]string, 1, 1+len(r.Ops))}}
	w.boundaries, w.budgets, w.Keys[0] = b, budgets, r.Record

	for _, o := range r.Ops {
		w.op(o)
	}

	// Keys are in the order of lua/book.lua: the record, the budgets, the reports, the gates.
	for i := range r.Reports {
		w.Keys, w.reports = append(w.Keys, r.Reports[i].Key), r.Reports[i].append(w.reports)
	}

	w.Keys = append(w.Keys, w.gates...)
	w.head = w.head.Add(r.Number, rand.Int64N(Names-1)+1, int64(w.ruleCount), Micros(r.Age), int64(len(w.gates)))
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

// leavesOut reports whether a charge is not written with its operation: a gate is
// only named once in the call.
func (r *BookRequest) leavesOut(o *Op, ch *store.Charge) bool {
	return Unlimited(ch) && (o.Kind == Settle || !r.Rows[ch.Budget.Key])
}

// chargeIndexes are the indexes of the charges of an operation that are written
// with it. Nil means all.
type chargeIndexes []int

// writtenCharges returns the charges that are written with an operation.
func (r *BookRequest) writtenCharges(o *Op) chargeIndexes {
	left := func(ch store.Charge) bool { return r.leavesOut(o, &ch) }
	if !slices.ContainsFunc(o.Charges, left) {
		return nil
	}
	at := make(chargeIndexes, 0, len(o.Charges))
	for i := range o.Charges {
		if !left(o.Charges[i]) {
			at = append(at, i)
		}
	}
	return at
}

// size returns how many charges are written.
func (w chargeIndexes) size(o *Op) int {
	if w == nil {
		return len(o.Charges)
	}
	return len(w)
}

// index returns the index of a charge among the written charges.
func (w chargeIndexes) index(charge int) int {
	if w == nil {
		return charge
	}
	return slices.Index(w, charge)
}

// charge returns the charge at an index among the written charges.
func (w chargeIndexes) charge(index int) int {
	if w == nil {
		return index
	}
	return w[index]
}

// A writer writes a BookRequest, in parts that follow each other in the frame. Its
// memory serves many requests in turn.
type writer struct {
	*BookCall
	boundaries Boundaries
	budgets    Budgets

	places map[[16]byte]place    // of the budgets that are rows
	gated  map[[16]byte]struct{} // the budgets that are gates; after a change of its limit a budget may be both
	rules  []*store.Charge       // a charge of each written rule
	gates  []string              // the keys of gates

	head, known, ruled, reports, ops Frame

	ruleCount int // rules: one may be for several budgets
	ruleAt    int // where the last one begins

	common  [11]int64 // the numbers that the last operations have in common
	countAt int       // the index of their count
}

// A place is where a row stands: the indices of its key and of its first rule, from 1.
type place struct{ key, rule int }

var writers = sync.Pool{New: func() any {
	return &writer{places: make(map[[16]byte]place), gated: make(map[[16]byte]struct{})}
}}

// release makes the writer free for the next request.
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
	at := w.request.writtenCharges(o)
	common := [...]int64{int64(o.Kind), flag(o.Informed), o.Start, o.Arrival, Micros(o.NotBefore), Micros(o.Spread),
		Micros(o.Horizon), max(1, o.Class), flag(o.Returns), int64(len(o.Tickets)), int64(at.size(o))}

	// Operations that differ in their last numbers alone have the numbers before in common.
	if len(w.ops) > 0 && common == w.common {
		w.ops.Increase(w.countAt)
	} else {
		w.ops = w.ops.Add(common[:]...).Add(1)
		w.common, w.countAt = common, w.ops.Size()-1
	}

	w.ops = w.ops.Add(int64(o.Callers), o.maxWait())
	for _, t := range o.Tickets {
		i := slices.IndexFunc(o.Charges, func(ch store.Charge) bool { return ch.Budget.Key == t.Budget })
		w.ops = w.ops.Add(int64(at.index(i))+1, t.Line, t.Number, int64(t.State), t.Round, int64(t.Share))
	}

	for i := range o.Charges {
		ch := &o.Charges[i]
		if at != nil && w.request.leavesOut(o, ch) {
			w.gate(o, ch)
			continue
		}

		share, weight := Share(ch)
		w.ops = w.ops.Add(int64(w.rule(ch)), Cost(ch), int64(ch.KeepFree), o.lastField(i), int64(share), weight)
	}
}

// gate writes the key of an unlimited budget, if it is new, and of interest.
func (w *writer) gate(o *Op, ch *store.Charge) {
	if _, known := w.gated[ch.Budget.Key]; known || o.Kind == Settle {
		return
	}
	w.gated[ch.Budget.Key] = struct{}{}
	w.gates = append(w.gates, w.budgets.Key(&ch.Budget))
}

// rule returns the index of a charge's report or, behind all reports, of its rule.
// It writes the rule if it is new.
func (w *writer) rule(ch *store.Charge) int {
	if ForSlots(ch) {
		return 1 + slices.IndexFunc(w.request.Reports, func(r Report) bool { return r.Budget == ch.Budget.Key })
	}

	at, known := w.places[ch.Budget.Key]

	// After a change of its limit, a budget may have several rules in one call.
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

	// Neighbours with equal limits share one rule.
	if n := len(w.rules); n > 1 && !known && w.rules[n-2] == w.rows[len(w.rows)-2] && equalLimits(w.rules[n-2], ch) {
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

// sameRule reports whether two charges have the same rule. A time zone that was
// loaded twice makes two rules of one, which does no harm.
func sameRule(a, b *store.Charge) bool {
	return a.Budget.Key == b.Budget.Key && a.Jitter == b.Jitter && a.Limit == b.Limit
}
