package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP4_OneCall makes every kind of booking alone, and counts.
func TestP4_OneCall(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), nil)
		once := []string{"evalsha"}

		hourly := charge("hourly", throttle.PerHour(1))
		require.Equal(t, time.Duration(0), book(t, s, hourly))
		require.Equal(t, once, tap.names(), "a grant at once")

		require.Equal(t, time.Hour+time.Microsecond, book(t, s, hourly))
		require.Equal(t, once, tap.names(), "a grant in an hour")

		day := charge("day", throttle.CalendarWindow(1, throttle.Day, time.UTC))
		many := []throttle.Charge{hourly, day, charge("window", throttle.FixedWindow(1, time.Second)),
			charge("paced", throttle.LeakyBucket(1, time.Second)), charge("large", throttle.PerHour(1e6))}
		require.Equal(t, 2*(time.Hour+time.Microsecond), book(t, s, many...))
		require.Equal(t, once, tap.names(), "budgets of every kind")

		for range 2 {
			book(t, s, day)
		}
		require.Equal(t, []string{"evalsha", "evalsha"}, tap.names(), "a queue of three days")

		k := booking(hourly)
		k.MaxWait = 0
		g, err := s.Book(t.Context(), k)
		require.NoError(t, err)
		require.False(t, g.OK)
		require.Equal(t, once, tap.names(), "a refusal")

		k = booking(hourly)
		g, err = s.Book(t.Context(), k)
		require.NoError(t, err)
		k.Instead = g.Handle
		again, err := s.Book(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, g.Wait, again.Wait)
		require.Equal(t, []string{"evalsha", "evalsha"}, tap.names(), "a booking instead of another")

		s.Cancel(k, again)
		require.Equal(t, once, tap.names(), "a cancel")
		require.NoError(t, s.Pause(t.Context(), hourly, time.Second))
		require.Equal(t, once, tap.names(), "a pause")
		_, err = s.Status(t.Context(), hourly)
		require.NoError(t, err)
		require.Equal(t, once, tap.names(), "a status")
	})
}

// TestP4_CallersShareCalls lets callers of one process come while a call is on
// its way, and counts the calls that serve them. All are served in their order.
func TestP4_CallersShareCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, c := range []struct{ callers, calls int }{{1, 1}, {64, 1}, {80, 1}, {81, 2}, {200, 3}} {
		t.Run(fmt.Sprint(c.callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, tap := loaded(t, server.Client(t), isScript)
				paced := charge("paced", throttle.LeakyBucket(1, time.Second))
				var all []**outcome // the first is on its way, the others queue behind it
				for range 1 + c.callers {
					all = append(all, bookAside(t.Context(), s, booking(paced)))
				}
				require.Equal(t, []string{"evalsha"}, tap.names())
				close(tap.pass)
				synctest.Wait()
				require.Len(t, tap.names(), c.calls)
				for i, got := range all {
					require.NoError(t, (*got).err)
					require.Equal(t, time.Duration(i)*time.Second, (*got).grant.Wait, "caller %d", i)
				}
				synctest.Wait()
				require.Zero(t, s.Running())
			})
		})
	}
}

// TestP4_SharedBudgetsTravelOnce looks at the arguments: callers of the same
// budgets send their keys and rules once.
func TestP4_SharedBudgetsTravelOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), isScript)
		a, b := charge("a", throttle.PerSecond(5)), charge("b", throttle.PerSecond(5))
		bookAside(t.Context(), s, booking(a))
		for range 10 {
			bookAside(t.Context(), s, booking(a, b))
		}
		require.Equal(t, []string{"evalsha"}, tap.names())
		close(tap.pass)
		synctest.Wait()
		require.Len(t, tap.cmds, 1)
		args := tap.cmds[0].Args()
		require.Equal(t, 3, args[2], "keys: the record of the last call, and two budgets")
		told := args[4+args[2].(int)].([]byte)
		rules := math.Float64frombits(binary.LittleEndian.Uint64(told[16:]))
		require.InDelta(t, 2, rules, 0)
	})
}
