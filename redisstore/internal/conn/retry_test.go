package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// said is an error of the server itself.
type said string

func (e said) Error() string { return string(e) }
func (said) RedisError()     {}

var refused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// TestWhatMayBeRepeated: a call is made again when that may help, and is known not to have
// been executed only where the script says so.
func TestWhatMayBeRepeated(t *testing.T) {
	for _, c := range []struct {
		err                   error
		transient, unexecuted bool
	}{
		{refused, true, false},
		{io.EOF, true, false},
		{context.DeadlineExceeded, true, false}, // the client's: a call has none of its caller's
		{fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: said("NOAUTH ")}), true, false},
		{said("LOADING Redis is loading the dataset in memory"), true, false},
		{said("BUSY Redis is busy running a script"), true, false},
		{said("READONLY You can't write against a read only replica."), true, false},
		{said("MASTERDOWN Link with MASTER is down"), true, false},
		{said("NOREPLICAS Not enough good replicas to write."), true, false},
		{said("CLUSTERDOWN The cluster is down"), true, false},
		{said("TRYAGAIN Multiple keys request during rehashing of slot"), true, false},
		{said("MOVED 1 127.0.0.1:7000"), true, false},
		{said("ASK 1 127.0.0.1:7000"), true, false},
		{said("OOM command not allowed when used memory > 'maxmemory'."), true, false},
		{said("MISCONF Redis is configured to save RDB snapshots"), true, false},
		{said("ERR max number of clients reached"), true, false},
		{said("ERR a row that cannot be read"), false, true},
		{said("WRONGTYPE Operation against a key holding the wrong kind of value"), false, true},
		{said("NOAUTH Authentication required."), false, false},
		{said("ERR Protocol error: unauthenticated multibulk length"), false, false},
		{said("ERR Protocol error: unauthenticated bulk length"), false, false},
		{said("NOPERM this user has no permissions"), false, false},
		{said("ERR The user executing the script can't run this command or subcommand"), false, false}, // it may have run others
		{said("ERR ACL failure in script: User me has no permissions to run the 'set' command"), false, false},
		{redis.Nil, false, false}, // of a Sentinel
		{redis.ErrClosed, false, false},
		{conn.ErrFar, false, true},
		{conn.ErrOvertaken, false, false}, // a copy of it may have been executed
		{conn.ErrSingle, false, false},
		{wire.ErrReply, false, false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("redisstore: 10.0.0.1:6379: %w", c.err)} {
			require.Equal(t, c.transient, conn.Transient(err), "%v", err)
			require.Equal(t, c.unexecuted, conn.Unexecuted(err), "%v", err)
		}
	}
}

// TestPauses: they double from 10 ms to half a second.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		require.NoError(t, conn.Retry(t.Context(), nil, nil, func() error {
			at = append(at, time.Since(begin)/time.Millisecond)
			if len(at) < 10 {
				return refused
			}
			return nil
		}))
		require.Equal(t, []time.Duration{0, 10, 30, 70, 150, 310, 630, 1130, 1630, 2130}, at)
	})
}

// TestWhatEndsRetry: success, an error for good, the word of the caller, or its context.
func TestWhatEndsRetry(t *testing.T) {
	left := errors.New("left")
	for name, c := range map[string]struct {
		fails  []error
		failed func(error) bool
		want   error
		calls  int
	}{
		"success":          {[]error{refused, io.EOF, nil}, nil, nil, 3},
		"for good":         {[]error{refused, said("NOAUTH ")}, nil, said("NOAUTH "), 2},
		"the caller":       {[]error{refused}, func(error) bool { return false }, refused, 1},
		"for good, unsaid": {[]error{redis.ErrClosed}, func(error) bool { panic("it is told of what is made again") }, redis.ErrClosed, 1},
		"context":          {[]error{refused, refused, refused, refused, refused}, nil, left, 4}, // 0, 10, 30, 70 ms
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(100*time.Millisecond, func() { cancel(left) })
				calls := 0
				err := conn.Retry(ctx, nil, c.failed, func() error {
					calls++
					return c.fails[calls-1]
				})
				require.ErrorIs(t, err, c.want)
				require.Equal(t, c.calls, calls)
			})
		})
	}
}

// TestWakeEndsAPause, and the next one is as long as it would have been.
func TestWakeEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		var b conn.Backoff
		begin := time.Now()
		wake <- struct{}{}
		b.Wait(t.Context(), wake)
		require.Zero(t, time.Since(begin))
		b.Wait(t.Context(), wake)
		require.Equal(t, 20*time.Millisecond, time.Since(begin))
	})
}

// TestTheCallersTime is that for room: with none to wait Redis has a second, with little a
// tenth of one, and all of it where MaxWait or the context is longer.
func TestTheCallersTime(t *testing.T) {
	for _, c := range []struct{ maxWait, deadline, want time.Duration }{
		{0, 0, time.Second},
		{0, time.Minute, time.Second},
		{0, time.Second, 0}, // its context ends then
		{time.Millisecond, 0, 100 * time.Millisecond},
		{time.Minute, 0, time.Minute},
		{time.Minute, 10 * time.Second, 0},
		{-1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, begin := t.Context(), time.Now()
			if c.deadline > 0 {
				limited, cancel := context.WithTimeout(ctx, c.deadline)
				defer cancel()
				ctx = limited
			}
			timeUp, stop := conn.Timeout(ctx, c.maxWait, begin)
			defer stop()
			if c.want == 0 {
				require.Nil(t, timeUp, "%+v", c)
				return
			}
			<-timeUp
			require.Equal(t, c.want, time.Since(begin), "%+v", c)
		})
	}
}
