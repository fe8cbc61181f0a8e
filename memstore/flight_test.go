package memstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A caller is one request on its way.
type caller struct {
	*testing.T
	store *memstore.Store
	k     *throttle.Booking
	g     throttle.Grant
}

// arrive books for a new caller.
func arrive(t *testing.T, s *memstore.Store, charges ...throttle.Charge) *caller {
	t.Helper()
	c := &caller{T: t, store: s, k: booking(charges...)}
	c.book()
	return c
}

func (c *caller) book() {
	c.Helper()
	g, err := c.store.Book(c.Context(), c.k)
	require.NoError(c, err)
	c.g = g
}

// again books with what the caller has.
func (c *caller) again() {
	c.Helper()
	c.k.Instead = c.g.Handle
	c.book()
}

func (c *caller) release() { c.store.Release(c.k, c.g) }
func (c *caller) cancel()  { c.store.Cancel(c.k, c.g) }

// runs requires a start now.
func (c *caller) runs() {
	c.Helper()
	require.True(c, c.g.OK)
	require.Zero(c, c.g.Wait)
	require.NotZero(c, c.g.Handle.Start)
	require.Nil(c, c.g.Ready)
	require.Equal(c, -1, c.g.Held)
}

// inLine requires a place in the line of the charge held.
func (c *caller) inLine(held int) {
	c.Helper()
	require.False(c, c.g.OK)
	require.Zero(c, c.g.Wait)
	require.NotZero(c, c.g.Handle.Place)
	require.Equal(c, held, c.g.Held)
	require.False(c, c.called())
}

// called reports whether it is the caller's turn.
func (c *caller) called() bool {
	select {
	case <-c.g.Ready:
		return true
	default:
		return false
	}
}

// inFlight requires what runs, and what waits.
func inFlight(t *testing.T, s *memstore.Store, c throttle.Charge, used, waiting int) {
	t.Helper()
	st, err := s.Status(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, throttle.Status{Limit: c.Limit, Used: used, Waiting: waiting}, st)
}

func costing(c throttle.Charge, cost int) throttle.Charge {
	c.Cost = cost
	return c
}

func TestP1_InFlight(t *testing.T) {
	s := memstore.New()
	c := charge("pair", throttle.Concurrency(2))
	inFlight(t, s, c, 0, 0)
	first, second := arrive(t, s, c), arrive(t, s, c)
	first.runs()
	second.runs()
	inFlight(t, s, c, 2, 0)
	third := arrive(t, s, c)
	third.inLine(0)
	inFlight(t, s, c, 2, 1)
	first.release()
	require.True(t, third.called())
	inFlight(t, s, c, 1, 1)
	third.again()
	third.runs()
	inFlight(t, s, c, 2, 0)
	second.release()
	third.cancel()
	inFlight(t, s, c, 0, 0)
}

// TestInFlightRefusal has no place in line for who does not wait.
func TestInFlightRefusal(t *testing.T) {
	s := memstore.New()
	c, free := charge("one", throttle.Concurrency(1)), charge("free", throttle.Concurrency(1))
	arrive(t, s, c).runs()
	k := booking(free, c)
	k.MaxWait = 0
	g, err := s.Book(t.Context(), k)
	require.NoError(t, err)
	require.Equal(t, throttle.Grant{Held: 1}, g)
	inFlight(t, s, c, 1, 0)
	inFlight(t, s, free, 0, 0)
}

// TestP5_LineByArrival calls those in line in their order, as many as fit, and
// lets nobody pass who came later.
func TestP5_LineByArrival(t *testing.T) {
	s := memstore.New()
	c := charge("line", throttle.Concurrency(4))
	running := arrive(t, s, costing(c, 3))
	wide := arrive(t, s, costing(c, 4))
	wide.inLine(0)
	small := arrive(t, s, c)
	small.inLine(0) // it would fit, but came later
	last := arrive(t, s, costing(c, 3))
	running.release()
	require.True(t, wide.called())
	require.False(t, small.called())
	late := arrive(t, s, c)
	late.inLine(0) // the room is set aside
	wide.again()
	wide.runs()
	wide.release()
	require.True(t, small.called())
	require.True(t, last.called())
	require.False(t, late.called())
	last.again() // in any order
	last.runs()
	small.again()
	small.runs()
	inFlight(t, s, c, 4, 1)
}

// TestP7_LeavingTheLine frees what was set aside, and what stood in the way.
func TestP7_LeavingTheLine(t *testing.T) {
	s := memstore.New()
	c := charge("line", throttle.Concurrency(2))
	first, second := arrive(t, s, c), arrive(t, s, c)
	wide, small, third := arrive(t, s, costing(c, 2)), arrive(t, s, c), arrive(t, s, c)
	first.release()
	require.False(t, small.called())
	wide.cancel()
	require.True(t, small.called())
	require.False(t, third.called())
	small.cancel()
	require.True(t, third.called())
	third.again()
	third.runs()
	second.release()
	third.release()
	inFlight(t, s, c, 0, 0)
}

// TestInFlightReserve lets those pass who need not leave as much free.
func TestInFlightReserve(t *testing.T) {
	s := memstore.New()
	c := charge("shared", throttle.Concurrency(3))
	low := c
	low.Reserve = 1
	first, second := arrive(t, s, low), arrive(t, s, low)
	second.runs()
	waits := arrive(t, s, low)
	waits.inLine(0)
	third := arrive(t, s, c)
	third.runs()
	normal := arrive(t, s, c)
	normal.inLine(0)
	third.release()
	require.True(t, normal.called())
	normal.again()
	first.release()
	require.False(t, waits.called())
	normal.release()
	require.True(t, waits.called())
	waits.again()
	waits.runs()
}
