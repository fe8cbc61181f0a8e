package memstore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A caller is one request on its way.
type caller struct {
	*testing.T
	store *memstore.Store
	k     *store.Booking
	g     store.Grant
}

// arrive books for a new caller.
func arrive(t *testing.T, s *memstore.Store, charges ...store.Charge) *caller {
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
	require.Equal(c, -1, c.g.HeldBy)
}

// inLine requires a place in the line of the charge held.
func (c *caller) inLine(held int) {
	c.Helper()
	require.False(c, c.g.OK)
	require.Zero(c, c.g.Wait)
	require.NotZero(c, c.g.Handle.Place)
	require.Equal(c, held, c.g.HeldBy)
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

// inFlight requires what runs, and how many callers of cost 1 wait.
func inFlight(t *testing.T, s *memstore.Store, c store.Charge, used, waiting int) {
	t.Helper()
	st := status(t, s, c)
	require.Equal(t, store.Status{Limit: c.Limit, Used: used, Waiting: waiting, Callers: waiting}, st)
}

func costing(c store.Charge, cost int) store.Charge {
	c.Cost = cost
	return c
}

func TestP1_InFlight(t *testing.T) {
	s := memstore.New()
	c := charge("pair", store.Concurrency(2))
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

// TestP10_InFlightIsForgotten when nothing runs and nobody waits, and not before.
func TestP10_InFlightIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c, other := charge("long", store.Concurrency(1)), charge("other", store.PerSecond(1))
		other.Budget.Key[0] = c.Budget.Key[0] // memstore forgets only what shares a shard
		running := arrive(t, s, c)
		for range 5 {
			time.Sleep(time.Hour)
			book(t, s, other)
			inFlight(t, s, c, 1, 0)
		}
		waits := arrive(t, s, c)
		running.release()
		require.True(t, waits.called())
		time.Sleep(time.Hour)
		book(t, s, other)
		inFlight(t, s, c, 0, 1)
		waits.cancel()
		time.Sleep(time.Hour)
		book(t, s, other)
		kept, due := s.Rows()
		require.Equal(t, 1, kept)
		require.Equal(t, 1, due)
	})
}

// TestP1_InFlightCrowd has many callers on two budgets. Never more run than may,
// and all are served.
func TestP1_InFlightCrowd(t *testing.T) {
	const callers, each = 32, 50
	s := memstore.New()
	limits := []store.Charge{charge("wide", store.Concurrency(5)), charge("narrow", store.Concurrency(2))}
	var running [2]atomic.Int64
	var tooMany atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		charges := limits[:1+i%2]
		wg.Go(func() {
			for j := range each {
				k := booking(charges...)
				g, err := s.Book(t.Context(), k)
				for ; err == nil && !g.OK; g, err = s.Book(t.Context(), k) {
					if j%7 == 3 {
						break // it gives up
					}
					<-g.Ready
					k.Instead = g.Handle
				}
				if !g.OK {
					s.Cancel(k, g)
					continue
				}
				for n, c := range charges {
					if running[n].Add(1) > int64(c.Limit.N()) {
						tooMany.Add(1)
					}
				}
				for n := range charges {
					running[n].Add(-1)
				}
				s.Release(k, g)
			}
		})
	}
	wg.Wait()
	require.Zero(t, tooMany.Load())
	for _, c := range limits {
		inFlight(t, s, c, 0, 0)
	}
}
