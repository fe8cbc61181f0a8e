package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// reload keeps the row of a desk as bytes, as stores do between steps, and returns the first byte.
func (d *desk) reload(t *testing.T) (form byte) {
	t.Helper()
	b, err := d.row.MarshalBinary()
	require.NoError(t, err)
	d.row = ledger.Row{}
	require.NoError(t, d.row.UnmarshalBinary(b))
	return b[0]
}

// pass begins a pass of a node.
func (d *desk) pass(node int64, c store.Charge) (*ledger.Request, *ledger.Pass) {
	q := d.request(node, c)
	return q, ledger.NewPass(q)
}

// TestP4_ANodeThatComes: a node that has said that it comes by itself is not asked, in a row that is read again, until it has not come, or if it comes too late.
// It is the guard meanwhile.
func TestP4_ANodeThatComes(t *testing.T) {
	slow := charge(store.LeakyBucket(2, time.Second)) // a start in half a second
	for _, c := range []struct {
		comes, passed int64 // how long after its own pass the node comes, and the pass of the other node is
		asked         bool
	}{
		{0, 1000, true}, // it has not said so
		{40_000, 1000, false},
		{40_000, 40_000, false},
		{40_000, 40_001, true}, // it has not come
		{149_000, 1000, false},
		{151_000, 1000, true}, // that is within a sixth of the horizon before its start
	} {
		d := newDesk()
		for range 2 {
			d.book(1, slow) // now, and in half a second
		}
		d.book(2, slow)
		d.book(1, slow)
		d.now += second * 3 / 4 // the start of the waiter of node 2 is in a quarter

		// Node 2 goes through the line, and books nothing.
		q := d.request(2, slow)
		q.Booking.Horizon = time.Millisecond
		p := ledger.NewPass(q)
		_, ok := p.Next()
		require.True(t, ok)
		if c.comes > 0 {
			p.Comes(d.now + c.comes)
		}
		p.End(true)
		d.reload(t)

		d.now += c.passed
		q = d.request(1, slow)
		q.Booking.Horizon = 600 * time.Millisecond
		p = ledger.NewPass(q)
		at, ok := p.Next()
		require.True(t, ok)
		require.Equal(t, int64(2), at.Node)
		near, ask := p.SetAside()
		require.True(t, near)
		require.Equal(t, c.asked, ask, "%+v", c)
		require.Equal(t, c.asked, p.IsAsked(), "%+v", c)

		later, next := p.End(true)
		require.Zero(t, next)
		require.Equal(t, c.asked, later > 0, "the node that comes is the guard: %+v", c)
	}
}

// TestP4_AFartherHorizon: a node with a farther horizon than others may have asks none of those that come by themselves before their starts are that near, even if they
// say that they come too late: until then they could not book. It looks again when the start is near.
func TestP4_AFartherHorizon(t *testing.T) {
	slow := charge(store.LeakyBucket(2, time.Second)) // a start in half a second, and a horizon of 750 ms
	d := newDesk()
	for range 2 {
		d.book(1, slow) // now, and in half a second
	}
	start := d.now + second
	d.book(2, slow)
	d.book(1, slow)

	// Node 2 says that it comes right at the start of its waiter.
	_, p := d.pass(2, slow)
	p.Comes(start)
	p.End(true)

	for _, c := range []struct {
		before int64 // how long before the start
		asked  bool
	}{
		{990_000, false},
		{750_001, false},
		{750_000, true},
	} {
		d.now = start - c.before
		q := d.request(1, slow)
		q.Booking.Horizon = 2 * time.Second
		p := ledger.NewPass(q)
		at, ok := p.Next()
		require.True(t, ok)
		require.Equal(t, int64(2), at.Node)
		near, ask := p.SetAside()
		require.True(t, near)
		require.Equal(t, c.asked, ask, "%d", c.before)

		later, _ := p.End(true)
		if !c.asked {
			require.LessOrEqual(t, later.Microseconds(), max(c.before-750_000, 250_000), "it looks again in time")
		}
	}
}

// TestP4_ANodePlans: a node comes by itself for its next waiter, three fifths of the horizon before that waiter's start, and says that it does so a third of it before. It
// plans nothing where it confirms a start early enough, where it has no waiter, or where its waiter should be served already.
func TestP4_ANodePlans(t *testing.T) {
	const horizon = 400_000
	const planAt, planBy = horizon * 3 / 5, horizon * 7 / 20
	slow := charge(store.LeakyBucket(2, time.Second)) // a start in half a second
	for _, c := range []struct {
		name     string
		node     int64
		before   int64 // how long before the start of the waiter the pass is
		confirms int64 // how long before that start the node confirms a start of another caller. Zero means that it confirms none.
		comes    int64 // the same of when it says to come. Zero means that it says nothing.
		enough   bool
		later    time.Duration // until its own pass. Zero means that it plans none.
	}{
		{"its waiter", 2, 900_000, 0, planBy, true, 900*time.Millisecond - planAt*time.Microsecond},
		{"a start that is confirmed early", 2, 900_000, horizon / 4, horizon / 4, true, 0},
		{"a start that is confirmed late", 2, 900_000, horizon/4 - 1, planBy, true, 900*time.Millisecond - planAt*time.Microsecond},
		{"the next moment", 2, planAt + horizon/8, 0, planBy, true, horizon / 8 * time.Microsecond},
		{"a waiter that is due", 2, planAt + horizon/8 - 1, 0, 0, false, 0},
		{"no waiter", 3, 900_000, 0, 0, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk()
			start := d.now + second
			for range 2 {
				d.book(1, slow) // now, and in half a second
			}
			_, w := d.book(2, slow)
			_, _, waits := w.Line()
			require.True(t, waits)

			d.now = start - c.before
			q := d.request(c.node, slow)
			q.Booking.Horizon = horizon * time.Microsecond
			p := ledger.NewPass(q)
			confirms := int64(0)
			if c.confirms > 0 {
				confirms = start - c.confirms
			}
			comes, enough := p.Plan(confirms)
			require.Equal(t, c.enough, enough)
			if c.comes > 0 {
				c.comes = start - c.comes
			}
			require.Equal(t, c.comes, comes)

			p.Comes(comes)
			later, _ := p.End(c.node == 2)
			require.Equal(t, c.later, max(0, later))
		})
	}
}

// TestP7_APassOfTwoNodes: a waiter is booked behind one of another node that came earlier and has not booked yet. That node is asked once, is silent when
// it does not come, and keeps its place.
func TestP7_APassOfTwoNodes(t *testing.T) {
	slow := charge(store.LeakyBucket(2, time.Second)) // a start in half a second
	d := newDesk()
	for range 3 {
		d.book(1, slow) // now, in half a second, and in the line
	}
	_, other := d.book(2, slow)
	_, own := d.book(1, slow)
	_, last := d.book(1, slow)
	require.Equal(t, byte(1), d.reload(t), "nobody is asked, and the form is the old one")

	// The line has a waiter of node 1, that of node 2, and two of node 1.
	d.now += second
	_, p := d.pass(1, slow)
	first, ok := p.Next()
	require.True(t, ok)
	require.Equal(t, int64(1), first.Node)
	p.Skip() // it stands for a caller that leaves
	at, ok := p.Next()
	require.True(t, ok)
	require.Equal(t, int64(2), at.Node)
	near, ask := p.SetAside()
	require.True(t, near)
	require.True(t, ask)

	at, ok = p.Next()
	require.True(t, ok)
	_, arrival, _ := own.Line()
	require.Equal(t, ledger.Place{Key: slow.Budget.Key, Arrival: arrival, Node: 1}, at)
	q := d.request(1, slow)
	require.True(t, p.Due(q, own))
	p.Served(q, q.Serve(own, slow.Budget.Key))
	require.True(t, q.Grant.OK)
	require.Equal(t, d.now+second/2, q.Grant.Handle.Start, "behind the start of the other node")
	later, next := p.End(true)
	require.Positive(t, later)
	require.Zero(t, next)
	require.Equal(t, byte(3), d.reload(t), "a node is asked")

	// The other node comes, and has the start before.
	q = d.request(2, slow)
	p = ledger.NewPass(q)
	_, _ = p.Next()
	p.Skip()
	_, ok = p.Next()
	require.True(t, ok)
	before := d.row.Clone()
	require.True(t, p.Due(q, other))
	p.Served(q, q.Serve(other, slow.Budget.Key))
	require.Equal(t, d.now, q.Grant.Handle.Start)

	// If it does not come, it is asked no more, and when it is silent the next waiter is that of the first node.
	d.row = *before
	for _, wait := range []int64{0, second / 5} {
		d.now += wait
		_, p = d.pass(1, slow)
		_, _ = p.Next()
		p.Skip()
		at, ok = p.Next()
		require.True(t, ok)
		require.Equal(t, wait > 0, at.Node == 1)
		if wait == 0 {
			_, ask = p.SetAside()
			require.True(t, ask, "it has spoken since")
		}
	}
	_, arrival, _ = last.Line()
	require.Equal(t, arrival, at.Arrival)
}
