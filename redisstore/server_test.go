package redisstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_ScriptFlush lets the server forget the scripts. The next call brings
// its script along, and the budget is as it was.
func TestP12_ScriptFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	synctest.Test(t, func(t *testing.T) { // where no answer is late, so no call is made twice
		client := server.Client(t)
		s := redisstore.NewAt(client, nil, bubbleClock)
		tap := newTap(client, nil)
		hourly := charge("hourly", throttle.PerHour(1))
		flush := func() {
			require.NoError(t, client.ScriptFlush(t.Context()).Err())
			tap.names()
		}
		both := []string{"evalsha", "eval"}

		flush()
		require.Zero(t, book(t, s, hourly))
		require.Equal(t, both, tap.names())
		flush()
		require.Equal(t, time.Hour+time.Microsecond, book(t, s, hourly))
		require.Equal(t, both, tap.names())
		flush()
		require.NoError(t, s.Pause(t.Context(), hourly, time.Minute))
		require.Equal(t, both, tap.names())
		flush()
		st, err := s.Status(t.Context(), hourly)
		require.NoError(t, err)
		require.Equal(t, 1, st.Used)
		require.Equal(t, 1, st.Waiting)
		require.Equal(t, both, tap.names())
	})
}

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

// TestP12_ServerHangs stops the server without closing its connections.
func TestP12_ServerHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := redisstore.New(server.Client(t), nil)
	ten := charge("ten", throttle.SlidingWindow(10, time.Hour))
	require.Zero(t, book(t, s, ten))

	server.Pause()
	ctx, cancel := context.WithCancelCause(t.Context())
	errs := make(chan error)
	for range 10 {
		go func() {
			_, err := s.Book(ctx, booking(ten))
			errs <- err
		}()
	}
	cancel(errLeft)
	for range 10 {
		require.ErrorIs(t, <-errs, errLeft)
	}
	server.Continue()
	require.Zero(t, book(t, s, ten))
}

// TestP12_ReplicaBecomesMaster books on a replica, which may not be written to,
// until it is one no more.
func TestP12_ReplicaBecomesMaster(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, "--replicaof", "127.0.0.1", "1").Client(t)
	s := redisstore.New(client, nil)
	one := charge("one", throttle.PerSecond(1))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.Book(ctx, booking(one))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	require.Zero(t, book(t, s, charge("two", throttle.PerSecond(1))))
}

// TestP12_WrongPassword is told at once.
func TestP12_WrongPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "requirepass", "right").Err())
	for password, want := range map[string]string{"": "NOAUTH", "wrong": "WRONGPASS"} {
		o := server.Options()
		o.Password = password
		client := redis.NewClient(o)
		_, err := redisstore.New(client, nil).Book(t.Context(), booking(charge("one", throttle.PerSecond(1))))
		require.ErrorContains(t, err, want)
		require.NoError(t, client.Close())
	}
}
