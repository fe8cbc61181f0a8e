package line

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A node is lines without a Redis.
type node struct {
	*Lines
	mu    sync.Mutex
	asked []*commit.Op // what nobody waits for
}

func newNode() *node {
	n := &node{}
	subs := notify.New(nil, nil)
	subs.Listen = func(context.Context, *notify.Subscription) {}
	n.Lines = New(&Options{Names: names.New("test"), Subs: subs, NoNews: true, Post: func(op *commit.Op) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.asked = append(n.asked, op)
	}})
	return n
}

// charge is of 1 in a budget.
func charge(l store.Limit) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "p", Group: "group", Key: [16]byte{1}}, Limit: l, Cost: 1}
}

const horizon = 750 * time.Millisecond

// told is a caller that Redis told that its start is so far away, and that it has that ticket.
func (n *node) told(class, ticket int64, wait time.Duration) *commit.Op {
	c := charge(store.PerSecond(9))
	op := commit.NewOp(wire.Reserve, c)
	op.Class, op.Horizon, op.MaxWait = class, horizon, wire.AnyWait
	op.Outcome.State, op.Outcome.Wait = wire.InLine, wire.Micros(wait)
	op.Outcome.Tickets = []wire.Ticket{{Budget: c.Budget.Key, Line: 1, Number: ticket}}
	n.Answered(op)
	return op
}

// called reports whether a caller was called.
func called(op *commit.Op) bool {
	select {
	case <-op.Ready:
		return true
	default:
		return false
	}
}

// requireCalled requires that a caller is called in so long, and not before.
func requireCalled(t *testing.T, in time.Duration, op *commit.Op) {
	t.Helper()
	begin := time.Now()
	<-op.Ready
	if took := time.Since(begin); took != in {
		t.Errorf("called after %v, want %v", took, in)
	}
}

// TestReportedWaiters: the first of each reserve and all that were woken, with what stands behind.
func TestReportedWaiters(t *testing.T) {
	w := func(arrival int64, cost, reserve int, woken bool) *waiter {
		return &waiter{arrival: arrival, cost: cost, reserve: reserve, woken: woken}
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
			require.Equal(t, c.want, (&lease{line: c.line, reportMost: c.most}).reported())
		})
	}
}

// booked lets a call book a slot, or put its caller in line when it came then.
func (n *node) booked(state wire.State, arrival int64) *commit.Op {
	op := commit.NewOp(wire.Reserve, charge(store.Concurrency(2)))
	op.Outcome.State, op.Outcome.Arrival = state, arrival
	n.Answered(op)
	return op
}

// reports are what a call says of the leases, which was answered.
func (n *node) reports(during func()) []wire.Report {
	r := n.Report([]*commit.Op{commit.NewOp(wire.Reserve, charge(store.Concurrency(2)))})
	all := r.Write()
	during()
	r.Done([]wire.ReportReply{{Generation: wire.Generation{ID: 7, Count: 1}, Nodes: 1}}, time.Now())
	return all
}

// TestALease: what is held and waits is reported, and ends.
func TestALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		require.Nil(t, n.Report([]*commit.Op{commit.NewOp(wire.Reserve, charge(store.PerSecond(1)))}), "it has no slots")
		var holds, waits *commit.Op
		first := n.reports(func() { holds, waits = n.booked(wire.Held, 0), n.booked(wire.Waiting, 5) })
		require.Len(t, first, 1)
		require.Zero(t, first[0].Held)
		require.Empty(t, first[0].Waiters)

		second := n.reports(func() {})
		require.Equal(t, 1, second[0].Held)
		require.Equal(t, []wire.Waiter{{Arrival: 5, Cost: 1}}, second[0].Waiters)
		require.Equal(t, first[0].Sequence+1, second[0].Sequence)
		require.Equal(t, int64(7), second[0].Generation.ID)
		require.Equal(t, int64(5), second[0].Latest)

		time.Sleep(renewEvery)
		synctest.Wait()
		require.Len(t, n.asked, 1, "it is renewed")
		time.Sleep(wire.SureLease)
		require.Zero(t, n.reports(func() {})[0].Generation, "it may have expired since")

		require.Len(t, n.GiveUp(holds.Charges, 0, true), 1)
		n.GiveUp(waits.Charges, 5, false)
		last := n.reports(func() {})
		require.Zero(t, last[0].Held)
		require.Empty(t, last[0].Waiters)
		time.Sleep(wire.Lease)
		synctest.Wait()
		require.Zero(t, n.Leases(), "nothing is left of it")
	})
}

// TestGranted: a waiter is called by the message that names it, also if that overtakes the reply
// that puts it in line.
func TestGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var early, other *commit.Op
		c := charge(store.Concurrency(2))
		granted := func(arrival int64) {
			n.Granted(notify.Slots{Key: n.Names.Leases(&c.Budget), Arrivals: []int64{arrival}})
		}
		granted(3) // of a budget that nobody here waits for
		n.reports(func() {
			granted(5)
			early, other = n.booked(wire.Waiting, 5), n.booked(wire.Waiting, 6)
		})
		require.True(t, called(early))
		require.False(t, called(other))
		granted(6)
		require.True(t, called(other))
		granted(6) // once more
		for i, op := range []*commit.Op{early, other} {
			n.GiveUp(op.Charges, int64(5+i), false)
		}
		n.reports(func() {})
		time.Sleep(wire.Lease)
	})
}

// TestOneCallReportsALease at a time.
func TestOneCallReportsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		second := make(chan struct{})
		n.reports(func() {
			go func() {
				n.reports(func() {})
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
