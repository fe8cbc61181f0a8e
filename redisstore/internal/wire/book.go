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
	Ops     []*Op
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
}

// Write writes the request down.
func (r *BookRequest) Write(b Boundaries, budgets Budgets) *BookCall {
	w := writers.Get().(*writer)
	defer w.done()
	w.BookCall = &BookCall{request: r, Call: Call{Script: BookScript, Keys: make([]string, 1, 1+len(r.Ops))}}
	w.boundaries, w.budgets, w.Keys[0] = b, budgets, r.Record
	for _, o := range r.Ops {
		w.op(o)
	}
	for i := range r.Reports {
		w.Keys, w.reports = append(w.Keys, r.Reports[i].Key), r.Reports[i].append(w.reports)
	}
	w.Keys = append(w.Keys, w.gates...)
	w.head = w.head.Add(r.Number, rand.Int64N(Names-1)+1, int64(w.written), Micros(r.Age), int64(len(w.gates)))
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
