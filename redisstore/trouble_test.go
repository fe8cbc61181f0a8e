package redisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// inTheEnd only keeps a failure from lasting forever; docs/run/redis.md has what was
// measured.
const inTheEnd = 30 * time.Second

// meanwhile has a caller wait while something is done, and returns its grant.
func meanwhile(t *testing.T, s *redisstore.Store, do func()) store.Grant {
	t.Helper()
	ctx := forAtMost(t, inTheEnd)
	got := make(chan outcome)
	go func() {
		g, err := s.Book(ctx, booking(hourly))
		got <- outcome{grant: g, err: err}
	}()
	do()
	o := <-got
	require.NoError(t, o.err)
	require.True(t, o.grant.OK)
	return o.grant
}

// do has the server do something.
func do(t *testing.T, c redis.UniversalClient, args ...any) {
	t.Helper()
	require.NoError(t, c.Do(t.Context(), args...).Err(), "%v", args)
}

// saysWhy repeats what a caller asks until its error says that, and returns the last one. On a
// busy machine a caller may leave before the server has said anything.
func saysWhy(t *testing.T, says string, ask func() error) (err error) {
	t.Helper()
	for end := time.Now().Add(inTheEnd); time.Now().Before(end); {
		if err = ask(); err == nil || strings.Contains(err.Error(), says) {
			break
		}
	}
	require.ErrorContains(t, err, says)
	return err
}

// refuses requires that a caller waits while the server says something, and gets
// to know it: whether its MaxWait ends, or its context.
func refuses(t *testing.T, s *redisstore.Store, says string) {
	t.Helper()
	k := bookingFor(200*time.Millisecond, charge("other", store.PerHour(5)))
	err := saysWhy(t, says, func() error {
		_, err := s.Book(t.Context(), k)
		return err
	})
	require.NotErrorIs(t, err, context.DeadlineExceeded)

	k.MaxWait = -1
	err = saysWhy(t, says, func() error {
		ctx := forAtMost(t, 200*time.Millisecond)
		_, err := s.Book(ctx, k)
		return err
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestP12_AServerThatIsNotReady has a server say why it does not serve. Callers
// wait, are told, and are served when it is over; what was booked still counts.
func TestP12_AServerThatIsNotReady(t *testing.T) {
	t.Parallel() // its servers are its own
	for _, trouble := range []struct {
		says       string
		begin, end func(t *testing.T, c *redis.Client)
	}{
		{"READONLY ", func(t *testing.T, c *redis.Client) {
			master := redistest.Single(t)
			// It does not let anybody in, so the replica keeps what it has.
			do(t, master.Client(t), "CONFIG", "SET", "requirepass", "unknown")
			do(t, c, append([]any{"REPLICAOF"}, words(strings.Split(master.Addr, ":"))...)...)
		}, func(t *testing.T, c *redis.Client) { do(t, c, "REPLICAOF", "NO", "ONE") }},
		{"NOREPLICAS ", func(t *testing.T, c *redis.Client) { do(t, c, "CONFIG", "SET", "min-replicas-to-write", 1) },
			func(t *testing.T, c *redis.Client) { do(t, c, "CONFIG", "SET", "min-replicas-to-write", 0) }},
		{"OOM ", func(t *testing.T, c *redis.Client) { do(t, c, "CONFIG", "SET", "maxmemory", 1) },
			func(t *testing.T, c *redis.Client) { do(t, c, "CONFIG", "SET", "maxmemory", 0) }},
		{"MISCONF ", func(t *testing.T, c *redis.Client) {
			do(t, c, "CONFIG", "SET", "save", "3600 1000000")
			// A directory has the name that the dump was to have.
			dir := c.ConfigGet(t.Context(), "dir").Val()["dir"]
			require.NoError(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700))
			_ = c.BgSave(t.Context()).Err()
			for !strings.Contains(c.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err") {
				require.NoError(t, t.Context().Err())
			}
		}, func(t *testing.T, c *redis.Client) { do(t, c, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no") }},
		{"BUSY ", func(t *testing.T, c *redis.Client) {
			do(t, c, "CONFIG", "SET", "busy-reply-threshold", 1)
			go c.Eval(context.Background(), "while true do end", nil)
			for !redis.HasErrorPrefix(c.Get(t.Context(), "x").Err(), "BUSY") {
				require.NoError(t, t.Context().Err())
			}
		}, func(t *testing.T, c *redis.Client) { require.NoError(t, c.ScriptKill(t.Context()).Err()) }},
	} {
		t.Run(trouble.says, func(t *testing.T) {
			server := redistest.Single(t)
			operator, s := server.Client(t), redisstore.New(server.Client(t), redisstore.Options{})
			h := &history{T: t}
			for range 4 {
				require.Zero(t, h.book(s).Wait)
			}
			trouble.begin(t, operator)
			refuses(t, s, trouble.says)
			g := meanwhile(t, s, func() { trouble.end(t, operator) })
			require.Zero(t, g.Wait)
			h.starts = append(h.starts, g.Handle.Start)
			require.Positive(t, h.book(s).Wait)
		})
	}
}

// words are the words of a command.
func words(all []string) (args []any) {
	for _, w := range all {
		args = append(args, w)
	}
	return args
}

// TestP12_AServerThatLoads restarts a server with much to load. Nobody starts
// before it has its rows back.
func TestP12_AServerThatLoads(t *testing.T) {
	t.Parallel() // its servers are its own
	server := redistest.Single(t, "--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024")
	client := server.Client(t)
	h := &history{T: t}
	old := redisstore.New(client, redisstore.Options{})
	for range 5 {
		h.book(old)
	}
	do(t, client, "EVAL", "for i = 1, 10000 do redis.call('SET', i, i) end return 1", 0)
	do(t, client, "SAVE")
	server.Restart()

	s := redisstore.New(server.Client(t), redisstore.Options{}) // one that knows nothing
	k := bookingFor(0, hourly)
	_, err := s.Book(t.Context(), k)
	require.ErrorContains(t, err, "LOADING ")
	require.Positive(t, h.book(s).Wait)
}

// TestP1_Evicted fills a server that makes room by throwing keys away, until those
// of the budget are gone. The fleet remembers them.
func TestP1_Evicted(t *testing.T) {
	policies := []string{
		"allkeys-lru", "volatile-ttl",
		"allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random",
	}
	each(t, policies[:soak.Most(len(policies), 2)], func(t *testing.T, policy string) {
		server := redistest.Single(t, "--maxmemory-policy", policy, "--maxmemory", "8mb", "--lfu-log-factor", "255")
		client := server.Client(t)
		s := redisstore.New(client, redisstore.Options{})
		h := &history{T: t}
		row := s.Key(hourly.Budget)
		for round := range 3 {
			for range 5 {
				h.book(s)
			}
			for i := 0; client.Exists(t.Context(), row).Val() == 1; i++ {
				_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
					key := fmt.Sprint("other", round, ":", i)
					p.Set(t.Context(), key, strings.Repeat("x", 100000), 1000*time.Hour)
					for range 5 { // more often than ours
						p.Touch(t.Context(), key)
					}
					return nil
				})
				require.NoError(t, err)
			}
			require.Greater(t, h.book(s).Wait, 59*time.Minute)
		}
	})
}

// TestP12_DeadConnections freezes all connections of a pool. Those that come later
// work, so the first call on a new one is answered, however many are dead: without
// that each would take its ReadTimeout, a minute here.
func TestP12_DeadConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	wire := redistest.NewWire(t, server.Addr)
	o := server.Options()
	o.Addr, o.ReadTimeout = wire.Addr, time.Minute
	client := clientOf(t, o)
	s := redisstore.New(client, redisstore.Options{})
	const groups = 12
	for client.PoolStats().IdleConns < groups {
		var all sync.WaitGroup
		for i := range groups {
			all.Go(func() {
				_, err := s.Book(t.Context(), booking(inGroup(fmt.Sprint(i), charge("many", store.PerSecond(1000000)))))
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	wire.Deafen()
	ctx := forAtMost(t, inTheEnd)
	g, err := s.Book(ctx, booking(hourly))
	require.NoError(t, err)
	require.Zero(t, g.Wait)
}

// TestP12_Frozen has callers whose Redis is behind a network that loses all obey
// their contexts. When it is back they are served, once.
func TestP12_Frozen(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	wire := redistest.NewWire(t, server.Addr)
	o := server.Options()
	o.Addr, o.ReadTimeout = wire.Addr, time.Second
	client := clientOf(t, o)
	s := redisstore.New(client, redisstore.Options{})
	h := &history{T: t}
	for range 4 {
		h.book(s)
	}
	wire.Freeze()
	refuses(t, s, wire.Addr)
	g := meanwhile(t, s, wire.Mend)
	require.Zero(t, g.Wait)
	h.starts = append(h.starts, g.Handle.Start)
	require.Positive(t, h.book(s).Wait)
}

// TestTLS books over TLS, and says what is wrong where it is not to be had. What fails,
// fails in virtual time, so it has failed before MaxWait is over however busy the machine
// is. A server that waits for more would let no virtual time pass.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.TLS(t)
	const secret = "sesame-52"
	do(t, server.Client(t), "CONFIG", "SET", "requirepass", secret)
	now := time.Now() // a certificate holds now, not when virtual time begins
	config := func(c *tls.Config) *tls.Config {
		c.Time = func() time.Time { return now }
		return c
	}
	known, mine := server.Config.RootCAs, server.Config.Certificates
	store := func(t *testing.T, addr string, c *tls.Config) *redisstore.Store {
		client := clientOf(t, &redis.Options{Addr: addr, TLSConfig: c, Password: secret})
		return redisstore.New(client, redisstore.Options{})
	}
	k := bookingFor(1500*time.Millisecond, hourly)
	for _, try := range []struct {
		name, addr string
		config     *tls.Config
		want       string
	}{
		{"unknown authority", server.TLSAddr, config(&tls.Config{}), "certificate signed by unknown authority"},
		{"no certificate", server.TLSAddr, config(&tls.Config{RootCAs: known}), "certificate required"},
		{"another name", server.TLSAddr, config(&tls.Config{RootCAs: known, ServerName: "redis.example"}), "wanted to match redis.example"},
		{"TLS here", server.TLSAddr, nil, server.TLSAddr + ": EOF"},
		{"fine", server.TLSAddr, config(&tls.Config{RootCAs: known, Certificates: mine}), ""},
	} {
		t.Run(try.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, err := atRest(t, store(t, try.addr, try.config)).Book(t.Context(), k)
				if try.want == "" {
					require.NoError(t, err)
					require.True(t, g.OK)
					return
				}
				require.ErrorContains(t, err, try.want)
				require.NotContains(t, err.Error(), secret)
			})
		})
	}
	t.Run("no TLS here", func(t *testing.T) {
		t.Parallel()
		_, err := store(t, server.Addr, server.Config).Book(t.Context(), k)
		require.ErrorContains(t, err, "no answer")
		require.NotContains(t, err.Error(), secret)
	})
}
