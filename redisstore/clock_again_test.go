package redisstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// repeatsAfter is how long a commit queue waits before it makes a call again.
const repeatsAfter = 10 * time.Millisecond

// onAgain runs f in a bubble with a store whose server has a clock of its own. The
// function lose loses the answer of the next call. Then the clock is set, and the
// server is away.
func onAgain(t *testing.T, f func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration))) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client, c := server.Client(t), &skewed{}
		require.NoError(t, client.FlushDB(t.Context()).Err())
		s := atRest(t, redisstore.NewAt(client, nil, c.now))
		require.Zero(t, book(t, s, charge("first", throttle.PerSecond(1))), "the server knows the script then")
		var loses func()
		var back time.Time
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			if time.Now().Before(back) {
				cmd.SetErr(errAway)
				return errAway
			}
			err := next()
			if loses == nil {
				return err
			}
			loses()
			loses = nil
			cmd.SetErr(errAway)
			return errAway
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

// TestP9_RemembersWhatWasAnsweredAgain lets the server forget everything after that.
// The program remembers the start for when it was. It was taken to be to come until
// the old time, so that the budget was closed for an hour.
func TestP9_RemembersWhatWasAnsweredAgain(t *testing.T) {
	t.Parallel()
	onAgain(t, func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration)) {
		one := charge("one", throttle.PerSecond(1))
		require.Zero(t, book(t, s, one))
		lose(-time.Hour, 0)
		g := ask(t, s, booking(one))
		require.Equal(t, span, g.Wait)
		require.NoError(t, s.Empty(t.Context()))
		require.LessOrEqual(t, book(t, s, one), 2*span)
		time.Sleep(4 * span)
		require.NoError(t, s.Empty(t.Context()))
		require.Zero(t, book(t, s, one), "all is over")
	})
}

// TestP11_RefusedAgainAfterAStepBack does the same to the answer that a budget is
// closed. The program remembers that for as long as it was.
func TestP11_RefusedAgainAfterAStepBack(t *testing.T) {
	t.Parallel()
	onAgain(t, func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration)) {
		one := charge("one", throttle.PerSecond(1))
		require.NoError(t, s.Pause(t.Context(), one, 5*time.Second))
		lose(-time.Hour, 0)
		b := booking(one)
		b.MaxWait = 0
		g := ask(t, s, b)
		require.False(t, g.OK)
		require.Equal(t, 5*time.Second, g.Wait)
		require.Equal(t, 5*time.Second, s.Closed(s.Key(one.Budget)))
	})
}

// TestP12_AnsweredAgainLate loses the answer that a start was booked at once, and
// then Redis is away. What is heard in the end is remembered for when it was, so that
// a row that is over by then is not taken for one that was lost.
func TestP12_AnsweredAgainLate(t *testing.T) {
	t.Parallel()
	onAgain(t, func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration)) {
		one := charge("one", throttle.PerSecond(1))
		booked := time.Now()
		lose(0, 20*time.Second)
		g := ask(t, s, booking(one))
		require.Zero(t, g.Wait)
		require.GreaterOrEqual(t, g.Age, 20*time.Second)
		require.Equal(t, time.Since(booked), g.Age)
		require.NoError(t, s.Empty(t.Context())) // as the row's expiry would
		require.Zero(t, book(t, s, one))
	})
}

// TestP8_AnsweredByALaterCopy has Redis away for ten seconds when a call is made. The
// first copy that arrives books the start, but its answer is lost. The one after it is
// answered again: the start is as fresh as if it was told at once.
func TestP8_AnsweredByALaterCopy(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		atRest(t, s)
		back, lost := time.Now().Add(10*time.Second), false
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			if !time.Now().Before(back) {
				if err := next(); lost {
					return err
				}
				lost = true
			}
			cmd.SetErr(errAway)
			return errAway
		}))
		far := booking(charge("one", throttle.PerSecond(1)))
		far.NotBefore = time.Hour
		g := ask(t, s, far)
		require.True(t, lost)
		require.Positive(t, g.Wait)
		require.Zero(t, g.Age)
	})
}
