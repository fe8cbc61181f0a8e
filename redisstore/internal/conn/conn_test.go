package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// counting is a script that counts how often it ran, and answers that it is done.
var counting = wire.FromSource(`
redis.call('INCR', KEYS[1])
return struct.pack('<dd', 0, 1)
`)

func count(key string) func(wire.Boundaries, []wire.Gate) wire.Call {
	return func(wire.Boundaries, []wire.Gate) wire.Call { return wire.Call{Script: counting, Keys: []string{key}} }
}

// TestRetryMakesTheCallAgain where the connection is cut; the client does not do so by
// itself, as it would with other commands. Whether Redis executed the call before that
// is for its number to say: it is executed as often as it arrives.
func TestRetryMakesTheCallAgain(t *testing.T) {
	for name, c := range map[string]struct {
		how  redistest.How
		runs string
	}{"before": {redistest.CutBefore, "1"}, "after": {redistest.CutAfter, "2"}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Shared(t)
			proxy := redistest.NewProxy(t, server)
			cn := conn.New(proxy.Client(t))
			require.Equal(t, store.MaxAhead, cn.Unheard())
			_, err := cn.Call(t.Context(), count("another")) // from now on it knows the script
			require.NoError(t, err)
			proxy.Disturb(c.how)
			var failures []error
			calls := 0
			require.NoError(t, cn.Retry(t.Context(), func(err error) { failures = append(failures, err) }, func() error {
				calls++
				_, err := cn.Call(t.Context(), count(t.Name()))
				return err
			}))
			require.Equal(t, 2, calls)
			require.Len(t, failures, 1)
			require.ErrorContains(t, failures[0], "redisstore: "+proxy.Addr+": ")
			require.Equal(t, c.runs, server.Client(t).Get(t.Context(), t.Name()).Val())
			require.Zero(t, cn.Unheard())
		})
	}
}

// TestAServerThatLostItsScripts is told them again.
func TestAServerThatLostItsScripts(t *testing.T) {
	client := redistest.Single(t).Client(t)
	cn := conn.New(client)
	for range 2 {
		_, err := cn.Call(t.Context(), count("key"))
		require.NoError(t, err)
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
		_, err = cn.Run(t.Context(), counting, []string{"another"})
		require.NoError(t, err)
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
	}
	require.Equal(t, "2", client.Get(t.Context(), "key").Val())
	require.Equal(t, "2", client.Get(t.Context(), "another").Val())
}

// TestACallHasNoContext: its caller leaves at once, and the call goes on.
func TestACallHasNoContext(t *testing.T) {
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server)
	cn := conn.New(proxy.Client(t))
	_, err := cn.Call(t.Context(), count("another")) // from now on the server knows the script
	require.NoError(t, err)
	f := proxy.Disturb(redistest.HoldCall)
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	go func() {
		f.Await(t)
		cancel(left)
	}()
	_, err = cn.Call(ctx, count(t.Name()))
	require.ErrorIs(t, err, left)
	f.Pass(t)
	require.Equal(t, "1", server.Client(t).Get(t.Context(), t.Name()).Val())
}

// TestP9_TheServerTellsTheTime: scripts are told none, but by a test that has a clock.
func TestP9_TheServerTellsTheTime(t *testing.T) {
	cn := conn.New(redistest.Shared(t).Client(t))
	told := func() int64 {
		f, err := cn.Call(t.Context(), func(wire.Boundaries, []wire.Gate) wire.Call {
			return wire.Call{Script: wire.FromSource("return struct.pack('<ddd', 0, 1, tonumber(ARGV[1]) or -1)")}
		})
		require.NoError(t, err)
		return f.At(1)
	}
	require.Equal(t, int64(-1), told())
	cn.Now = func() int64 { return 7 }
	require.Equal(t, int64(7), told())
}

// TestErrorsOfAServer: they say where, what and what would help, and nothing secret.
func TestErrorsOfAServer(t *testing.T) {
	server := redistest.Single(t)
	fails := func(text string) func(wire.Boundaries, []wire.Gate) wire.Call {
		return func(wire.Boundaries, []wire.Gate) wire.Call {
			return wire.Call{Script: wire.FromSource("redis.call('TIME') return redis.error_reply(ARGV[3])"), Keys: []string{"key"}, More: []any{text}}
		}
	}
	cn := conn.New(server.Client(t))
	for text, want := range map[string]string{
		"NOAUTH Authentication required.": "NOAUTH Authentication required.",
		"ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'pa55word'": "ERR unknown command 'HELLO'",
		"LOADING the dataset of redis://me:pa55word@10.0.0.1:6379/0":                        "LOADING the dataset of …@10.0.0.1:6379/0",
		"MOVED 1 127.0.0.1:7000":                                                                                        "the server is part of a cluster: it needs redis.NewClusterClient: MOVED 1 127.0.0.1:7000",
		"NOPERM No permissions to access a key":                                                                         "NOPERM No permissions to access a key (it needs ~NAMESPACE:*)",
		"NOPERM this user has no permissions to run the 'get' command":                                                  "NOPERM this user has no permissions to run the 'get' command (docs/run/redis.md lists the rights that it needs)",
		"ERR The user executing the script can't run this command or subcommand":                                        "ERR The user executing the script can't run this command or subcommand (docs/run/redis.md lists the rights that it needs; ACL LOG of Redis says which is missing)",
		"ERR This Redis command is not allowed from script script: 53aa, on @user_script:1":                             "ERR This Redis command is not allowed from script script: 53aa, on @user_script:1 (the script calls TIME: docs/run/redis.md names services that refuse it)",
		"ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array": "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array (set script_check_enable of the instance to 0, as docs/run/redis.md says)",
	} {
		_, err := cn.Call(t.Context(), fails(text))
		require.EqualError(t, err, "redisstore: "+server.Addr+": "+want)
		require.ErrorAs(t, err, new(redis.Error), "it is as final as before")
		require.Equal(t, store.MaxAhead, cn.Unheard())
	}
	_, err := cn.Call(t.Context(), count("key"))
	require.NoError(t, err)
}

// TestAMissingRightIsNamed, also by Redis 7.0, which only says in which line a script failed.
func TestAMissingRightIsNamed(t *testing.T) {
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "me", "on", "nopass", "+eval", "+evalsha", "+get", "~*").Err())
	o := server.Options()
	o.Username, o.Password = "me", "any"
	client := redis.NewClient(o)
	defer client.Close()
	cn, script := conn.New(client), wire.FromSource("redis.call('GET', KEYS[1])\n\nreturn {redis.call('STRLEN', KEYS[1])}")
	_, asked := cn.Call(t.Context(), func(wire.Boundaries, []wire.Gate) wire.Call {
		return wire.Call{Script: script, Keys: []string{"key"}}
	})
	_, run := cn.Run(t.Context(), script, []string{"key"})
	for _, err := range []error{asked, run} {
		require.Regexp(t, `\(it needs \+strlen, as docs/run/redis.md says\)$|the 'strlen' command.* \(docs/run/redis.md lists`, err.Error())
		require.True(t, conn.Denied(err))
		require.False(t, conn.Unexecuted(err), "it has read the key")
	}
}

// TestAClientThatIsClosed is no reason to wait.
func TestAClientThatIsClosed(t *testing.T) {
	client := redis.NewClient(redistest.Shared(t).Options())
	require.NoError(t, client.Close())
	cn := conn.New(client)
	err := cn.Retry(t.Context(), func(error) { t.Error("it is made again") }, func() error {
		_, err := cn.Call(t.Context(), count("key"))
		return err
	})
	require.ErrorIs(t, err, redis.ErrClosed)
}

// to returns a Conn to an address that nobody has dialled.
func to(t *testing.T, addr string) *conn.Conn {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return conn.New(client)
}

// TestUnavailable: the error says for how long there was no answer, where from, and why; it
// is both the end of the caller's context and the failure of the last call.
func TestUnavailable(t *testing.T) {
	const addr = "10.0.0.1:6379"
	left := errors.New("left")
	failure := fmt.Errorf("redisstore: %s: %w", addr, refused)
	for name, c := range map[string]struct {
		after time.Duration
		fails int
		ended error
		want  string
	}{
		"silence":            {1234567 * time.Microsecond, 0, left, "redisstore: no answer for 1.23s from " + addr},
		"time up":            {200*time.Millisecond + 1, 0, nil, "redisstore: no answer for 200ms from " + addr},
		"failures":           {time.Minute, 3, left, "redisstore: no answer for 1m0s (failed calls: 3): " + addr + ": dial tcp: connection refused"},
		"left in time":       {49 * time.Millisecond, 0, left, "left"},
		"left, but it fails": {49 * time.Millisecond, 1, left, "redisstore: no answer for 49ms (failed calls: 1): " + addr + ": dial tcp: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			cn := to(t, addr)
			synctest.Test(t, func(t *testing.T) {
				u := conn.Unavailability{Since: time.Now()}
				for range c.fails {
					u.Add(failure)
				}
				time.Sleep(c.after)
				err := cn.Unavailable(u, c.ended)
				require.EqualError(t, err, c.want)
				require.Equal(t, c.ended != nil, errors.Is(err, left))
				require.Equal(t, c.fails > 0, errors.Is(err, refused))
			})
		})
	}
}

// TestAnAddressIsNoSecret, but what stands before an @ may be.
func TestAnAddressIsNoSecret(t *testing.T) {
	u := conn.Unavailability{Since: time.Now().Add(-time.Minute)}
	err := to(t, "redis://me:pa55word@10.0.0.1:6379/0").Unavailable(u, context.Canceled)
	require.ErrorContains(t, err, " from …@10.0.0.1:6379/0")
	require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), "pa55")
}

// TestAwait: an answer, the end of a context and the end of time; and who is told why.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		done, left, up, failed time.Duration // 0: never
		want                   bool
		took, told             time.Duration // told 0: never
	}{
		"answer":                {done: 3, want: true, took: 3},
		"late answer":           {done: 3000, want: true, took: 3000, told: 1000},
		"left":                  {left: 3, took: 3},
		"left late":             {left: 3000, took: 3000, told: 1000},
		"time up":               {up: 3, took: 3},
		"time up late":          {up: 3000, took: 3000, told: 1000},
		"failure, then answer":  {failed: 2, done: 3, want: true, took: 3, told: 2},
		"failure, then time up": {failed: 2, up: 3, took: 3, told: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				since := func() time.Duration { return time.Since(begin) / time.Millisecond }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done, failed, up := make(chan struct{}), make(chan struct{}), make(chan time.Time)
				for after, f := range map[*time.Duration]func(){
					&c.done: func() { close(done) }, &c.left: cancel, &c.up: func() { close(up) }, &c.failed: func() { close(failed) },
				} {
					if *after > 0 {
						time.AfterFunc(*after*time.Millisecond, f)
					}
				}
				var told time.Duration
				require.Equal(t, c.want, conn.Await(ctx, begin, done, up, failed, func() { told = since() }))
				require.Equal(t, c.took, since())
				require.Equal(t, c.told, told)
			})
		})
	}
}

// TestAwaitPrefersTheAnswer: an answer that is there counts, and no outage is told, although at the same time a call failed, Silence has
// passed, or the caller's time is over.
func TestAwaitPrefersTheAnswer(t *testing.T) {
	ready := make(chan struct{})
	close(ready)

	// A select takes any of the channels that are ready, so ask often.
	for range 100 {
		told := func() { require.Fail(t, "told") }
		require.True(t, conn.Await(t.Context(), time.Now(), ready, nil, ready, told))
		require.True(t, conn.Await(t.Context(), time.Now().Add(-time.Hour), ready, nil, nil, told))

		// The same holds for the end of the caller's time.
		over := make(chan time.Time)
		close(over)
		left, leave := context.WithCancel(t.Context())
		leave()
		require.True(t, conn.Await(left, time.Now(), ready, over, nil, told))
		require.True(t, conn.Await(left, time.Now(), ready, over, nil, nil))
	}
}

// said is an error of the server itself.
type said string

func (e said) Error() string { return string(e) }

func (said) RedisError() {}

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
