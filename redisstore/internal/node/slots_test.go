package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// newNode returns a node without a Redis: what it posts stays in its queue.
func newNode() *Node {
	subs := notify.New(nil, func() notify.Channels { return notify.Channels{} }, nil)
	subs.Listen = func(context.Context, *notify.Subscription) {}
	n := New(Options{Names: wire.NewSpace("test"), Subs: subs, NoNews: true, RenewEvery: RenewEvery})
	n.queues["group"] = &queue{running: true, sooner: make(chan struct{}, 1)}
	return n
}

// posted takes the ops that a node has posted out of its queue.
func posted(n *Node) []*op {
	n.mu.Lock()
	defer n.mu.Unlock()
	return postedLocked(n)
}

// postedLocked is posted where the node is locked.
func postedLocked(n *Node) []*op {
	q := n.queues["group"]
	ops := q.ops
	q.ops = nil
	return ops
}

// charge is of 1 in a budget.
func charge(l store.Limit) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "p", Group: "group", Key: [16]byte{1}}, Limit: l, Cost: 1}
}

const horizon = 750 * time.Millisecond

// toldToWait is a caller that Redis told that its start is so far away, and that it has that ticket.
func toldToWait(n *Node, class, ticket int64, wait time.Duration) *op {
	c := charge(store.PerSecond(9))
	op := keepOp(wire.Reserve, c)
	op.Class, op.Horizon, op.MaxWait = class, horizon, wire.AnyWait
	op.outcome.State, op.outcome.Wait = wire.InLine, wire.Micros(wait)
	op.outcome.Tickets = []wire.Ticket{{Budget: c.Budget.Key, Line: 1, Number: ticket}}
	answer(n, op)
	return op
}

// called reports whether a caller was called.
func called(op *op) bool {
	select {
	case <-op.ready:
		return true
	default:
		return false
	}
}

// requireCalled requires that a caller is called in so long, and not before.
func requireCalled(t *testing.T, in time.Duration, op *op) {
	t.Helper()
	begin := time.Now()
	<-op.ready
	if took := time.Since(begin); took != in {
		t.Errorf("called after %v, want %v", took, in)
	}
}

// TestReportedWaiters: the first of each reserve and all that were woken, with what stands behind.
func TestReportedWaiters(t *testing.T) {
	w := func(arrival int64, cost, reserve int, summoned bool) *waiter {
		return &waiter{arrival: arrival, cost: cost, reserve: reserve, summoned: summoned}
	}
	for _, c := range []struct {
		name string
		line []*waiter
		most int
		want []wire.Waiter
	}{
		{"nobody", nil, 2, nil},
		{"all", []*waiter{w(1, 1, 0, false), w(2, 3, 0, false)}, 2,
			[]wire.Waiter{{Arrival: 1, Cost: 1}, {Arrival: 2, Cost: 3}}},
		{"the others stand behind", []*waiter{w(1, 1, 0, false), w(2, 3, 0, false), w(3, 2, 0, false)}, 1,
			[]wire.Waiter{{Arrival: 1, Cost: 1, Behind: 5}}},
		{"no reserve hides another", []*waiter{w(1, 1, 0, false), w(2, 1, 0, false), w(3, 1, 4, false), w(4, 2, 4, false)}, 1,
			[]wire.Waiter{{Arrival: 1, Cost: 1, Behind: 1}, {Arrival: 3, Cost: 1, KeepFree: 4, Behind: 2}}},
		{"who was woken comes on top", []*waiter{w(1, 1, 0, true), w(2, 1, 0, false), w(3, 1, 0, true)}, 1,
			[]wire.Waiter{{Arrival: 1, Cost: 1}, {Arrival: 2, Cost: 1}, {Arrival: 3, Cost: 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, (&lease{line: c.line, maxReported: c.most}).reported())
		})
	}
}

// answer has a node take in the answer to an op.
func answer(n *Node, op *op) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slotsAnswered(op)
	n.startAnswered(op)
}

// arrived has the caller of an op come to its queue.
func arrived(n *Node, op *op) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endExpectation(op.turn)
}

// booked lets a call book a slot, or put its caller in line when it came then.
func booked(n *Node, state wire.State, arrival int64) *op {
	op := keepOp(wire.Reserve, charge(store.Concurrency(2)))
	op.outcome.State, op.outcome.Arrival = state, arrival
	answer(n, op)
	return op
}

// reports are what a call says of the leases, which was answered.
func reports(n *Node, during func()) []wire.Report {
	leases := n.lockRecords([]*op{keepOp(wire.Reserve, charge(store.Concurrency(2)))})
	all := n.writeReports(leases)
	during()
	n.learnReports(leases, []wire.ReportReply{{Generation: wire.Generation{ID: 7, Count: 1}, Nodes: 1}}, time.Now())
	return all
}

// TestALease: what is held and waits is reported, and ends.
func TestALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		require.Empty(t, n.lockRecords([]*op{keepOp(wire.Reserve, charge(store.PerSecond(1)))}), "it has no slots")
		var holds, waits *op
		first := reports(n, func() { holds, waits = booked(n, wire.Held, 0), booked(n, wire.Waiting, 5) })
		require.Len(t, first, 1)
		require.Zero(t, first[0].Held)
		require.Empty(t, first[0].Waiters)

		second := reports(n, func() {})
		require.Equal(t, 1, second[0].Held)
		require.Equal(t, []wire.Waiter{{Arrival: 5, Cost: 1}}, second[0].Waiters)
		require.Equal(t, first[0].Sequence+1, second[0].Sequence)
		require.Equal(t, int64(7), second[0].Generation.ID)
		require.Equal(t, int64(5), second[0].Latest)

		time.Sleep(RenewEvery)
		synctest.Wait()
		require.Len(t, posted(n), 1, "it is renewed")
		time.Sleep(wire.SureLease)
		require.Zero(t, reports(n, func() {})[0].Generation, "it may have expired since")

		require.Len(t, n.giveUp(holds.Charges, 0, true), 1)
		n.giveUp(waits.Charges, 5, false)
		last := reports(n, func() {})
		require.Zero(t, last[0].Held)
		require.Empty(t, last[0].Waiters)
		time.Sleep(wire.Lease)
		synctest.Wait()
		require.Zero(t, n.Load().Leases, "nothing is left of it")
	})
}

// TestGranted: a waiter is called by the message that names it, also if that overtakes the reply
// that puts it in line.
func TestGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var early, other *op
		c := charge(store.Concurrency(2))
		granted := func(arrival int64) {
			n.Granted(notify.Slots{Key: n.Names.Leases(&c.Budget), Arrivals: []int64{arrival}})
		}
		granted(3) // of a budget that nobody here waits for
		reports(n, func() {
			granted(5)
			early, other = booked(n, wire.Waiting, 5), booked(n, wire.Waiting, 6)
		})
		require.True(t, called(early))
		require.False(t, called(other))
		granted(6)
		require.True(t, called(other))
		granted(6) // once more
		for i, op := range []*op{early, other} {
			n.giveUp(op.Charges, int64(5+i), false)
		}
		reports(n, func() {})
		time.Sleep(wire.Lease)
	})
}

// TestOneCallReportsALease at a time.
func TestOneCallReportsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		second := make(chan struct{})
		reports(n, func() {
			go func() {
				reports(n, func() {})
				close(second)
			}()
			synctest.Wait()
			select {
			case <-second:
				t.Error("two calls report one lease")
			default:
			}
		})
		<-second
		time.Sleep(wire.Lease)
	})
}
