package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/memstore"
)

// settle tells the store what the caller's start cost.
func (c *caller) settle(costs ...int) {
	c.Helper()
	require.NoError(c, c.store.Settle(c.Context(), c.k, c.g, costs))
}

func TestSettle(t *testing.T) {
	tests := []struct {
		name  string
		limit throttle.Limit
		cost  int           // told by the booking
		true  int           // told later
		want  time.Duration // of a start of 4 then
	}{
		{"window, less", throttle.PerSecond(10), 8, 6, 0},
		{"window, nothing", throttle.PerSecond(10), 10, 0, 0},
		{"window, the same", throttle.PerSecond(10), 7, 7, time.Second + time.Microsecond},
		{"window, more", throttle.PerSecond(10), 1, 7, time.Second + time.Microsecond},
		{"window, more than fits", throttle.PerSecond(10), 1, 1000, time.Second + time.Microsecond},
		{"fixed, less", throttle.FixedWindow(10, time.Second), 8, 6, 0},
		{"fixed, more", throttle.FixedWindow(10, time.Second), 1, 7, time.Second},
		{"pace, less", throttle.LeakyBucket(10, time.Second), 8, 6, 600 * ms},
		{"pace, more", throttle.LeakyBucket(10, time.Second), 2, 7, 700 * ms},
		{"pace, more than fits", throttle.LeakyBucket(10, time.Second), 2, 30, 3 * time.Second},
		{"bucket, less", throttle.TokenBucket(10, time.Second, 10), 8, 6, 0},
		{"bucket, more", throttle.TokenBucket(10, time.Second, 10), 1, 9, 300 * ms},
		{"bucket, more than fits", throttle.TokenBucket(10, time.Second, 10), 1, 1 << 40, 400 * ms},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				c := charge("late", test.limit)
				start := arrive(t, s, costing(c, test.cost))
				start.runs()
				start.settle(test.true)
				require.Equal(t, test.want, book(t, s, costing(c, 4)))
			})
		})
	}
}

// TestSettleTooLate changes nothing once the start does not count.
func TestSettleTooLate(t *testing.T) {
	tests := []struct {
		limit throttle.Limit
		after time.Duration // the start, of cost 10, no longer counts
	}{
		{throttle.PerSecond(10), time.Second + time.Microsecond},
		{throttle.FixedWindow(10, time.Second), time.Second},
		{throttle.LeakyBucket(10, time.Second), time.Second},
		{throttle.TokenBucket(10, time.Second, 10), time.Second},
	}
	for _, test := range tests {
		for _, cost := range []int{0, 1000} {
			t.Run(test.limit.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memstore.New()
					c := costing(charge("late", test.limit), 10)
					start := arrive(t, s, c)
					start.runs()
					time.Sleep(test.after - time.Microsecond)
					next := arrive(t, s, c)
					require.Equal(t, time.Microsecond, next.g.Wait)
					next.cancel()
					time.Sleep(time.Microsecond)
					start.settle(cost)
					require.Zero(t, book(t, s, c))
				})
			})
		}
	}
}

// TestSettleFrozen gives nothing back where that could be another's, and still
// books what is more.
func TestSettleFrozen(t *testing.T) {
	for _, test := range []struct{ cost, sum int }{{1, 6}, {5, 6}, {7, 8}} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			c := charge("changed", throttle.LeakyBucket(10, time.Second))
			start := arrive(t, s, costing(c, 5))
			c.Limit = throttle.LeakyBucket(5, time.Second)
			book(t, s, c)
			c.Limit = throttle.PerSecond(10)
			start.k.Charges[0].Limit = c.Limit
			start.settle(test.cost)
			st, err := s.Status(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, test.sum, st.Used+st.Waiting)
		})
	}
}

// TestSettleFrozenPace books what is more behind what is there.
func TestSettleFrozenPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := charge("changed", throttle.LeakyBucket(10, time.Second))
		start := arrive(t, s, costing(c, 5))
		c.Limit = throttle.LeakyBucket(5, time.Second)
		next := booking(c)
		next.MaxWait = 0
		g, err := s.Book(t.Context(), next)
		require.NoError(t, err)
		require.Equal(t, throttle.Grant{Wait: time.Second}, g, "5 units of the new pace")
		start.k.Charges[0].Limit = c.Limit
		start.settle(7)
		require.Equal(t, 1400*ms, book(t, s, c))
	})
}

// TestSettleTheMost closes a pace for as long as can be told.
func TestSettleTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := charge("one", throttle.LeakyBucket(1, time.Hour))
		start := arrive(t, s, c)
		start.settle(1 << 40)
		require.Equal(t, farthest.Wait, wait(t, s, c))
	})
}

// TestSettleMixed changes each budget by its own cost, and nothing in flight.
func TestSettleMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		calls, tokens, running := charge("calls", throttle.PerMinute(5)), charge("tokens", throttle.PerMinute(1000)), charge("running", throttle.Concurrency(3))
		start := arrive(t, s, calls, costing(tokens, 100), costing(running, 2))
		start.runs()
		start.settle(1, 1500, 3)
		st, err := s.Status(t.Context(), calls)
		require.NoError(t, err)
		require.Equal(t, throttle.Status{Limit: calls.Limit, Used: 1}, st)
		st, err = s.Status(t.Context(), tokens)
		require.NoError(t, err)
		require.Equal(t, throttle.Status{Limit: tokens.Limit, Used: 1500, Wait: time.Minute + time.Microsecond}, st)
		inFlight(t, s, running, 2, 0)
		start.release()
		inFlight(t, s, running, 0, 0)
	})
}

// TestNotBefore books no earlier start, and names nobody for that.
func TestNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := charge("later", throttle.PerSecond(1))
		k := booking(c)
		k.NotBefore = 300 * ms
		g, err := s.Book(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, throttle.Grant{OK: true, Wait: 300 * ms, Handle: g.Handle, Held: -1}, g)
		g, err = s.Book(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, throttle.Grant{OK: true, Wait: 1300*ms + time.Microsecond, Handle: g.Handle}, g)
		k.MaxWait = 299 * ms
		k.Charges[0] = charge("free", throttle.PerSecond(1))
		g, err = s.Book(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, throttle.Grant{Wait: 300 * ms, Held: -1}, g)
	})
}
