package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A desk is one row and what asks it.
type desk struct {
	row      ledger.Row
	now      int64
	arrivals ledger.Arrivals
}

func newDesk() *desk { return &desk{now: begin} }

// request is one of a node for a charge.
func (d *desk) request(node int64, c store.Charge) *ledger.Request {
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Horizon: 750 * time.Millisecond}
	return ledger.NewRequest(d.now, ledger.Node{ID: node, Lease: 2 * second}, &d.arrivals, b, []*ledger.Row{&d.row})
}

// book books for a new caller of a node.
func (d *desk) book(node int64, c store.Charge) (*ledger.Request, *ledger.Waiter) {
	q, w := d.request(node, c), new(ledger.Waiter)
	w.Come(q.Booking)
	q.Book(w)
	return q, w
}

// status is that of a charge.
func (d *desk) status(c store.Charge) store.Status {
	q := ledger.NewRequest(d.now, ledger.Node{}, nil, &store.Booking{Charges: []store.Charge{c}}, []*ledger.Row{d.row.Clone()})
	return q.Status()
}

// TestP7_ADeadNodeGivesBack: what a node holds and waits for is free when its lease ends, and
// not as long as it renews it.
func TestP7_ADeadNodeGivesBack(t *testing.T) {
	one := charge(store.Concurrency(1))
	d := newDesk()
	q, _ := d.book(1, one)
	require.True(t, q.Grant.OK)
	dead, _ := d.book(2, one)
	require.True(t, dead.Waits)
	d.now += second
	alive, _ := d.book(3, one)
	require.True(t, alive.Waits)

	d.now += second - 1
	d.request(1, one).Renew()
	d.now++ // the lease of node 2 ends
	require.Equal(t, 1, d.status(one).Waiting)
	require.Equal(t, 1, d.status(one).Used)
	require.Equal(t, begin+4*second-1, d.row.Expiry())

	d.now = begin + 2*second + second/2
	d.request(3, one).Renew()
	d.now = begin + 4*second // that of node 1 has ended
	q = d.request(3, one)
	q.Renew()
	require.Equal(t, []ledger.Place{{Key: one.Budget.Key, Arrival: alive.Grant.Handle.Place, Node: 3}}, q.News().Called)
	require.Zero(t, d.status(one).Used)
	d.request(1, one).Release() // it was dead and is back: nothing is freed twice
	require.Zero(t, d.status(one).Used)
}

// TestP7_ADeadNodeLeavesTheLine: the same of a line for starts.
func TestP7_ADeadNodeLeavesTheLine(t *testing.T) {
	slow := charge(store.LeakyBucket(1, time.Second))
	d := newDesk()
	d.book(1, slow)
	d.book(1, slow)
	d.now += second
	_, w := d.book(2, slow)
	_, at, waits := w.Line()
	require.True(t, waits)
	d.book(3, slow)
	require.Equal(t, 2, d.status(slow).Waiting-1)
	d.now += second + second/2
	d.request(2, slow).Renew()
	d.now += second
	require.Equal(t, 1, d.status(slow).Waiting)
	head, ok := d.row.Head(slow.Budget.Key)
	require.True(t, ok)
	require.Equal(t, ledger.Place{Key: slow.Budget.Key, Arrival: at, Node: 2}, head)
}

// TestP9_AClockThatStepsBack: no time passes by it. Starts, penalties, leases and callers that
// keep behind others move with the clock.
func TestP9_AClockThatStepsBack(t *testing.T) {
	c, one := charge(store.PerSecond(1)), charge(store.Concurrency(1))
	d := newDesk()
	require.Zero(t, first(d.book(1, c)).Grant.Wait)
	d.now -= 3600 * second
	d.request(1, c) // sees the new time
	require.Equal(t, time.Second+time.Microsecond, d.status(c).Wait)
	d.now += second + 1
	require.Zero(t, first(d.book(1, c)).Grant.Wait)
	d.request(1, c).Pause(10 * time.Second)
	d.now -= 3600 * second
	require.Equal(t, 10*time.Second, d.status(c).Paused)

	d = newDesk()
	d.book(1, one)
	d.now -= 3600 * second
	d.request(2, one)
	require.Equal(t, 1, d.status(one).Used)
	d.now += 2 * second
	require.Zero(t, d.status(one).Used)
}

func first(q *ledger.Request, _ *ledger.Waiter) *ledger.Request { return q }

// TestP5_NewcomersStayBehindCountedWaiters: waiters without a place go before newcomers, as
// long as one of them may still ask.
func TestP5_NewcomersStayBehindCountedWaiters(t *testing.T) {
	one := charge(store.Concurrency(1))
	d := newDesk()
	held, _ := d.book(0, one)
	var line []*ledger.Request
	for range 200 {
		q, _ := d.book(0, one)
		line = append(line, q)
	}
	bytes, err := d.row.MarshalBinary()
	require.NoError(t, err)
	require.NoError(t, d.row.UnmarshalBinary(bytes))
	for _, q := range line[:128] { // those that have places
		d.request(0, one).Cancel(*q.Grant)
	}
	d.request(0, one).Release()
	require.True(t, held.Grant.OK)
	require.True(t, d.row.Wants())
	q, _ := d.book(0, one)
	require.False(t, q.Grant.OK)

	again := d.request(0, one)
	again.Relist(0, line[130].Grant.Handle.Place)
	require.Equal(t, []ledger.Place{{Key: one.Budget.Key, Arrival: line[130].Grant.Handle.Place}}, again.News().Called)

	d.request(0, one).Cancel(*line[130].Grant)
	d.request(0, one).Cancel(*q.Grant)
	d.now += 10 * second // none of the others has asked
	q, _ = d.book(0, one)
	require.True(t, q.Grant.OK)
}

// TestP3_ACostAboveTheToldLimit: a request that costs more than the upstream allows in a window takes all of a window, and callers behind it wait for that
// window alone.
func TestP3_ACostAboveTheToldLimit(t *testing.T) {
	const n = 3
	for _, cost := range []int{n, n + 1, 100} {
		c := charge(store.Told())
		c.Cost = cost
		d := newDesk()
		d.request(1, c).Reconcile(store.Quota{Told: store.SlidingWindow(n, time.Minute)})

		for i, want := range []time.Duration{0, time.Minute, 2 * time.Minute} {
			q := d.request(1, c)
			q.Booking.Horizon = time.Hour
			require.True(t, q.BookNow())
			require.True(t, q.Grant.OK)
			require.InDelta(t, want, q.Grant.Wait, float64(i)*float64(time.Microsecond), "cost %d", cost)
		}
		require.Equal(t, 3*n, d.status(c).Used+d.status(c).Booked, "cost %d", cost)
	}
}
