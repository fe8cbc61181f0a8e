package conn_test

import (
	"context"
	"errors"
	"fmt"
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
