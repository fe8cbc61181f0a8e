package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
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
// idle and the call has returned. It is nil until then.
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

// TestP7_LeavesTheQueueWithAStart comes with a start to give back, and leaves the
// queue before the call. Nobody gave the start back then.
func TestP7_LeavesTheQueueWithAStart(t *testing.T) {
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		k := booking(charge("one", store.PerHour(1)))
		g := ask(t, s, k)
		away := &says{}
		away.set(errAway)
		c.AddHook(away)
		other := bookAside(t.Context(), s, booking(charge("other", store.PerSecond(1))))
		ctx, cancel := context.WithCancel(t.Context())
		k.Instead = g.Handle
		left := bookAside(ctx, s, k)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, (*left).err, context.Canceled)

		away.err.Store(nil)
		rest(time.Second)
		require.True(t, (*other).grant.OK)
		require.Zero(t, book(t, s, k.Charges...))
	})
}

// A scene is one call for three callers: one that will leave, one whose key holds
// something else, and one that stays. The call fails for that key, so each gets a
// call of its own, but Redis is away by then.
type scene struct {
	away               *says
	leave, letGo       context.CancelFunc // of the first and the last caller
	leaves, bad, stays **outcome
}

// onScene runs a test when the three wait, each for its own call.
func onScene(t *testing.T, test func(t *testing.T, s *redisstore.Store, x *scene)) {
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		bad, good := charge("bad", store.PerHour(1)), charge("good", store.PerHour(2))
		require.NoError(t, c.LPush(t.Context(), s.Key(bad.Budget), "x").Err())
		x := &scene{away: &says{}}
		x.away.set(errAway)
		c.AddHook(x.away)
		var seen atomic.Bool
		c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			if redis.HasErrorPrefix(err, "WRONGTYPE") && seen.CompareAndSwap(false, true) {
				x.away.set(errAway)
			}
			return err
		}))
		first := bookAside(t.Context(), s, booking(charge("first", store.PerSecond(1))))
		going, leave := context.WithCancel(t.Context())
		staying, letGo := context.WithCancel(t.Context())
		x.leave, x.letGo = leave, letGo
		x.leaves = bookAside(going, s, booking(good))
		x.bad = bookAside(t.Context(), s, booking(bad))
		x.stays = bookAside(staying, s, booking(good))
		x.away.err.Store(nil)
		rest(10 * time.Millisecond)
		require.True(t, (*first).grant.OK)
		require.True(t, seen.Load())
		require.Nil(t, *x.bad)
		test(t, s, x)
	})
}

// TestP12_SinglyServesAll lets the first of three leave while each of them waits
// for a call of its own. The queue stopped then, and the others hung.
func TestP12_SinglyServesAll(t *testing.T) {
	onScene(t, func(t *testing.T, s *redisstore.Store, x *scene) {
		x.leave()
		time.Sleep(time.Second)
		x.away.err.Store(nil)
		rest(time.Second)
		require.ErrorIs(t, (*x.leaves).err, context.Canceled)
		require.ErrorContains(t, (*x.bad).err, "WRONGTYPE")
		require.NoError(t, (*x.stays).err)
		require.Zero(t, (*x.stays).grant.Wait)
		require.Zero(t, s.Running())
	})
}

// TestP12_SinglyMayLeave lets the last of the three leave, too, after another
// caller came. The queue had forgotten it by then, and leaving panicked.
func TestP12_SinglyMayLeave(t *testing.T) {
	onScene(t, func(t *testing.T, s *redisstore.Store, x *scene) {
		x.leave()
		time.Sleep(time.Second)
		x.away.err.Store(nil)
		require.Zero(t, book(t, s, charge("next", store.PerSecond(1))))
		x.letGo()
		synctest.Wait()
		require.ErrorContains(t, (*x.bad).err, "WRONGTYPE")
		require.NoError(t, (*x.stays).err)
		require.Zero(t, (*x.stays).grant.Wait)
		time.Sleep(time.Second)
		require.Zero(t, s.Running())
	})
}

// TestP12_ThoseWhoLeftAreForgotten lets callers come and go while Redis is away
// and one patient caller waits. All stayed in the queue.
func TestP12_ThoseWhoLeftAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		one := charge("one", store.PerHour(10000))
		patient := bookAside(t.Context(), s, booking(one))
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			for range 300 {
				go s.Book(ctx, booking(one))
			}
			synctest.Wait()
			require.GreaterOrEqual(t, s.Queued(), 300)
			time.Sleep(time.Second)
			cancel()
			require.LessOrEqual(t, s.Queued(), 100, "so few are not worth the sweeping")
		}
		away.err.Store(nil)
		rest(time.Second)
		require.True(t, (*patient).grant.OK)
		require.Zero(t, s.Queued())
	})
}

// TestP5_PatienceOfANeighbour queues three callers of growing patience, the first
// of which has too little. The second shared its refusal, and asked again behind
// the third.
func TestP5_PatienceOfANeighbour(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		const window = 900 * time.Millisecond
		c := charge("c", store.SlidingWindow(1, window))
		got := []**outcome{bookAside(t.Context(), s, booking(c))}
		for _, wait := range []time.Duration{800 * time.Millisecond, 1200 * time.Millisecond, -1} {
			k := bookingFor(wait, c)
			got = append(got, bookAside(t.Context(), s, k))
		}
		tap.open()
		for i, want := range []store.Grant{
			{OK: true}, {Wait: window + time.Microsecond}, {OK: true, Wait: window + time.Microsecond},
			{OK: true, Wait: 2 * (window + time.Microsecond)},
		} {
			require.NoError(t, (*got[i]).err)
			require.Equal(t, want.OK, (*got[i]).grant.OK, "%d", i)
			require.Equal(t, want.Wait, (*got[i]).grant.Wait, "%d", i)
		}
	})
}

// far runs a test with a store that is a millisecond away from Redis, and counts
// its calls.
func far(t *testing.T, test func(t *testing.T, s *redisstore.Store, calls *atomic.Int64)) {
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		var calls atomic.Int64
		c.AddHook(middle(func(_ redis.Cmder, next func() error) error {
			calls.Add(1)
			time.Sleep(time.Millisecond)
			return next()
		}))
		test(t, s, &calls)
	})
}

// TestP5_NodeSeatGoesRound lets four callers fight for the only seat of a node,
// each of which needs a budget of the fleet, too. They took it from each other
// while they asked Redis, and nobody got through.
func TestP5_NodeSeatGoesRound(t *testing.T) {
	far(t, func(t *testing.T, s *redisstore.Store, _ *atomic.Int64) {
		seat, wide := own(charge("seat", store.Concurrency(1))), charge("wide", store.PerSecond(100000))
		ctx := forAtMost(t, time.Second)
		var done atomic.Int64
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for k := booking(seat, wide); ctx.Err() == nil; {
					g, err := s.Book(ctx, k)
					if err != nil {
						return
					}
					k.Instead = store.Handle{}
					if g.OK && g.Wait == 0 {
						done.Add(1)
						time.Sleep(time.Millisecond)
						s.Release(k, g)
						continue
					}
					if g.OK {
						time.Sleep(g.Wait)
					} else {
						select {
						case <-g.Ready:
						case <-ctx.Done():
						}
					}
					k.Instead = g.Handle
				}
			})
		}
		callers.Wait()
		require.Equal(t, int64(500), done.Load(), "a millisecond to ask, and one to fly")
	})
}

// TestP6_NodeTakesNoFleetSeat books a seat of the fleet with a start of the node
// that many want. When the node's start had gone to another, the fleet's seat
// stayed taken.
func TestP6_NodeTakesNoFleetSeat(t *testing.T) {
	far(t, func(t *testing.T, s *redisstore.Store, _ *atomic.Int64) {
		seats := charge("seats", store.Concurrency(50))
		node := own(charge("node", store.SlidingWindow(1, 2*time.Millisecond)))
		var waited atomic.Int64
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 50 {
					k := booking(seats, node)
					g, err := s.Book(t.Context(), k)
					if err != nil || !g.OK {
						t.Errorf("refused: %v", err)
						return
					}
					if g.Wait > 0 {
						waited.Add(1)
						s.Cancel(k, g)
					} else {
						s.Release(k, g)
					}
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Second)
		require.Positive(t, waited.Load())
		require.Zero(t, booked(t, s, seats))
	})
}

// TestP4_NodeAndFleetInFewCalls lets 64 callers want one start of the node each.
// Each gets the next one, and nobody asks Redis twice.
func TestP4_NodeAndFleetInFewCalls(t *testing.T) {
	far(t, func(t *testing.T, s *redisstore.Store, calls *atomic.Int64) {
		const apart = 10 * time.Millisecond
		all, node := charge("all", store.PerSecond(100000)), own(charge("node", store.SlidingWindow(1, apart)))
		var got []**outcome
		for range 64 {
			got = append(got, bookAside(t.Context(), s, booking(all, node)))
		}
		rest(time.Second)
		for i, o := range got {
			require.True(t, (*o).grant.OK)
			require.Equal(t, time.Duration(i)*(apart+time.Microsecond), (*o).grant.Wait)
		}
		require.Equal(t, int64(2), calls.Load(), "the first, and all others together")
	})
}

// TestP12_ServerDies kills the server while callers wait for it. They are served
// by its empty successor, each by its own turn, without being told of it.
func TestP12_ServerDies(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := redisstore.New(server.Client(t), redisstore.Options{})
	ten := charge("ten", store.SlidingWindow(10, time.Hour))
	require.Zero(t, book(t, s, ten))

	server.Kill()
	const callers = 20
	grants := make(chan outcome)
	for range callers {
		go func() {
			g, err := s.Book(t.Context(), booking(ten))
			grants <- outcome{grant: g, err: err}
		}()
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Book(short, booking(ten))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	server.Restart()
	atOnce := 0
	for range callers {
		got := <-grants
		require.NoError(t, got.err)
		require.True(t, got.grant.OK)
		if got.grant.Wait == 0 {
			atOnce++
		}
	}
	// A call whose answer was lost may have taken places that nobody uses.
	require.LessOrEqual(t, atOnce, 10)
}

// TestP8_NotAgainWhenTheRecordIsGone: the only one who wanted to know what became
// of a call has left, and nobody came for a minute. Then Redis does not know any
// more that the call was made, so it is not made again.
func TestP8_NotAgainWhenTheRecordIsGone(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		lose := deafen(client)
		hourly := charge("hourly", store.PerHour(10))
		k := booking(hourly)
		g := ask(t, s, k)

		lose.Store(1 << 40)
		ctx := forAtMost(t, 100*time.Millisecond)
		require.ErrorIs(t, s.Settle(ctx, k, g, []int{3}), context.DeadlineExceeded)
		rest(time.Minute)
		require.Zero(t, s.Running(), "nobody asks any more")
		records, err := client.Keys(t.Context(), "*calls:*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, records)
		require.NoError(t, client.Del(t.Context(), records...).Err()) // as their expiry would
		lose.Store(0)

		require.Zero(t, book(t, s, hourly))
		require.Equal(t, 4, status(t, s, hourly).Used)
	})
}

// TestP8_AgainAfterTheRecordIsGone: the reply to a call is lost, and it is repeated when Redis has no record of it any more. The start is charged
// twice, one of the two is of no caller, and no more than the limit start.
func TestP8_AgainAfterTheRecordIsGone(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		var lost bool
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			if lost || err != nil {
				return err
			}

			lost = true
			records, err := client.Keys(t.Context(), "*calls:*").Result()
			require.NoError(t, err)
			require.NotEmpty(t, records)
			require.NoError(t, client.Del(t.Context(), records...).Err()) // as their expiry would, after a minute without Redis
			return failing(cmd, errAway)
		}))

		hourly := charge("hourly", store.PerHour(10))
		require.Zero(t, book(t, s, hourly))
		require.Equal(t, 2, status(t, s, hourly).Used)
		startNow(t, s, 8, hourly)
		require.Positive(t, book(t, s, hourly))
	})
}

// TestP8_WhatNobodyHeardOfIsGivenBack: the only one who wanted a start has left, and
// nobody knows whether it was booked. The next one finds out.
func TestP8_WhatNobodyHeardOfIsGivenBack(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		lose := deafen(client)
		hourly := charge("hourly", store.PerHour(10))
		lose.Store(1 << 40)
		ctx := forAtMost(t, 100*time.Millisecond)
		_, err := s.Book(ctx, booking(hourly))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		rest(time.Second)
		require.Zero(t, s.Running(), "nobody asks any more")
		lose.Store(0)

		require.Zero(t, book(t, s, hourly))
		rest(time.Second)
		require.Equal(t, 1, status(t, s, hourly).Used)
	})
}

// TestP12_WhoLeavesTakesNobodyAlong: while a question is on its way somebody asks the
// next one and leaves. Who comes then is not told that somebody's context ended.
func TestP12_WhoLeavesTakesNobodyAlong(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		var slow atomic.Bool
		s, tap := loaded(t, server.Client(t), func(cmd redis.Cmder) bool { return slow.Load() && isScript(cmd) })
		one := charge("one", store.PerSecond(1))
		book(t, s, one)
		s.Disconnect() // so it asks
		k := booking(one)
		g := ask(t, s, k)
		confirm := func(ctx context.Context) <-chan error {
			answer := make(chan error, 1)
			go func() {
				w := s.Watch(k, g, make(chan struct{}, 1))
				defer w.Stop()
				_, err := w.Confirm(ctx, -1)
				answer <- err
			}()
			synctest.Wait()
			return answer
		}
		slow.Store(true)
		first := confirm(t.Context())
		ctx, leave := context.WithCancel(t.Context())
		left := confirm(ctx)
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		stays := confirm(t.Context())
		close(tap.pass)
		require.NoError(t, <-first)
		require.NoError(t, <-stays)
	})
}
