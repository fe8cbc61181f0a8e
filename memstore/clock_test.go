package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP9_SuspendedMachine wakes up a machine whose monotonic clock stood still:
// calendar windows are right again.
func TestP9_SuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		day := charge("day", throttle.CalendarWindow(1, throttle.Day, time.UTC))
		require.Zero(t, book(t, s, day))
		require.Equal(t, 24*time.Hour, book(t, s, day))
		s.Gain(30 * time.Hour)
		time.Sleep(time.Hour)
		require.Equal(t, 17*time.Hour, book(t, s, day), "it is 7 o'clock of the second day")
		s.Gain(54 * time.Hour)
		require.Equal(t, 17*time.Hour, book(t, s, day), "and of the third")
	})
}

// TestP9_SmallGains are not followed: they are differences between two readings.
func TestP9_SmallGains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one := charge("one", throttle.PerHour(1))
		require.Zero(t, book(t, s, one))
		s.Gain(100 * time.Millisecond)
		require.Equal(t, time.Hour+time.Microsecond, wait(t, s, one))
		s.Gain(100*time.Millisecond + time.Microsecond)
		require.Equal(t, time.Hour-100*time.Millisecond, wait(t, s, one))
	})
}

// TestP9_NeverBack lets the wall clock lose what it gained, and more.
func TestP9_NeverBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one := charge("one", throttle.PerHour(1))
		require.Zero(t, book(t, s, one))
		s.Gain(time.Minute)
		for _, gain := range []time.Duration{0, -time.Minute, -time.Hour} {
			s.Gain(gain)
			require.Equal(t, 59*time.Minute+time.Microsecond, wait(t, s, one))
		}
		time.Sleep(time.Minute) // the two clocks are compared again
		require.Equal(t, 58*time.Minute+time.Microsecond, wait(t, s, one))
	})
}

// wait returns how long a request would wait.
func wait(t *testing.T, s *memstore.Store, c throttle.Charge) time.Duration {
	t.Helper()
	st, err := s.Status(t.Context(), c)
	require.NoError(t, err)
	return st.Wait
}
