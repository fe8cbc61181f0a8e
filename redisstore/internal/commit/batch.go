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
	merged []mergedOps
	number int64     // of the call, among all calls that this node makes
	sent   time.Time // when the first copy of the call was sent; zero: none was
	copied time.Time // when the last copy was sent; zero: none was, or the call is lost

	exchange *conn.Exchange // of the last copy, until it has an answer
	call     *wire.BookCall // the last copy
	failed   error          // why the leader's call failed, for the first try of the goroutine that goes on

	reports Reports            // that go along with the call; nil: there are none
	replies []wire.ReportReply // what Redis answered to each report

	rowsChosen bool              // chooseRows has set rows
	rows       map[[16]byte]bool // the keys of the unlimited budgets that are rows in the call
}

// isCopied reports whether a copy of the call was sent.
func (b *batch) isCopied() bool { return !b.sent.IsZero() }

// forSlots reports whether some ops need slots, whose leases are locked during a call.
func (b *batch) forSlots() bool {
	return slices.ContainsFunc(b.ops, (*Op).ForSlots)
}

// shortenMaxWaits takes the time that has passed off the MaxWait of each caller that has one.
func (b *batch) shortenMaxWaits(passed time.Duration) {
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

// Reports are what a call says of leases. No other call reports the same leases until Done.
type Reports interface {
	// Write returns the reports as they are now, for one copy of the call.
	Write() []wire.Report
	// Done takes in what Redis answered to a call that was sent for the first time at sent. replies
	// is nil if there was no answer.
	Done(replies []wire.ReportReply, sent time.Time)
}

// A mergedOps is the ops from one index up to another, which ask for the same. It becomes one
// operation.
type mergedOps struct {
	from, to int
	maxWait  int64 // the least MaxWait of the ops, in microseconds
}

// waitTolerance is the MaxWait, in microseconds, above which ops are merged although one MaxWait is
// up to twice the other. An op that is refused for the lower one is asked again: see
// refusedForOthers.
const waitTolerance = int64(100 * time.Millisecond / time.Microsecond)

// mergeable reports whether two ops with MaxWaits a and b can be merged.
func mergeable(a, b int64) bool {
	return a == b || min(a, b) > waitTolerance && min(a, b) > max(a, b)/2
}

// newBatch returns the call of some ops, which it keeps, with neighbours merged that ask the same. If
// each op needs one budget, and none has a start or a place, only the order of the ops of one budget
// matters: then newBatch sorts the ops by budget first, so that more of them are neighbours.
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
		// There are ops behind the merged ones. An op that is refused for the MaxWait of others
		// asks again, and the ops behind it must not pass it meanwhile.
		b.merged = b.merged[:k]
		b.mergeIf(func(a, b int64) bool { return a == b }, from, to)
	}
}

// mergeIf merges neighbours from one index up to another that ask the same and whose MaxWaits are
// mergeable.
func (b *batch) mergeIf(mergeable func(a, b int64) bool, from, to int) {
	for i := from; i < to; i++ {
		op, k := b.ops[i], len(b.merged)-1
		if i > from && b.ops[i-1].asksSame(op) && mergeable(b.ops[i-1].MaxWait, op.MaxWait) {
			b.merged[k].to++
			b.merged[k].maxWait = min(b.merged[k].maxWait, op.MaxWait)
		} else {
			b.merged = append(b.merged, mergedOps{i, i + 1, op.MaxWait})
		}
	}
}

// asksSame reports whether two ops can be one operation with two callers: they are alike but for
// their MaxWait, and neither has a start or a place, nor needs slots.
func (op *Op) asksSame(o *Op) bool {
	return op.Kind == wire.Reserve && o.Kind == wire.Reserve && !op.hasPlace() && !o.hasPlace() &&
		!op.forSlots && !op.noMerge && !o.noMerge &&
		op.Horizon == o.Horizon && op.Class == o.Class && op.Returns == o.Returns && op.Informed == o.Informed &&
		op.NotBefore == o.NotBefore && op.Spread == o.Spread && slices.Equal(op.Charges, o.Charges)
}

// hasPlace reports whether the caller has a start, or a place in a line.
func (op *Op) hasPlace() bool { return op.Start != 0 || op.Arrival != 0 || op.turnCount() > 0 }

// turnCount is 1 for a caller that has been in a line for a start, else 0.
func (op *Op) turnCount() int {
	if op.Turn == nil && len(op.Tickets) == 0 {
		return 0
	}
	return 1
}

// compareOps orders the ops of a queue: by rank, and within a rank by rankOrder. Newcomers stay in
// the order in which they came.
func compareOps(a, b *Op) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 || a.rank() == newcomer {
		return c
	}
	return cmp.Compare(a.rankOrder(), b.rankOrder())
}

// The ranks of ops, in the order in which a call serves them.
const (
	givesBack = iota // books nothing
	returner         // of a caller that had a start
	inTurn           // of a caller that waited in line
	newcomer         // of any other caller
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

// rankOrder is the number by which the ops of one rank are sorted: of returners the start that they
// had, or the moment when they joined a line for slots, below 0; of those in turn the class and the
// ticket.
func (op *Op) rankOrder() int64 {
	switch op.rank() {
	case returner:
		return op.Start - op.Arrival
	case inTurn:
		return op.Class<<56 + op.Turn.Ticket()
	}
	return 0
}
