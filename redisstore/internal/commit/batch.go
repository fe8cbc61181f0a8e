package commit

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A batch is one call of book.lua. Keys and rules that several ops share stand in it once,
// and neighbours that ask for the same are merged.
type batch struct {
	ops    []*Op
	merged []merged
	number int64     // of the call, among all that this node makes
	sent   time.Time // when it was sent for the first time
	copied time.Time // and when it was sent last; zero: nobody waits for it

	exchange *conn.Exchange // of the last copy, until it has an answer
	call     *wire.BookCall // that copy
	failed   error          // why the leader has no answer, which the queue does not know yet

	reports Reports            // that go along; nil: there are none
	replies []wire.ReportReply // what was answered to each

	sorted bool              // it is decided which unlimited budgets are rows:
	rows   map[[16]byte]bool // these
}

// isCopied reports whether the call was sent before.
func (b *batch) isCopied() bool { return !b.sent.IsZero() }

// holds reports whether some ops need slots, whose leases are locked during a call.
func (b *batch) holds() bool {
	return slices.ContainsFunc(b.ops, (*Op).Holds)
}

// age takes what has passed off the MaxWait of the callers, but for those that wait for any time.
func (b *batch) age(passed time.Duration) {
	less := func(wait *int64) {
		if *wait > 0 && *wait < wire.AnyWait {
			*wait = max(0, *wait-wire.Micros(passed))
		}
	}
	for _, op := range b.ops {
		less(&op.MaxWait)
	}
	for i := range b.merged {
		less(&b.merged[i].maxWait)
	}
}

// Reports are what a call says of concurrency slots. No other call says anything of the
// same budgets until Done.
type Reports interface {
	// Write returns the reports as they are now, for one copy of the call.
	Write() []wire.Report
	// Done takes in what was answered, to a call that was first sent then; nil if there
	// was no answer.
	Done(replies []wire.ReportReply, sent time.Time)
}

// A merged is the ops from one index up to another, which ask for the same. It becomes one
// operation.
type merged struct {
	from, to int
	maxWait  int64 // the least of theirs
}

// waitTolerance is a MaxWait above which ops are merged though one is up to twice the other.
// The difference is seen to when one of them is refused.
const waitTolerance = int64(100 * time.Millisecond / time.Microsecond)

// mergeable reports whether ops of two MaxWaits can be merged.
func mergeable(a, b int64) bool {
	return a == b || min(a, b) > waitTolerance && min(a, b) > max(a, b)/2
}

// newBatch merges equal neighbours. It keeps the ops, in another order where that does not
// matter: if each needs one budget and has no place, only the order of those of one budget does.
func newBatch(ops []*Op, number int64) *batch {
	b := &batch{ops: ops, number: number}
	if len(ops) == 1 || slices.ContainsFunc(ops, func(op *Op) bool { return len(op.Charges) > 1 || op.hasPlace() }) {
		b.merge(0, len(ops))
		return b
	}
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
func compareBudgets(a, b *Op) int {
	return bytes.Compare(a.Charges[0].Budget.Key[:], b.Charges[0].Budget.Key[:])
}

// merge merges the ops from one index up to another, whose order matters.
func (b *batch) merge(from, to int) {
	k := len(b.merged)
	b.mergeIf(mergeable, from, to)
	if len(b.merged) > k+1 {
		// One that is refused for the MaxWait of others asks again: those
		// behind it must not pass meanwhile.
		b.merged = b.merged[:k]
		b.mergeIf(func(a, b int64) bool { return a == b }, from, to)
	}
}

// mergeIf merges neighbours whose MaxWaits are as alike as they must be.
func (b *batch) mergeIf(mergeable func(a, b int64) bool, from, to int) {
	for i := from; i < to; i++ {
		op, k := b.ops[i], len(b.merged)-1
		if i > from && b.ops[i-1].equal(op) && mergeable(b.ops[i-1].MaxWait, op.MaxWait) {
			b.merged[k].to++
			b.merged[k].maxWait = min(b.merged[k].maxWait, op.MaxWait)
		} else {
			b.merged = append(b.merged, merged{i, i + 1, op.MaxWait})
		}
	}
}

// equal reports whether two ops ask for the same, but for their MaxWait.
func (op *Op) equal(o *Op) bool {
	return op.Kind == wire.Reserve && o.Kind == wire.Reserve && !op.hasPlace() && !o.hasPlace() &&
		!op.holds && !op.noMerge && !o.noMerge &&
		op.Horizon == o.Horizon && op.Class == o.Class && op.Returns == o.Returns && op.Informed == o.Informed &&
		op.NotBefore == o.NotBefore && op.Spread == o.Spread && slices.Equal(op.Charges, o.Charges)
}

// hasPlace reports whether the caller has a start, or a place in a line.
func (op *Op) hasPlace() bool { return op.Start != 0 || op.Arrival != 0 || op.turns() > 0 }

// turns is 1 for a caller that has been in line.
func (op *Op) turns() int {
	if op.Turn == nil && len(op.Tickets) == 0 {
		return 0
	}
	return 1
}

// compareOps sorts the ops of one call: those that give something back, those of callers
// that had a start or their turn, by how long they wait, and the others as they came.
func compareOps(a, b *Op) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 || a.rank() == newcomer {
		return c
	}
	return cmp.Compare(a.place(), b.place())
}

// The ranks of ops.
const (
	givesBack = iota
	returner
	inTurn
	newcomer
)

func (op *Op) rank() int {
	switch {
	case op.Kind != wire.Reserve:
		return givesBack
	case op.Returns:
		return returner
	case op.Turn != nil:
		return inTurn
	}
	return newcomer
}

// place is what the ops of one rank are sorted by.
func (op *Op) place() int64 {
	switch op.rank() {
	case returner:
		return op.Start - op.Arrival
	case inTurn:
		return op.Class<<56 + op.Turn.Ticket()
	}
	return 0
}
