package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

var errLeft = errors.New("the caller left")

// An outcome is what a caller in the background got.
type outcome struct {
	grant store.Grant
	err   error
	after time.Duration // how long Book took
}

// bookAside books in the background. The outcome is there when the bubble is
// idle and the call has returned; nil until then.
func bookAside(ctx context.Context, s *redisstore.Store, k *store.Booking) **outcome {
	var got *outcome
	go func() {
		start := time.Now()
		g, err := s.Book(ctx, k)
		got = &outcome{g, err, time.Since(start)}
	}()
	synctest.Wait()
	return &got
}

// TestP7_CallerLeavesOnTheWay cancels the caller that started the call. It comes
// back at once, those behind it are served, and its place is given back.
func TestP7_CallerLeavesOnTheWay(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		one := charge("one", store.PerSecond(1))
		ctx, cancel := context.WithCancel(t.Context())
		k := booking(one)
		leader := bookAside(ctx, s, k)
		follower := bookAside(t.Context(), s, booking(one))

		cancel()
		synctest.Wait()
		require.ErrorIs(t, (*leader).err, context.Canceled)
		require.Zero(t, (*leader).after)
		k.Charges[0] = charge("another", store.PerHour(7)) // the caller's again
		require.Nil(t, *follower)

		tap.open()
		require.NoError(t, (*follower).err)
		require.Zero(t, (*follower).grant.Wait, "the place went back first")
		require.Len(t, tap.names(), 2)
		require.Equal(t, time.Second+time.Microsecond, book(t, s, one))
		synctest.Wait()
		require.Zero(t, s.Running())
	})
}

// TestP7_CallerLeavesTheQueue cancels callers that wait for the next call. They
// are not booked at all.
func TestP7_CallerLeavesTheQueue(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		one := charge("one", store.PerSecond(1))
		book := func(ctx context.Context) **outcome { return bookAside(ctx, s, booking(one)) }
		first := book(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		left := []**outcome{book(ctx), book(ctx)}
		stays := book(t.Context())
		left = append(left, book(ctx))

		cancel()
		synctest.Wait()
		for _, l := range left {
			require.ErrorIs(t, (*l).err, context.Canceled)
		}
		tap.open()
		require.Equal(t, time.Duration(0), (*first).grant.Wait)
		require.Equal(t, time.Second+time.Microsecond, (*stays).grant.Wait)
		require.Len(t, tap.names(), 2)
	})
}

// TestP7_AllLeave leaves nobody in the queue: no call is made for them.
func TestP7_AllLeave(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		one := charge("one", store.PerSecond(1))
		first := bookAside(t.Context(), s, booking(one))
		ctx, cancel := context.WithCancelCause(t.Context())
		left := bookAside(ctx, s, booking(one))
		cancel(errLeft)
		synctest.Wait()
		require.Equal(t, errLeft, (*left).err)
		tap.open()
		require.True(t, (*first).grant.OK)
		require.Equal(t, []string{"evalsha"}, tap.names())
		synctest.Wait()
		require.Zero(t, s.Running())
	})
}

// TestP7_SlowCancel tells a Redis that does not answer of a cancelled place: the
// caller goes on after 50 ms, and the place is free when Redis has heard.
func TestP7_SlowCancel(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		k := booking(charge("one", store.PerSecond(1)))
		got := bookAside(t.Context(), s, k)
		tap.letOne()

		start := time.Now()
		s.Cancel(k, (*got).grant)
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		close(tap.pass)
		require.Zero(t, book(t, s, k.Charges...))

		tap.names()
		s.Cancel(k, store.Grant{Wait: time.Second, Handle: store.Handle{Start: 1}, HeldBy: -1})
		require.Empty(t, tap.names(), "nothing was granted")
	})
}

// TestP12_WhoLeavesDoesNotWaitForRedisThatIsAway: a caller whose place cannot be
// given back soon, and that can know it, is not kept.
func TestP12_WhoLeavesDoesNotWaitForRedisThatIsAway(t *testing.T) {
	t.Parallel()
	one, other := charge("one", store.PerSecond(1)), inGroup("other", charge("other", store.PerSecond(1)))
	runBubble(t, "it fails", func(t *testing.T, server *redistest.Server) {
		s, h := saying(t, server.Client(t), nil)
		h.err.Store(nil)
		k := booking(one)
		g := ask(t, s, k)
		h.set(errAway)
		waits := bookAside(t.Context(), s, booking(other))
		synctest.Wait()

		start := time.Now()
		s.Cancel(k, g)
		require.Zero(t, time.Since(start))
		h.err.Store(nil)
		rest(500 * time.Millisecond)
		require.NoError(t, (*waits).err)
		require.Zero(t, book(t, s, one), "it was given back")
	})
	runBubble(t, "it does not answer", func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		k := booking(one)
		got := bookAside(t.Context(), s, k)
		tap.letOne()
		waits := bookAside(t.Context(), s, booking(other))

		for _, silent := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond} {
			time.Sleep(silent)
			start := time.Now()
			s.Cancel(k, (*got).grant)
			require.Equal(t, 50*time.Millisecond-silent, time.Since(start), "at most so long since it was asked")
		}
		tap.open()
		require.NoError(t, (*waits).err)
		require.Zero(t, book(t, s, one), "it was given back")
	})
}

// TestP5_SlowGroup holds back the answer of one group. Another is served.
func TestP5_SlowGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		slow := inGroup("slow", charge("slow", store.PerSecond(1)))
		fast := inGroup("fast", charge("fast", store.PerSecond(1)))
		s, tap := loaded(t, server.Client(t), func(cmd redis.Cmder) bool {
			return slices.Contains(cmd.Args(), any(redisstore.New(&redis.Client{}, redisstore.Options{}).Key(slow.Budget)))
		})
		held := bookAside(t.Context(), s, booking(slow))
		for i := range 3 {
			require.Equal(t, time.Duration(i)*(time.Second+time.Microsecond), book(t, s, fast))
		}
		require.Nil(t, *held)
		synctest.Wait()
		require.Equal(t, 1, s.Running())
		tap.open()
		require.True(t, (*held).grant.OK)
	})
}

// TestP2_Age is how long the answer of the shared call was on its way, for all that
// it served.
func TestP2_Age(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		wide := charge("wide", store.PerSecond(100))
		first := bookAside(t.Context(), s, booking(wide))
		time.Sleep(20 * time.Millisecond)
		second := bookAside(t.Context(), s, booking(wide))
		time.Sleep(10 * time.Millisecond)
		tap.letOne()
		time.Sleep(5 * time.Millisecond)
		tap.open()
		require.Equal(t, 30*time.Millisecond, (*first).grant.Age)
		require.Equal(t, 5*time.Millisecond, (*second).grant.Age)
	})
}

// TestP8_LeavesOnTheWay replaces a start and leaves before the answer comes. Both
// the old place and the new one are given back, each once.
func TestP8_LeavesOnTheWay(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		five := charge("five", store.PerSecond(5))
		var grants []**outcome
		for range 5 {
			grants = append(grants, bookAside(t.Context(), s, booking(five)))
		}
		for range 2 {
			tap.letOne()
		}
		ctx, cancel := context.WithCancel(t.Context())
		k := booking(five)
		k.Instead = (*grants[0]).grant.Handle
		got := bookAside(ctx, s, k)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, (*got).err, context.Canceled)
		tap.open()
		require.Zero(t, book(t, s, five))
		require.Equal(t, span, book(t, s, five))
	})
}

// TestP4_CallersShareCalls lets callers of one process come while a call is on
// its way, and counts the calls that serve them. All are served in their order.
func TestP4_CallersShareCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ callers, calls int }{{1, 1}, {64, 1}, {80, 1}, {81, 2}, {200, 3}} {
		runBubble(t, fmt.Sprint(c.callers), func(t *testing.T, server *redistest.Server) {
			s, tap := loaded(t, server.Client(t), isScript)
			paced := charge("paced", store.LeakyBucket(1, time.Second))
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
		a, b, c := charge("a", store.PerSecond(5)), charge("b", store.PerSecond(5)), charge("c", store.PerSecond(6))
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
			paced := charge("paced", store.LeakyBucket(1, time.Second))
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
		two := charge("two", store.PerSecond(2))
		first := bookAside(t.Context(), s, booking(charge("other", store.PerSecond(1))))
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
