package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_ServerDies kills the server while callers wait for it. They are served
// by its empty successor, each by its own turn, without being told of it.
func TestP12_ServerDies(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := redisstore.New(server.Client(t), nil)
	ten := charge("ten", throttle.SlidingWindow(10, time.Hour))
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
		hourly := charge("hourly", throttle.PerHour(10))
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
		hourly := charge("hourly", throttle.PerHour(10))
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
		one := charge("one", throttle.PerSecond(1))
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
