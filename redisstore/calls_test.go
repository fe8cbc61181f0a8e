package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP4_CallersShareCalls lets callers of one process come while a call is on
// its way, and counts the calls that serve them. All are served in their order.
func TestP4_CallersShareCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ callers, calls int }{{1, 1}, {64, 1}, {80, 1}, {81, 2}, {200, 3}} {
		runBubble(t, fmt.Sprint(c.callers), func(t *testing.T, server *redistest.Server) {
			s, tap := loaded(t, server.Client(t), isScript)
			paced := charge("paced", throttle.LeakyBucket(1, time.Second))
			var all []**outcome // the first is on its way, the others queue behind it
			for range 1 + c.callers {
				all = append(all, bookAside(t.Context(), s, booking(paced)))
			}
			require.Equal(t, []string{"evalsha"}, tap.names())
			tap.open()
			require.Len(t, tap.names(), c.calls)
			for i, got := range all {
				require.NoError(t, (*got).err)
				require.Equal(t, time.Duration(i)*time.Second, (*got).grant.Wait, "caller %d", i)
			}
			synctest.Wait()
			require.Zero(t, s.Running())
		})
	}
}

// TestP4_SharedBudgetsTravelOnce looks at the arguments: callers of the same
// budgets send their keys once, and a rule that several budgets have.
func TestP4_SharedBudgetsTravelOnce(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		a, b, c := charge("a", throttle.PerSecond(5)), charge("b", throttle.PerSecond(5)), charge("c", throttle.PerSecond(6))
		bookAside(t.Context(), s, booking(a))
		for range 10 {
			bookAside(t.Context(), s, booking(a, b, c))
		}
		require.Equal(t, []string{"evalsha"}, tap.names())
		tap.open()
		require.Len(t, tap.cmds, 1)
		args := tap.cmds[0].Args()
		require.Equal(t, 4, args[2], "keys: the record of the last call, and three budgets")
		told := args[4+args[2].(int)].([]byte)
		rules := math.Float64frombits(binary.LittleEndian.Uint64(told[16:]))
		require.InDelta(t, 2, rules, 0)
	})
}

// TestP4_PatienceNeedNotAgree lets callers of different patience share a call.
// Each is booked, or refused, by its own, as if it had been alone.
func TestP4_PatienceNeedNotAgree(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]func(i int) time.Duration{
		"growing":   func(i int) time.Duration { return 4500*time.Millisecond + time.Duration(i)*500*time.Millisecond },
		"shrinking": func(i int) time.Duration { return 8500*time.Millisecond - time.Duration(i)*500*time.Millisecond },
	} {
		runBubble(t, name, func(t *testing.T, server *redistest.Server) {
			s, tap := loaded(t, server.Client(t), isScript)
			paced := charge("paced", throttle.LeakyBucket(1, time.Second))
			var got []**outcome
			for i := range 9 {
				k := bookingFor(patience(i), paced)
				got = append(got, bookAside(t.Context(), s, k))
			}
			tap.open()
			next := time.Duration(0)
			for i, o := range got {
				require.NoError(t, (*o).err)
				require.Equal(t, next <= patience(i), (*o).grant.OK, "caller %d", i)
				if (*o).grant.OK {
					require.Equal(t, next, (*o).grant.Wait, "caller %d", i)
					next += time.Second
				}
			}
			require.LessOrEqual(t, len(tap.names()), 3)
		})
	}
}

// TestP2_EachHasItsOwnSpread: callers that share a call do not share the room
// that one of them needs behind its start.
func TestP2_EachHasItsOwnSpread(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		two := charge("two", throttle.PerSecond(2))
		first := bookAside(t.Context(), s, booking(charge("other", throttle.PerSecond(1))))
		narrow := bookAside(t.Context(), s, booking(two)) // waits for the next call, as does
		k := booking(two)
		k.Spread = 100 * time.Millisecond
		wide := bookAside(t.Context(), s, k)
		tap.open()
		for _, got := range []**outcome{first, narrow, wide} {
			require.NoError(t, (*got).err)
			require.Zero(t, (*got).grant.Wait)
		}
		require.Len(t, tap.names(), 2)
		require.Equal(t, k.Spread+span, book(t, s, two))
	})
}
