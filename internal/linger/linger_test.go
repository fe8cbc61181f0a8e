package linger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/linger"
	"github.com/fleetthrottle/throttle/store"
)

const (
	horizon = 350 * time.Millisecond
	most    = 150 * time.Millisecond
)

// none is the lane of callers with the normal priority and without a share.
var none = linger.Lane{Class: 1}

// TestWait: a newcomer to a budget that was full by the last answer waits at least as long as that answer said. It must call at once if nobody may linger.
func TestWait(t *testing.T) {
	sec := time.Second
	thousand := store.PerSecond(1000)
	for _, c := range []struct {
		name    string
		limit   store.Limit
		told    time.Duration // what the last caller of the budget was told
		booking store.Booking
		want    time.Duration
	}{
		{"as long as the last caller", thousand, sec, store.Booking{MaxWait: -1}, sec},
		{"room", thousand, 0, store.Booking{MaxWait: -1}, 0},
		{"a lesser priority", thousand, sec, store.Booking{MaxWait: -1, Priority: store.PriorityLow}, sec},
		{"below all priorities", thousand, sec, store.Booking{MaxWait: -1, Priority: store.PriorityLow - 9}, sec},
		{"a higher priority goes first", thousand, sec, store.Booking{MaxWait: -1, Priority: store.PriorityHigh}, 0},
		{"a refusal is told at once", thousand, sec, store.Booking{MaxWait: sec}, 0},
		{"one that may wait as long", thousand, sec, store.Booking{MaxWait: 2 * sec}, sec},
		{"one that has a start", thousand, sec, store.Booking{MaxWait: -1, Instead: store.Handle{Start: 1}}, 0},
		{"one that was in line", thousand, sec, store.Booking{MaxWait: -1, Turn: new(int)}, 0},
		{"not before", thousand, sec, store.Booking{MaxWait: -1, NotBefore: 1}, 0},
		{"a small crowd", store.PerSecond(40), sec, store.Booking{MaxWait: -1}, sec},
		{"another would pass too many", store.PerSecond(20), sec, store.Booking{MaxWait: -1}, 0},
		{"another may take the last of a window", store.FixedWindow(1000, sec), sec, store.Booking{MaxWait: -1}, 0},
		{"an uneven flow", store.PerHour(1_000_000), sec, store.Booking{MaxWait: -1}, 0},
		{"a token bucket", store.TokenBucket(1000, sec, 1), sec, store.Booking{MaxWait: -1}, sec},
		{"a leaky bucket", store.LeakyBucket(1000, sec), sec, store.Booking{MaxWait: -1}, sec},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all linger.Budgets
			now := time.Now()
			all.Note([16]byte{}, none, now.Add(c.told), now, true)

			c.booking.Charges = []store.Charge{{Limit: c.limit, Cost: 1}}
			c.booking.Horizon = horizon
			wait, charge := all.Wait(&c.booking, most, now)
			require.Equal(t, c.want, wait)
			if wait > 0 {
				require.Same(t, &c.booking.Charges[0], charge)
			}

			c.booking.Horizon = 0
			wait, _ = all.Wait(&c.booking, most, now)
			require.Zero(t, wait, "it stands in no line")
			c.booking.Horizon = -1
			wait, _ = all.Wait(&c.booking, most, now)
			require.Zero(t, wait, "nor does this one")
		})
	}
}

// TestWaitOfSeveral: the budget with the longest wait decides, and Shadow charges do not count.
func TestWaitOfSeveral(t *testing.T) {
	var all linger.Budgets
	now := time.Now()
	b := store.Booking{MaxWait: -1, Horizon: horizon}
	for i := range 4 {
		key := [16]byte{byte(i)}
		b.Charges = append(b.Charges, store.Charge{Budget: store.Budget{Key: key}, Limit: store.PerSecond(1000), Cost: 1})
		all.Note(key, none, now.Add([]time.Duration{2, 3, 1, 9}[i]*time.Second), now, true)
	}

	b.Charges[3].Shadow = true
	wait, c := all.Wait(&b, most, now)
	require.Equal(t, 3*time.Second, wait)
	require.Same(t, &b.Charges[1], c)

	all.ForgetAll()
	wait, _ = all.Wait(&b, most, now)
	require.Zero(t, wait)
}

// TestWaitOfShares: a newcomer waits for the callers of its own lane and of higher priorities, and not for those of other shares.
func TestWaitOfShares(t *testing.T) {
	var all linger.Budgets
	now := time.Now()
	wait := func(share uint64, p store.Priority) time.Duration {
		b := store.Booking{MaxWait: -1, Horizon: horizon, Priority: p}
		b.Charges = []store.Charge{{Limit: store.PerSecond(1000), Cost: 1, Share: store.Share{ID: share}}}
		d, _ := all.Wait(&b, most, now)
		return d
	}

	note := func(share uint64, d time.Duration, isNewcomer bool) {
		all.Note([16]byte{}, linger.Lane{Class: 1, Share: share}, now.Add(d), now, isNewcomer)
	}
	note(1, time.Second, true)
	require.Equal(t, time.Second, wait(1, store.PriorityNormal))
	require.Zero(t, wait(2, store.PriorityNormal))
	require.Zero(t, wait(1, store.PriorityHigh))
	require.Equal(t, time.Second, wait(2, store.PriorityLow))

	note(1, time.Millisecond, false)
	require.Equal(t, time.Second, wait(1, store.PriorityNormal), "a newcomer stands behind all that wait")
	note(1, time.Millisecond, true)
	require.Equal(t, time.Millisecond, wait(1, store.PriorityNormal))

	all.NoteLast([16]byte{}, linger.Lane{Class: 1, Share: 2}, now.Add(time.Minute))
	require.Equal(t, time.Minute, wait(2, store.PriorityNormal))
	all.NoteLast([16]byte{1}, linger.Lane{Class: 1}, now.Add(time.Hour))
	require.Equal(t, time.Minute, wait(3, store.PriorityLow), "a budget that was not full before")
}

// TestWaitOfACrowd: of many that come at once few linger, until the next answer.
func TestWaitOfACrowd(t *testing.T) {
	var all linger.Budgets
	now := time.Now()
	b := store.Booking{MaxWait: -1, Horizon: horizon, Charges: []store.Charge{{Limit: store.PerSecond(100), Cost: 1}}}
	for range 2 {
		all.Note([16]byte{}, none, now.Add(time.Second), now, true)
		for i := range 9 {
			wait, _ := all.Wait(&b, most, now)
			require.Equal(t, i < 6, wait > 0, "number %d: 100/s starts 7 in 75 ms", i)
		}
	}

	all.Forget([16]byte{})
	wait, _ := all.Wait(&b, most, now)
	require.Zero(t, wait)

	// A crowd of many starts that are a year apart each would take longer than any time.Duration.
	b.Charges[0].Limit = store.LeakyBucket(1, 366*24*time.Hour)
	all.Note([16]byte{}, none, now.Add(time.Second), now, true)
	for i := range 2000 {
		wait, _ := all.Wait(&b, most, now)
		require.Zero(t, wait, "number %d", i)
	}
}

// TestBudgetsAreForgotten when they have room again, so that the memory has a bound.
func TestBudgetsAreForgotten(t *testing.T) {
	var all linger.Budgets
	now := time.Now()
	for i := range 640 {
		all.Note([16]byte{byte(i), byte(i >> 8)}, none, now.Add(1), now, true)
		now = now.Add(time.Millisecond)
	}
	require.LessOrEqual(t, all.Len(), 128)
}
