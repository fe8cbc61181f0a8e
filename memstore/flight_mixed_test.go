package memstore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP6_InFlightAndWindow takes neither where one has no room.
func TestP6_InFlightAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		window, pair := charge("window", throttle.PerSecond(1)), charge("pair", throttle.Concurrency(2))
		both := arrive(t, s, window, pair)
		both.runs()

		held := arrive(t, s, window, pair)
		require.True(t, held.g.OK, "the window makes it wait")
		require.Equal(t, time.Second+time.Microsecond, held.g.Wait)
		held.release() // it has nothing yet
		inFlight(t, s, pair, 1, 0)
		other := arrive(t, s, pair)
		other.runs() // P5: what waits for the window holds nothing

		time.Sleep(held.g.Wait)
		held.again()
		held.inLine(1)
		arrive(t, s, window).runs() // nothing of the window was taken
		other.release()
		require.True(t, held.called())
		held.again()
		require.Equal(t, time.Second+time.Microsecond, held.g.Wait)
		inFlight(t, s, pair, 1, 0)
		arrive(t, s, pair).runs() // what was set aside is free
		time.Sleep(held.g.Wait)
		both.release()
		held.again()
		held.runs()
		held.release()
		inFlight(t, s, pair, 1, 0)
	})
}

// TestP6_TwoInFlight takes both or none, and goes from one line to the other
// without losing its place.
func TestP6_TwoInFlight(t *testing.T) {
	s := memstore.New()
	a, b := charge("a", throttle.Concurrency(1)), charge("b", throttle.Concurrency(1))
	inA, inB := arrive(t, s, a), arrive(t, s, b)
	both := arrive(t, s, a, b)
	both.inLine(0)
	later := arrive(t, s, b)
	later.inLine(0)
	arrival := both.g.Handle.Place

	inA.release()
	require.True(t, both.called())
	both.again()
	both.inLine(1)
	require.Equal(t, arrival, both.g.Handle.Place)
	inFlight(t, s, a, 0, 0) // it keeps nobody out of a
	require.False(t, later.called())

	inB.release()
	require.True(t, both.called())
	require.False(t, later.called())
	both.again()
	both.runs()
	inFlight(t, s, a, 1, 0)
	inFlight(t, s, b, 1, 1)
	both.release()
	require.True(t, later.called())
	inFlight(t, s, a, 0, 0)
}

// TestP5_CalledIsCalled gives the room to whom it was promised, although another,
// who came earlier, joined the line meanwhile.
func TestP5_CalledIsCalled(t *testing.T) {
	s := memstore.New()
	a, b := charge("a", throttle.Concurrency(1)), charge("b", throttle.Concurrency(2))
	inA, inB := arrive(t, s, a), arrive(t, s, b)
	arrive(t, s, b).runs()
	both := arrive(t, s, a, costing(b, 2))
	second := arrive(t, s, b)
	second.inLine(0)
	inB.release()
	require.True(t, second.called())
	inA.release()
	both.again()
	both.inLine(1)
	second.again()
	second.runs()
}

// TestInFlightShadow counts, and neither holds nor refuses.
func TestInFlightShadow(t *testing.T) {
	s := memstore.New()
	c := charge("shadow", throttle.Concurrency(1))
	c.Shadow = true
	first, second := arrive(t, s, c), arrive(t, s, c)
	second.runs()
	require.Zero(t, second.g.Over)
	inFlight(t, s, c, 2, 0)
	c.Shadow = false
	arrive(t, s, c).inLine(0)
	first.release()
	inFlight(t, s, c, 1, 1)
}

// TestP11_InFlightPause makes all wait that are not yet running.
func TestP11_InFlightPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := charge("closed", throttle.Concurrency(1))
		running := arrive(t, s, c)
		require.NoError(t, s.Pause(t.Context(), c, time.Second))
		waits := arrive(t, s, c)
		require.True(t, waits.g.OK)
		require.True(t, waits.g.Paused)
		require.Equal(t, time.Second, waits.g.Wait)
		waits.cancel()
		time.Sleep(time.Second)
		waits = arrive(t, s, c)
		waits.inLine(0)
		running.release()
		require.True(t, waits.called())
	})
}

// TestP10_InFlightIsForgotten when nothing runs and nobody waits, and not before.
func TestP10_InFlightIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, other := charge("long", throttle.Concurrency(1)), charge("other", throttle.PerSecond(1))
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
	limits := []throttle.Charge{charge("wide", throttle.Concurrency(5)), charge("narrow", throttle.Concurrency(2))}
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
