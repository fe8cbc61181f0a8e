package redisstore_test

import (
	"context"
	"errors"
	"net"
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

// A says is a hook that answers script calls in the server's place for as long
// as err is set.
type says struct {
	tap
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (h *says) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.err.Load(); err != nil && isScript(cmd) {
			h.calls.Add(1)
			cmd.SetErr(*err)
			return *err
		}
		return next(ctx, cmd)
	}
}

func (h *says) set(err error) { h.err.Store(&err) }

// saying returns a store whose server says err to everything, and the hook.
func saying(t *testing.T, c redis.UniversalClient, err error) (*redisstore.Store, *says) {
	t.Helper()
	s, _ := loaded(t, c, nil)
	h := &says{}
	h.set(err)
	c.AddHook(h)
	return s, h
}

// A said is an error that comes from the server itself.
type said string

func (e said) Error() string { return string(e) }
func (said) RedisError()     {}

var errAway = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// passing are errors after which it helps to ask again.
var passing = []error{
	errAway,
	said("LOADING Redis is loading the dataset in memory"),
	said("READONLY You can't write against a read only replica."),
	said("MASTERDOWN Link with MASTER is down"),
	said("CLUSTERDOWN The cluster is down"),
	said("BUSY Redis is busy running a script."),
	said("NOREPLICAS Not enough good replicas to write."),
	said("OOM command not allowed when used memory > 'maxmemory'."),
}

// TestP12_ServiceResumes lets callers wait for a server that is not ready. They
// are served soon after it is.
func TestP12_ServiceResumes(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, err := range passing {
		t.Run(err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, server := saying(t, server.Client(t), err)
				one := charge("one", throttle.PerSecond(1))
				first := bookAside(t.Context(), s, booking(one))
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Nil(t, *first)
				// At 0, 10, 30, 70, 150, 310, 630 ms, then every 500.
				require.Equal(t, int64(7+118), server.calls.Load())
				second := bookAside(t.Context(), s, booking(one))

				server.err.Store(nil)
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				require.NoError(t, (*first).err)
				require.NoError(t, (*second).err)
				require.LessOrEqual(t, (*first).after, time.Minute+500*time.Millisecond)
				start := func(o *outcome) time.Time { return time.UnixMicro(o.grant.Handle.Start) }
				require.Equal(t, span, start(*first).Sub(start(*second)).Abs())
			})
		})
	}
}

// TestP12_ContextIsObeyed ends the context of callers while the server is away,
// and while it does not answer at all.
func TestP12_ContextIsObeyed(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const room = 333 * time.Millisecond
	try := func(t *testing.T, s *redisstore.Store) {
		start, one := time.Now(), charge("one", throttle.PerSecond(1))
		ctx, cancel := context.WithTimeout(t.Context(), room)
		defer cancel()
		got := bookAside(ctx, s, booking(one))
		pauseErr := s.Pause(ctx, one, time.Second)
		_, statusErr := s.Status(ctx, one)
		require.Equal(t, room, time.Since(start))
		synctest.Wait()
		for _, err := range []error{(*got).err, pauseErr, statusErr} {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, room, (*got).after)
	}
	t.Run("away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := saying(t, server.Client(t), errAway)
			try(t, s)
		})
	})
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, tap := loaded(t, server.Client(t), isScript)
			try(t, s)
			close(tap.pass)
		})
	})
}

// TestP12_NeverWaiting books without waiting for room: Redis is given a second.
// A MaxWait bounds the whole, but a tenth of a second is always given.
func TestP12_NeverWaiting(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for maxWait, want := range map[time.Duration]time.Duration{
		0: time.Second, 10 * time.Millisecond: 100 * time.Millisecond, 5 * time.Second: 5 * time.Second,
	} {
		t.Run(maxWait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := saying(t, server.Client(t), errAway)
				k := booking(charge("one", throttle.PerSecond(1)))
				k.MaxWait = maxWait
				start := time.Now()
				_, err := s.Book(t.Context(), k)
				require.ErrorIs(t, err, errAway)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's own context is fine")
				require.Equal(t, want, time.Since(start))
			})
		})
	}
}

// TestP12_WaitCountsAgainstMaxWait brings the server back while a caller still
// has patience. What is left of it is not enough for the start.
func TestP12_WaitCountsAgainstMaxWait(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, away := saying(t, server.Client(t), errAway)
		other := redisstore.NewAt(server.Client(t), nil, bubbleClock)
		one := charge("one", throttle.PerMinute(1))
		k := booking(one)
		k.MaxWait = 61 * time.Second
		got := bookAside(t.Context(), s, k)
		time.Sleep(2 * time.Second)
		book(t, other, one)
		away.err.Store(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, (*got).err)
		require.False(t, (*got).grant.OK)
		require.Less(t, (*got).grant.Wait, time.Minute)
	})
}

// TestP12_FinalErrors are returned at once: asking again would not help.
func TestP12_FinalErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, err := range []error{
		said("WRONGPASS invalid username-password pair or user is disabled."),
		said("NOAUTH Authentication required."),
		said("NOPERM this user has no permissions to run the 'evalsha' command"),
		said("ERR user_script:1: something is wrong"),
		redis.ErrClosed,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, server := saying(t, server.Client(t), err)
				start := time.Now()
				_, got := s.Book(t.Context(), booking(charge("one", throttle.PerSecond(1))))
				require.ErrorIs(t, got, err)
				require.ErrorContains(t, got, "redisstore: ")
				require.Zero(t, time.Since(start))
				require.Equal(t, int64(1), server.calls.Load())
			})
		})
	}
}
