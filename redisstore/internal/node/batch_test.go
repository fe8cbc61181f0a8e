package node

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// charges are of 1 in budgets of one group.
func charges(names ...string) (all []store.Charge) {
	for _, name := range names {
		b := store.Budget{Policy: name, Group: "group"}
		copy(b.Key[:], name)
		all = append(all, store.Charge{Budget: b, Limit: store.PerSecond(9), Cost: 1})
	}
	return all
}

// reserve is a caller that waits so many milliseconds for a start in those budgets.
func reserve(ms int64, names ...string) *op {
	op := keepOp(wire.Reserve, charges(names...)...)
	op.MaxWait = ms * 1000
	return op
}

// with changes an op.
func with(op *op, change func(*op)) *op { change(op); return op }

// place is a turn in a line, of a caller with a ticket.
func place(ticket int64) *turn { return &turn{number: ticket, inLine: true, charges: charges("left")} }

func TestMergeable(t *testing.T) {
	const ms = 1000
	for _, c := range []struct {
		name string
		a, b int64
		want bool
	}{
		{"the same", 7, 7, true},
		{"none and a little", 0, 1, false},
		{"at the tolerance", 100 * ms, 101 * ms, false},
		{"above it", 101 * ms, 102 * ms, true},
		{"not quite half", 1001 * ms, 2000 * ms, true},
		{"half", 1000 * ms, 2000 * ms, false},
		{"any wait and none", wire.AnyWait, 0, false},
		{"any wait and a long one", wire.AnyWait, 1 << 40, false},
		{"any wait twice", wire.AnyWait, wire.AnyWait, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, mergeable(c.a, c.b))
			require.Equal(t, c.want, mergeable(c.b, c.a))
		})
	}
}

// TestBatchMerges: which neighbours become one operation, and for how long that one waits.
func TestBatchMerges(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []*op
		want []mergedOps
	}{
		{"one", []*op{reserve(5, "a")}, []mergedOps{{0, 1, 5000}}},
		{"equal ones", []*op{reserve(5, "a"), reserve(5, "a"), reserve(5, "a")}, []mergedOps{{0, 3, 5000}}},
		{"alike ones wait as long as the least patient", []*op{reserve(300, "a"), reserve(200, "a")}, []mergedOps{{0, 2, 200_000}}},
		{"alike ones among others have to be equal", []*op{reserve(300, "a"), reserve(200, "a"), reserve(1, "a")},
			[]mergedOps{{0, 1, 300_000}, {1, 2, 200_000}, {2, 3, 1000}}},
		{"neighbours only", []*op{reserve(1, "a"), reserve(2, "a"), reserve(1, "a")},
			[]mergedOps{{0, 1, 1000}, {1, 2, 2000}, {2, 3, 1000}}},
		{"each budget by itself", []*op{reserve(5, "a"), reserve(5, "b"), reserve(5, "a")}, []mergedOps{{0, 2, 5000}, {2, 3, 5000}}},
		{"several budgets keep the order of all", []*op{reserve(5, "a"), reserve(5, "a", "b"), reserve(5, "a")},
			[]mergedOps{{0, 1, 5000}, {1, 2, 5000}, {2, 3, 5000}}},
		{"what is given back", []*op{keepOp(wire.Cancel, charges("a")...), keepOp(wire.Cancel, charges("a")...)},
			[]mergedOps{{0, 1, 0}, {1, 2, 0}}},
		{"one that has a start", []*op{reserve(5, "a"), with(reserve(5, "a"), func(op *op) { op.Start = 1 })},
			[]mergedOps{{0, 1, 5000}, {1, 2, 5000}}},
		{"one that must stay alone", []*op{reserve(5, "a"), with(reserve(5, "a"), func(op *op) { op.noMerge = true })},
			[]mergedOps{{0, 1, 5000}, {1, 2, 5000}}},
		{"another spread", []*op{reserve(5, "a"), with(reserve(5, "a"), func(op *op) { op.Spread = 1 })},
			[]mergedOps{{0, 1, 5000}, {1, 2, 5000}}},
		{"another priority", []*op{reserve(5, "a"), with(reserve(5, "a"), func(op *op) { op.Class = 2 })},
			[]mergedOps{{0, 1, 5000}, {1, 2, 5000}}},
		{"another cost", []*op{reserve(5, "a"), with(reserve(5, "a"), func(op *op) { op.Charges[0].Cost = 2 })},
			[]mergedOps{{0, 1, 5000}, {1, 2, 5000}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBatch(c.ops, 1)
			require.ElementsMatch(t, c.ops, b.ops)
			require.Equal(t, c.want, b.merged)
		})
	}
}

// TestOrderOfOps: what gives back is first, then callers that had a start or their turn, in
// the order in which they have waited, then newcomers as they came.
func TestOrderOfOps(t *testing.T) {
	turn := func(class, ticket int64) *op {
		return with(reserve(5, "a"), func(op *op) { op.Class, op.turn = class, place(ticket) })
	}
	returns := func(start int64) *op {
		return with(reserve(5, "a"), func(op *op) { op.Returns, op.Start = true, start })
	}
	waited := func(arrival int64) *op {
		return with(reserve(5, "a"), func(op *op) { op.Returns, op.Arrival = true, arrival })
	}
	want := []*op{
		keepOp(wire.Cancel, charges("a")...), keepOp(wire.Settle, charges("a")...),
		waited(1), waited(2), returns(3), returns(8),
		turn(1, 9), turn(2, 1), turn(2, 4),
		reserve(9, "a"), reserve(1, "b"),
	}
	got := []*op{want[9], want[8], want[3], want[5], want[0], want[10], want[7], want[6], want[4], want[2], want[1]}
	slices.SortStableFunc(got, compareOps)
	for i := range want {
		require.Same(t, want[i], got[i], i)
	}
}

func TestAgeOfABatch(t *testing.T) {
	ops := []*op{reserve(300, "a"), reserve(200, "a"), with(reserve(0, "b"), func(op *op) { op.MaxWait = wire.AnyWait })}
	b := newBatch(ops, 1)
	b.shortenMaxWaits(250 * time.Millisecond)
	require.Equal(t, []int64{50_000, 0, wire.AnyWait}, []int64{ops[0].MaxWait, ops[1].MaxWait, ops[2].MaxWait})
	require.Equal(t, []mergedOps{{0, 2, 0}, {2, 3, wire.AnyWait}}, b.merged)
}

// TestRefusedForOthers: who asks again because it was merged with less patient callers.
func TestRefusedForOthers(t *testing.T) {
	for _, c := range []struct {
		name    string
		maxWait int64 // of the caller, in milliseconds
		outcome wire.State
		wait    int64 // until the start that it cannot have
		want    bool
	}{
		{"it would wait as long", 300, wire.Refused, 250, true},
		{"it would not", 300, wire.Refused, 301, false},
		{"it is the least patient", 200, wire.Refused, 150, false},
		{"it has a start", 300, wire.Booked, 100, false},
		{"nothing is known yet", 300, wire.Unsettled, 100, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := reserve(c.maxWait, "a")
			op.outcome = outcome{Outcome: wire.Outcome{State: c.outcome}, Wait: c.wait * 1000}
			require.Equal(t, c.want, op.refusedForOthers(mergedOps{0, 2, 200_000}))
		})
	}
}
