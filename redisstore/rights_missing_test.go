package redisstore_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// everything does all that a store can do, in two stores of a user with those
// rights. It returns the first error.
func everything(t *testing.T, server *redistest.Server, rights []string) error {
	t.Helper()
	admin := server.Client(t)
	do(t, admin, "FLUSHALL")
	do(t, admin, "SCRIPT", "FLUSH")
	o := server.User(t, "throttle", rights)
	ctx := forAtMost(t, inTheEnd)
	var stores []*redisstore.Store
	for range 2 {
		client := clientOf(t, o)
		stores = append(stores, redisstore.New(client, redisstore.Options{}))
	}
	for _, s := range stores {
		for _, policy := range []throttle.Policy{
			{Name: "window", Limit: store.PerHour(128)},
			{Name: "bucket", Limit: store.TokenBucket(100, time.Second, 200)},
			{Name: "flight", Limit: store.Concurrency(2)},
		} {
			if err := exercise(ctx, s, policy); err != nil {
				return err
			}
		}
	}
	return nil
}

// exercise does with one policy what can be done.
func exercise(ctx context.Context, s store.Store, policy throttle.Policy) error {
	l, err := throttle.NewLimiter(s, policy)
	if err != nil {
		return err
	}
	for i := range 50 { // of two stores: twice as many as make a row long
		p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		if err != nil {
			return err
		}
		if i < 10 {
			if err := p.Tell(ctx, throttle.Answer{}.WithCost(2)); err != nil {
				return err
			}
		}
		p.Release()
	}
	if err := l.Pause(ctx, "", 10*time.Millisecond); err != nil {
		return err
	}
	if _, err := l.Status(ctx, ""); err != nil {
		return err
	}
	p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
	if err != nil {
		return err
	}
	p.Release()
	return nil
}

// TestRights: the line suffices. Without one of its rights nothing works, and the
// error says which is missing; or, where the fleet only hears of things later,
// everything does.
func TestRights(t *testing.T) {
	t.Parallel()
	rights := redistest.Rights(t, rightsPage, "throttle")
	server := redistest.Single(t)
	require.NoError(t, everything(t, server, rights))
	quiet := []string{"+publish", "+subscribe", "+ping", "&throttle:*"}
	for i, right := range rights {
		t.Run(right, func(t *testing.T) {
			err := everything(t, server, slices.Delete(slices.Clone(rights), i, i+1))
			switch {
			case slices.Contains(quiet, right):
				require.NoError(t, err)
			case right == "~throttle:*":
				require.ErrorContains(t, err, "(it needs ~NAMESPACE:*)")
			default:
				require.Error(t, err, "a right that nothing needs")
				require.Regexp(t, `'`+right[1:]+`'|it needs \`+right+`, as docs/run/redis.md says`, err.Error())
				require.NotContains(t, err.Error(), redistest.Password)
			}
		})
	}
}

// TestRights_AMissingRightIsFinal: callers that share a call have its error, after no other
// call, because the script may have done what comes before the command that it was denied. When
// the right is given, the next call works.
func TestRights_AMissingRightIsFinal(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rights := redistest.Rights(t, rightsPage, "throttle")
	o := server.User(t, "throttle", rights)
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(t, o)
		s := atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		c := charge("window", store.PerHour(100))
		book(t, s, c) // from now on the server knows the script
		tap := newTap(client, isScript)
		server.User(t, "throttle", slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return right == "+setrange" }))
		var all []**outcome // the first is on its way, the others queue behind it
		for range 11 {
			all = append(all, bookAside(t.Context(), s, booking(c)))
		}
		require.Equal(t, []string{"evalsha"}, tap.names())
		tap.open()
		for _, got := range all {
			require.Regexp(t, `'setrange'|it needs \+setrange`, (*got).err.Error())
		}
		require.Equal(t, []string{"evalsha"}, tap.names())
		server.User(t, "throttle", rights)
		book(t, s, c)
	})
}

// TestRights_HalfAScript: a right is missing for a while, and scripts do what comes before the
// command that they are denied. Then all works again, and the limit has held.
func TestRights_HalfAScript(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rights := redistest.Rights(t, rightsPage, "throttle")
	o := server.User(t, "throttle", rights)
	for i, right := range rights {
		synctest.Test(t, func(t *testing.T) {
			s := atRest(t, redisstore.NewAt(clientOf(t, o), redisstore.Options{}, bubbleClock))
			c := charge("window of "+right, store.PerHour(100))
			starts := 0
			start := func() error {
				time.Sleep(time.Millisecond)
				g, err := s.Book(t.Context(), bookingFor(0, c))
				if err == nil && g.OK && g.Wait == 0 {
					starts++
				}
				return err
			}
			for range 40 {
				require.NoError(t, start())
			}
			server.User(t, "throttle", slices.Delete(slices.Clone(rights), i, i+1))
			for range 20 {
				_ = start()
			}
			server.User(t, "throttle", rights)
			for range 80 {
				require.NoError(t, start(), right)
			}
			require.LessOrEqual(t, starts, 100, right)
			st := status(t, s, c)
			require.GreaterOrEqual(t, st.Used, starts, right)
			require.LessOrEqual(t, st.Used, 100, right)
			left := server.Client(t).PTTL(t.Context(), s.Key(c.Budget)).Val()
			require.Positive(t, left, "it expires")
			time.Sleep(2 * time.Hour)
			require.NoError(t, start())
		})
	}
}

// instead starts something that is not Redis.
func instead(t *testing.T, serve func(net.Conn)) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// TestTheWrongServer: whatever is asked in Redis' place, the error says where that
// is and what it said, and keeps the password to itself.
func TestTheWrongServer(t *testing.T) {
	t.Parallel() // its servers are its own
	const secret = "sesame-52"
	server := redistest.Single(t)
	do(t, server.Client(t), "CONFIG", "SET", "requirepass", secret)
	http := instead(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}
	})
	echo := instead(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	sentinel := redistest.Sentinel(t).Sentinel.Addr
	for _, try := range []struct {
		name string
		o    redis.Options
		want string
	}{
		{"no password", redis.Options{Addr: server.Addr}, server.Addr + ": NOAUTH Authentication required."},
		{"wrong password", redis.Options{Addr: server.Addr, Password: secret + "x"}, server.Addr + ": WRONGPASS "},
		{"wrong database", redis.Options{Addr: server.Addr, Password: secret, DB: 99}, server.Addr + ": ERR DB index is out of range"},
		{"HTTP", redis.Options{Addr: http, Password: secret}, http + `: redis: can't parse map reply: "HTTP/1.1 400 Bad Request"`},
		{"echo", redis.Options{Addr: echo, Password: secret}, echo + ": "},
		{"a Sentinel", redis.Options{Addr: sentinel}, sentinel + ": ERR unknown command 'evalsha'"},
		{"nobody", redis.Options{Addr: "127.0.0.1:1", Password: secret}, "dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(try.name, func(t *testing.T) {
			client := clientOf(t, &try.o)
			k := bookingFor(1500*time.Millisecond, hourly)
			saysWhy(t, try.want, func() error {
				_, err := redisstore.New(client, redisstore.Options{}).Book(t.Context(), k)
				require.ErrorContains(t, err, "redisstore: ")
				require.NotContains(t, err.Error(), secret)
				return err
			})
		})
	}
	t.Run("no password, and a call that is long", func(t *testing.T) {
		_, err := redisstore.New(clientOf(t, &redis.Options{Addr: server.Addr}), redisstore.Options{}).Book(t.Context(), manyRows())
		require.ErrorContains(t, err, "NOAUTH Authentication required (set Username and Password of the client): ERR Protocol error: unauthenticated ")
		require.Equal(t, outage.Denied, outage.CauseOf(err), "as if the server had said NOAUTH")
	})
	t.Run("a Sentinel that knows no such master", func(t *testing.T) {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "other", SentinelAddrs: []string{sentinel}, Password: secret})
		defer client.Close()
		_, err := redisstore.New(client, redisstore.Options{}).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "(no Sentinel knows a master of that name)")
	})
	t.Run("no cluster", func(t *testing.T) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, Password: secret})
		defer client.Close()
		_, err := redisstore.New(client, redisstore.Options{}).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "ERR This instance has cluster support disabled")
	})
}

// manyRows is a booking under a table of six rows, whose call has more arguments than a server takes from
// a client that has not given its password.
func manyRows() *store.Booking {
	var charges []store.Charge
	for i := range 6 {
		c := hourly
		c.Budget.Key[0] = byte(i)
		charges = append(charges, c)
	}
	return booking(charges...)
}

// TestCauses: a failure is of one of three kinds.
func TestCauses(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := server.Client(t)
	policy := throttle.Policy{Name: "p", Limit: store.PerSecond(9)}
	for _, c := range []struct {
		name  string
		cause outage.Cause
		when  func(o *redis.Options)
	}{
		{"wrong password", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "right", "reset", "on", ">right", "~*", "&*", "+@all")
			o.Username, o.Password = "right", "wrong"
		}},
		{"no such user", outage.Denied, func(o *redis.Options) { o.Username, o.Password = "nobody", "wrong" }},
		{"no scripts", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "weak", "reset", "on", ">weak", "~*", "&*", "+@all", "-evalsha")
			o.Username, o.Password = "weak", "weak"
		}},
		{"no command of a script", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "weaker", "reset", "on", ">weak", "~*", "&*", "+@all", "-time")
			o.Username, o.Password = "weaker", "weak"
		}},
		{"another's key", outage.Failed, func(o *redis.Options) {
			o.DB = 3
			client := clientOf(t, o)
			_, err := limiter(t, redisstore.New(client, redisstore.Options{}), policy).Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
			require.NoError(t, err)
			keys, err := client.Keys(t.Context(), "*:p:*").Result()
			require.NoError(t, err)
			require.Len(t, keys, 1)
			do(t, client, "DEL", keys[0])
			do(t, client, "LPUSH", keys[0], "x")
		}},
		{"nobody there", outage.Away, func(o *redis.Options) { o.Addr = "127.0.0.1:1" }},
	} {
		o := server.Options()
		c.when(o)
		l := limiter(t, redisstore.New(clientOf(t, o), redisstore.Options{}), policy)
		ctx := forAtMost(t, inTheEnd)
		if c.cause == outage.Away {
			ctx = throttle.WithMaxWait(ctx, soon)
		}
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		require.Error(t, err, c.name)
		require.Equal(t, c.cause, outage.CauseOf(err), "%s: %v", c.name, err)
	}
}

// TestAProxyThatReadsScripts: all works behind a proxy that takes a script only if each key stands there
// as KEYS[…], as those of Alibaba Cloud do.
func TestAProxyThatReadsScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	call, keyed := regexp.MustCompile(`redis\.p?call\('([A-Z]+)', ([^\n]*)`), regexp.MustCompile(`^KEYS\[[^\]]+\][,)]`)
	refused := atomic.Int64{}
	reads := middle(func(cmd redis.Cmder, next func() error) error {
		for _, m := range call.FindAllStringSubmatch(cmd.Args()[1].(string), -1) {
			if m[1] != "PUBLISH" && !keyed.MatchString(m[2]) {
				refused.Add(1)
				return failing(cmd, said("ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array"))
			}
		}
		return next()
	})
	for range 2 {
		client := server.Client(t)
		client.AddHook(reads)
		s := redisstore.New(client, redisstore.Options{HashTags: true})
		for _, policy := range []throttle.Policy{
			{Name: "window", Limit: store.PerHour(128)},
			{Name: "bucket", Limit: store.TokenBucket(100, time.Second, 200)},
			{Name: "flight", Limit: store.Concurrency(2)},
		} {
			require.NoError(t, exercise(forAtMost(t, inTheEnd), s, policy))
		}
	}
	require.Equal(t, int64(2), refused.Load(), "once for each client")
}
