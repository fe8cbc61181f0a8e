package redisstore_test

import (
	"context"
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
