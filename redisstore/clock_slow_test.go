package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A slow way holds one script call up before it reaches the server, whose clock has
// gone on by then.
type slowWay struct {
	tap
	skewed
	by atomic.Int64
}

func (w *slowWay) now() int64 { return w.skewed.now() + w.by.Load()/int64(time.Microsecond) }

func (w *slowWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isScript(cmd) {
			time.Sleep(time.Duration(w.by.Swap(0)))
		}
		return next(ctx, cmd)
	}
}

// TestP9_TheServersClockIsReadInFull: a row begins with the time at which it was
// seen last. Every script reads it from the server, to the microsecond.
func TestP9_TheServersClockIsReadInFull(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, nil)
	simple, large := charge("simple", throttle.PerHour(1)), charge("window", throttle.FixedWindow(1, time.Hour))
	for _, c := range []struct {
		name   string
		charge throttle.Charge
		do     func(throttle.Charge)
	}{
		{"a booking, the short way", simple, func(c throttle.Charge) { book(t, s, c) }},
		{"a booking", large, func(c throttle.Charge) { book(t, s, c) }},
		{"a pause", simple, func(c throttle.Charge) { require.NoError(t, s.Pause(t.Context(), c, time.Hour)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			c.do(c.charge)
			after, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			head, err := client.GetRange(t.Context(), s.Key(c.charge.Budget), 0, 7).Bytes()
			require.NoError(t, err)
			seen := int64(math.Float64frombits(binary.LittleEndian.Uint64(head)))
			require.GreaterOrEqual(t, seen, before.UnixMicro())
			require.LessOrEqual(t, seen, after.UnixMicro())
		})
	}
}

// repeatsAfter is how long a commit queue waits before it makes a call again.
const repeatsAfter = 10 * time.Millisecond

// onAgain runs f in a bubble with a store whose server has a clock of its own. The
// function lose loses the answer of the next call. Then the clock is set, and the
// server is away.
func onAgain(t *testing.T, f func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration))) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client, c := server.Client(t), &skewed{}
		s := atRest(t, redisstore.NewAt(client, nil, c.now))
		require.Zero(t, book(t, s, charge("first", throttle.PerSecond(1))), "the server knows the script then")
		var loses func()
		var back time.Time
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			if time.Now().Before(back) {
				return failing(cmd, errAway)
			}
			err := next()
			if loses == nil {
				return err
			}
			loses()
			loses = nil
			return failing(cmd, errAway)
		}))
		f(t, s, func(by, away time.Duration) {
			loses = func() {
				c.step(by)
				back = time.Now().Add(away)
			}
		})
	})
}

// TestP9_AnsweredAgainAfterAStep loses the answer that a start was booked for later.
// The server's clock is set before the call is answered again, as by a failover in
// the middle. The start is told for when it was, or, as far as nobody can know that,
// no later than its age says; and nobody waits for longer than was booked.
func TestP9_AnsweredAgainAfterAStep(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{
		0, -time.Microsecond, -4 * time.Millisecond, -repeatsAfter, -time.Second, -time.Hour, time.Second, time.Hour,
	} {
		for _, away := range []time.Duration{0, 300 * time.Millisecond} {
			t.Run(fmt.Sprint(by, " ", away), func(t *testing.T) {
				onAgain(t, func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration)) {
					one := charge("one", throttle.PerSecond(1))
					require.Zero(t, book(t, s, one))
					booked := time.Now()
					lose(by, away)
					g := ask(t, s, booking(one))
					require.True(t, g.OK)
					require.GreaterOrEqual(t, time.Since(booked), max(away, repeatsAfter))
					require.LessOrEqual(t, g.Wait, span)
					require.Equal(t, booked.Add(span), time.Now().Add(g.Wait-g.Age), "the earliest moment that is meant")
					require.LessOrEqual(t, g.Age, min(by.Abs(), time.Since(booked)))
				})
			})
		}
	}
}

// TestP12_AnsweredAgainLate loses the answer that a start was booked at once, and
// then Redis is away. What is heard in the end is remembered for when it was, so that
// a row that is over by then is not taken for one that was lost.
func TestP12_AnsweredAgainLate(t *testing.T) {
	onAgain(t, func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration)) {
		one := charge("one", throttle.PerSecond(1))
		booked := time.Now()
		lose(0, 20*time.Second)
		g := ask(t, s, booking(one))
		require.Zero(t, g.Wait)
		require.GreaterOrEqual(t, g.Age, 20*time.Second)
		require.Equal(t, time.Since(booked), g.Age)
		forgets(t, s.Client()) // as the row's expiry would
		require.Zero(t, book(t, s, one))
	})
}

// TestP8_AnsweredByALaterCopy has Redis away for ten seconds when a call is made. The
// first copy that arrives books the start, but its answer is lost. The one after it is
// answered again: the start is as fresh as if it was told at once.
func TestP8_AnsweredByALaterCopy(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		atRest(t, s)
		back, lost := time.Now().Add(10*time.Second), false
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			if !time.Now().Before(back) {
				if err := next(); lost {
					return err
				}
				lost = true
			}
			return failing(cmd, errAway)
		}))
		far := booking(charge("one", throttle.PerSecond(1)))
		far.NotBefore = time.Hour
		g := ask(t, s, far)
		require.True(t, lost)
		require.Positive(t, g.Wait)
		require.Zero(t, g.Age)
	})
}
