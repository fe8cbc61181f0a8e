package redisstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP8_NotAgainWhenTheRecordIsGone: the only one who wanted to know what became
// of a call has left, and nobody came for a minute. Then Redis does not know any
// more that the call was made, so it is not made again.
func TestP8_NotAgainWhenTheRecordIsGone(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		h := &deaf{}
		client.AddHook(h)
		hourly := charge("hourly", throttle.PerHour(10))
		k := booking(hourly)
		g, err := s.Book(t.Context(), k)
		require.NoError(t, err)

		h.lose.Store(1 << 40)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Settle(ctx, k, g, []int{3}), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, s.Running(), "nobody asks any more")
		records, err := client.Keys(t.Context(), "*calls:*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, records)
		require.NoError(t, client.Del(t.Context(), records...).Err()) // as their expiry would
		h.lose.Store(0)

		require.Zero(t, book(t, s, hourly))
		st, err := s.Status(t.Context(), hourly)
		require.NoError(t, err)
		require.Equal(t, 4, st.Used)
	})
}

// TestP11_APauseThatComesLateEndsInTime: Redis was away when the penalty was
// learnt. It ends when it would have ended anyway.
func TestP11_APauseThatComesLateEndsInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, h := saying(t, server.Client(t), errAway)
		one := charge("one", throttle.PerHour(1))
		end := time.Now().Add(20 * time.Second)
		stored := make(chan error, 1)
		go func() { stored <- s.Pause(t.Context(), one, 20*time.Second) }()
		time.Sleep(10 * time.Second)
		h.err.Store(nil)
		require.NoError(t, <-stored)
		require.Equal(t, time.Until(end), book(t, s, one))
	})
}

// TestP8_WhatNobodyHeardOfIsGivenBack: the only one who wanted a start has left, and
// nobody knows whether it was booked. The next one finds out.
func TestP8_WhatNobodyHeardOfIsGivenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		h := &deaf{}
		client.AddHook(h)
		hourly := charge("hourly", throttle.PerHour(10))
		h.lose.Store(1 << 40)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Book(ctx, booking(hourly))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, s.Running(), "nobody asks any more")
		h.lose.Store(0)

		require.Zero(t, book(t, s, hourly))
		time.Sleep(time.Second)
		synctest.Wait()
		st, err := s.Status(t.Context(), hourly)
		require.NoError(t, err)
		require.Equal(t, 1, st.Used)
	})
}
