package conn_test

import (
	"context"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// An engine is a hook that makes Redis look like another server: it answers some commands in its place.
type engine struct {
	answer func(cmd *redis.Cmd) bool // sets the answer, or leaves the command to Redis

	mu    sync.Mutex // a slow call is sent twice
	names []string   // of the commands that were sent
}

func (e *engine) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (e *engine) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *engine) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "set" {
			e.mu.Lock()
			e.names = append(e.names, cmd.Name())
			e.mu.Unlock()
		}
		plain, ok := cmd.(interface{ SetVal(any) })
		if !ok {
			return next(ctx, cmd)
		}
		answer := redis.NewCmd(ctx, cmd.Args()...)
		if !e.answer(answer) {
			return next(ctx, cmd)
		}
		plain.SetVal(answer.Val())
		cmd.SetErr(answer.Err())
		return answer.Err()
	}
}

// names are a reply to HELLO in RESP3.
func names(pairs ...any) map[any]any {
	all := map[any]any{"server": "redis", "proto": int64(3)}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

// runs reports whether a command runs a script.
func runs(cmd *redis.Cmd, s wire.Script) bool {
	return cmd.Name() == "eval" && cmd.Args()[1] == s.Source()
}

// TestAServerThatWouldPassALimit gets no script, and each caller is told why and what to do.
func TestAServerThatWouldPassALimit(t *testing.T) {
	server := redistest.Single(t)
	hello := func(reply any) func(*redis.Cmd) bool {
		return func(cmd *redis.Cmd) bool {
			switch {
			case cmd.Name() == "hello":
				cmd.SetVal(reply)
			case runs(cmd, wire.CheckScript):
				cmd.SetVal([]any{"", "", int64(1764160000), ""}) // as scripts are told no version
			default:
				return false
			}
			return true
		}
	}
	check := func(reply ...any) func(*redis.Cmd) bool {
		return func(cmd *redis.Cmd) bool {
			if runs(cmd, wire.CheckScript) {
				cmd.SetVal(reply)
			}
			return runs(cmd, wire.CheckScript)
		}
	}
	const newer = "use Redis 7.0 or later, or Valkey"
	for name, c := range map[string]struct {
		answer func(*redis.Cmd) bool
		want   string // "": it may keep budgets
	}{
		"an old Redis":      {hello(names("version", "6.2.14")), "it says that it is Redis 6.2.14: use Redis 7.0 or later, or Valkey"},
		"in RESP2":          {hello([]any{"server", "redis", "version", "6.0.16", "proto", int64(2)}), "it says that it is Redis 6.0.16: use Redis 7.0 or later, or Valkey"},
		"an active replica": {hello(names("version", "7.2.0", "role", "active-replica")), "it is an active replica of KeyDB, and so is the other master, which grants the same starts once more: " + newer},
		"no libraries":      {check("struct, cmsgpack", "", int64(1), "7.0.15"), "its scripts lack struct, cmsgpack: " + newer},
		"no clock":          {check("", "", int64(0), "7.0.15"), "its TIME tells no time: " + newer},
		"no list":           {check(), "it answers scripts with something else: " + newer},
		"no TIME": {check("", "ERR This Redis command is not allowed from script", int64(0), "7.0.15"),
			"it refuses TIME in scripts, the one clock of the fleet: use a service whose scripts may call TIME, as docs/run/redis.md says (ERR This Redis command is not allowed from script)"},
		"Dragonfly":          {hello(names("version", "7.4.0", "dragonfly_version", "df-v1.36")), ""},
		"no version":         {hello([]any{}), "it says that it is Redis without a version, as before 7.0: " + newer},
		"a missing right":    {check("", "NOPERM this user has no permissions to run the 'time' command", int64(0), "7.0.15"), ""},
		"no HELLO":           {refuses("hello", "ERR unknown command 'HELLO'"), ""},
		"Garnet with a lock": {hello(names("version", "7.4.3", "garnet_version", "1.0.80")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := server.Client(t)
			e := &engine{answer: c.answer}
			client.AddHook(e)
			cn := conn.New(client)
			for range 2 { // it is told each time
				require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
				_, asked := cn.Call(t.Context(), count(t.Name()))
				require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
				_, run := cn.Run(t.Context(), counting, []string{t.Name()})
				for _, err := range []error{asked, run} {
					if c.want == "" {
						require.NoError(t, err)
						continue
					}
					require.EqualError(t, err, "redisstore: "+server.Addr+": this server cannot keep budgets: "+c.want)
					require.ErrorIs(t, err, conn.ErrUnfit)
					require.False(t, conn.Transient(err))
				}
			}
			known := server.Client(t).ScriptExists(t.Context(), counting.Hash()).Val()
			require.Equal(t, []bool{c.want == ""}, known)
		})
	}
}

// refuses answers a command with an error.
func refuses(name, text string) func(*redis.Cmd) bool {
	return func(cmd *redis.Cmd) bool {
		if cmd.Name() != name {
			return false
		}
		cmd.SetErr(said(text))
		return true
	}
}

// TestGarnetWithoutItsSwitch runs the commands of a script one by one, so that others come between.
func TestGarnetWithoutItsSwitch(t *testing.T) {
	server := redistest.Single(t)
	behind := server.Client(t)
	client := server.Client(t)
	client.AddHook(&engine{answer: func(cmd *redis.Cmd) bool {
		switch {
		case cmd.Name() == "hello":
			cmd.SetVal(names("version", "7.4.3", "garnet_version", "1.0.80"))
		case runs(cmd, wire.CheckLockScript):
			key, own := cmd.Args()[3].(string), cmd.Args()[5].(string)
			require.NoError(t, behind.Set(t.Context(), key, own, time.Minute).Err())
			require.Eventually(t, func() bool { return behind.Get(t.Context(), key).Val() != own }, time.Minute, time.Millisecond)
			cmd.SetVal(int64(0))
		default:
			return false
		}
		return true
	}})
	_, err := conn.New(client).Call(t.Context(), count("key"))
	require.ErrorIs(t, err, conn.ErrUnfit)
	require.ErrorContains(t, err, "its scripts are not atomic, so it would grant more than the limit: start Garnet with --lua-transaction-mode")
	require.Zero(t, behind.Exists(t.Context(), "key").Val())
}

// TestAServerIsLookedAtOnce: when it does not know a script. From then on a call is one command, of
// other clients too.
func TestAServerIsLookedAtOnce(t *testing.T) {
	server := redistest.Single(t)
	for i, want := range []string{"evalsha hello eval eval evalsha", "evalsha evalsha"} {
		client := server.Client(t)
		require.NoError(t, client.Ping(t.Context()).Err()) // the connection is there
		e := &engine{answer: func(*redis.Cmd) bool { return false }}
		client.AddHook(e)
		cn := conn.New(client)
		for range 2 {
			_, err := cn.Call(t.Context(), count("key"))
			require.NoError(t, err)
		}
		require.Equal(t, want, strings.Join(e.names, " "), i)
	}
}

// TestEachServerIsLookedAt, of a cluster and of a ring: the server that has the key.
func TestEachServerIsLookedAt(t *testing.T) {
	one, other := redistest.Single(t), redistest.Single(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr, "other": other.Addr}})
	defer ring.Close()
	cluster := redistest.Cluster(t).Client(t)
	for name, client := range map[string]redis.UniversalClient{"ring": ring, "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			cn := conn.New(client)
			for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				_, err := cn.Call(t.Context(), count(key))
				require.NoError(t, err)
			}
		})
	}
	for _, s := range []*redistest.Server{one, other} {
		stats, err := s.Client(t).Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		require.Contains(t, stats, "cmdstat_hello")
		require.Equal(t, []bool{true, true}, s.Client(t).ScriptExists(t.Context(), wire.CheckScript.Hash(), counting.Hash()).Val())
	}
}

// TestATimeThatIsCutOff: Dragonfly tells whole milliseconds, so a start may be granted up to one later
// than its answer says.
func TestATimeThatIsCutOff(t *testing.T) {
	cn := conn.New(redistest.Shared(t).Client(t))
	require.Equal(t, time.Millisecond, cn.CutOff(1764160000123000))
	require.Zero(t, cn.CutOff(1764160000123001))
	cn.Now = func() int64 { return 0 }
	require.Zero(t, cn.CutOff(1764160000123000), "a test's own clock is right")
}

// reads answers scripts as a proxy that reads their text: each key must stand there as KEYS[…].
func reads(keyed *regexp.Regexp) func(*redis.Cmd) bool {
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)', ([^\n]*)`)
	return func(cmd *redis.Cmd) bool {
		if cmd.Name() != "eval" {
			return false
		}
		for _, m := range call.FindAllStringSubmatch(cmd.Args()[1].(string), -1) {
			if m[1] != "PUBLISH" && !keyed.MatchString(m[2]) {
				cmd.SetErr(said("ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array, and KEYS should not be in expression"))
				return true
			}
		}
		return false
	}
}

// TestAProxyThatReadsScripts gets each script in a form that it takes, from the first refusal on.
func TestAProxyThatReadsScripts(t *testing.T) {
	for name, c := range map[string]struct {
		keyed *regexp.Regexp
		takes bool
	}{"any place": {regexp.MustCompile(`^KEYS\[[^\]]+\][,)]`), true}, "none": {regexp.MustCompile("^$"), false}} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Single(t).Client(t)
			require.NoError(t, client.Ping(t.Context()).Err())
			e := &engine{answer: reads(c.keyed)}
			client.AddHook(e)
			cn := conn.New(client)
			named := wire.FromSource("local r = {key = KEYS[2]}\nlocal key = KEYS[1]\nredis.call('INCR', r.key)\nreturn struct.pack('<ddd', 0, 1, redis.call('INCR', key))")
			for i := range 3 {
				f, err := cn.Call(t.Context(), func(wire.Boundaries, []wire.Gate) wire.Call {
					return wire.Call{Script: named, Keys: []string{"a", "b"}}
				})
				if !c.takes {
					require.ErrorContains(t, err, "KEYS should not be in expression (set script_check_enable of the instance to 0, as docs/run/redis.md says)")
					require.False(t, conn.Transient(err))
					continue
				}
				require.NoError(t, err)
				require.Equal(t, int64(i+1), f.At(1))
			}
			if c.takes {
				require.Equal(t, "evalsha hello eval eval evalsha eval evalsha evalsha", strings.Join(e.names, " "))
			}
			list, err := cn.Run(t.Context(), wire.FromSource("local key = KEYS[1]\nreturn {redis.call('GET', key)}"), []string{"a"})
			require.Equal(t, c.takes, err == nil)
			require.Equal(t, c.takes, len(list) == 1)
		})
	}
}

// TestKeyed: each script has a form in which it names keys as proxies want them.
func TestKeyed(t *testing.T) {
	readable := reads(regexp.MustCompile(`^KEYS\[[^\]]+\][,)]`))
	for _, s := range wire.Scripts {
		require.False(t, readable(redis.NewCmd(t.Context(), "eval", s.Keyed().Source())))
		require.Equal(t, strings.Count(s.Source(), "\n"), strings.Count(s.Keyed().Source(), "\n"), "lines keep their numbers")
	}
	require.True(t, readable(redis.NewCmd(t.Context(), "eval", wire.BookScript.Source())))
}
