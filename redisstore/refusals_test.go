package redisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// learned has one of two programs told of a refusal, and returns both, the charge, and the
// start that was refused.
func learned(t *testing.T, client *redis.Client) (one, other *redisstore.Store, c store.Charge, refused store.Grant) {
	one, other = redisstore.New(client, redisstore.Options{}), redisstore.New(client, redisstore.Options{})
	c = charge("adaptive", store.PerMinute(40))
	c.Adaptive = true
	for range 24 {
		g := ask(t, one, booking(c))
		require.True(t, g.OK)
		refused = g
	}
	from, to, err := one.Refuse(t.Context(), c, store.Refusal{Start: refused})
	require.NoError(t, err)
	require.Equal(t, []float64{40, 21}, []float64{from, to})
	return one, other, c, refused
}

// TestAdaptive_TheFleetShares: what one program learns, all obey, and a call that is made
// again teaches nothing new.
func TestAdaptive_TheFleetShares(t *testing.T) {
	_, other, c, grant := learned(t, redistest.Shared(t).Client(t))
	st := status(t, other, c)
	require.Equal(t, 21, int(st.Ceiling))
	require.Positive(t, st.Wait)
	refused(t, other, c)
	from, to, err := other.Refuse(t.Context(), c, store.Refusal{Start: grant})
	require.NoError(t, err)
	require.Equal(t, from, to)

	firm := c
	firm.Adaptive = false
	require.True(t, ask(t, other, bookingFor(0, firm)).OK)
}

// TestAdaptive_KeysOutliveWhatTheyHold: a row is kept until its ceiling means nothing.
func TestAdaptive_KeysOutliveWhatTheyHold(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	one, _, c, _ := learned(t, client)
	left := lifetime(t, client, one.Key(c.Budget))
	require.InDelta(t, 4*13*time.Minute, left, float64(time.Minute))
}

// TestP1_AdaptiveAsMemstore is TestP1_AsMemstore for budgets that learn, of an upstream
// that refuses starts in spite of room. Both stores have the same ceilings.
func TestP1_AdaptiveAsMemstore(t *testing.T) {
	soak.WithoutRace(t)
	falls := 0
	for seed := range uint64(soak.Seeds(differentialSeeds, 5)) {
		runBubble(t, fmt.Sprint(seed), func(t *testing.T, server *redistest.Server) {
			client := server.Client(t)
			forgets(t, client) // over a connection that is there before years pass: one made later costs minutes
			d := newPair(t, 200+seed, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
			for d.op = range differentialOps {
				for i := range d.budgets {
					d.budgets[i].Adaptive = d.op%10 > 0
				}
				switch r := d.rng.IntN(100); {
				case r < 2:
					c := &d.budgets[d.rng.IntN(len(d.budgets))]
					c.Limit = store.TokenBucket(1+d.rng.IntN(1000), time.Minute, 1+d.rng.IntN(200))
					d.adorn(c)
				case r < 12:
					falls += d.refuse()
				case r < 22:
					c := d.budgets[d.rng.IntN(len(d.budgets))]
					d.book(store.Booking{Charges: []store.Charge{c}, MaxWait: -1})
				default:
					d.step()
				}
			}
		})
	}
	require.Greater(t, falls, 20)
}

// refuse tells both stores that the upstream refused one of the latest starts, compares
// what they learn, and returns 1 if a ceiling fell.
func (d *pair) refuse() int {
	old, ok := d.take()
	if d.rng.IntN(2) == 0 && len(d.grants) > 0 {
		old = d.grants[len(d.grants)-1]
	}
	if !ok {
		return 0
	}
	c, long := old.booking.Charges[d.rng.IntN(len(old.booking.Charges))], time.Duration(0)
	c.Adaptive = true
	if d.rng.IntN(2) == 0 {
		long = min(d.duration(), time.Minute)
	}
	r := store.Refusal{Length: long, Ago: d.duration(), Start: old.grant}
	from, to, err := d.mem.Refuse(d.Context(), c, r)
	require.NoError(d, err)
	rFrom, rTo, err := d.red.Refuse(d.Context(), c, r)
	require.NoError(d, err)
	require.Equal(d, [2]float64{from, to}, [2]float64{rFrom, rTo}, "operation %d: %+v at %d", d.op, c, old.grant.Handle.Start)
	if to < from {
		return 1
	}
	return 0
}

// TestP11_SlowStartOfACrowd serves many callers with one call after a penalty, when
// one goes first and then few: they start as if each had come by itself.
func TestP11_SlowStartOfACrowd(t *testing.T) {
	t.Parallel()
	const crowd = 80
	for _, limit := range []store.Limit{
		store.PerSecond(40), store.PerSecond(1000), store.PerHour(1000), store.FixedWindow(40, time.Second), store.TokenBucket(40, time.Second, 40),
	} {
		for name, pause := range map[string]time.Duration{"closed": 10 * time.Second, "open for one": 1900 * time.Millisecond, "open again": 1500 * time.Millisecond} {
			runBubble(t, limit.String()+" "+name, func(t *testing.T, server *redistest.Server) {
				client, same := server.Client(t), memstore.New()
				c := charge("budget", limit)
				s, _ := loaded(t, client, nil)
				require.NoError(t, s.Pause(t.Context(), c, pause))
				require.NoError(t, same.Pause(t.Context(), c, pause))
				time.Sleep(2 * time.Second)

				tap := newTap(client, isScript)
				bookAside(t.Context(), s, booking(charge("another", limit)))
				var all []**outcome
				for range crowd {
					all = append(all, bookAside(t.Context(), s, booking(c)))
				}
				tap.open()
				require.Len(t, tap.names(), 2, "one for another budget, one for all who came meanwhile")
				var got, want []time.Duration
				for _, o := range all {
					require.NoError(t, (*o).err)
					got, want = append(got, (*o).grant.Wait), append(want, book(t, same, c))
				}
				slices.Sort(got)
				require.Equal(t, want, got)
			})
		}
	}
}

// TestP11_TheProbeIsNoLongerAlone because Redis was away when it was told of the refusal.
func TestP11_TheProbeIsNoLongerAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := redisstore.New(server.Client(t), redisstore.Options{})
	for _, limit := range []store.Limit{store.PerSecond(400), store.Unlimited()} {
		c := charge(limit.String(), limit)
		_, err := s.Status(t.Context(), c) // it knows the server's clock
		require.NoError(t, err)
		server.Pause()
		told := make(chan error, 1)
		go func() {
			_, _, err := s.Refuse(t.Context(), c, store.Refusal{Length: time.Minute, Ago: 200 * time.Millisecond})
			told <- err
		}()
		time.Sleep(time.Second) // for so long Redis is away
		server.Continue()
		require.NoError(t, <-told)
		k := booking(c)
		k.Horizon = time.Hour
		probe := ask(t, s, k)
		require.InDelta(t, (400 * time.Millisecond).Microseconds(), ask(t, s, k).Handle.Start-probe.Handle.Start, 1, "twice as long as the refusal took")
	}
}

// TestP11_KeysOutliveABan: a ban that is met again is known for as long as that makes it
// longer, however short the window.
func TestP11_KeysOutliveABan(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	for _, limit := range []store.Limit{store.PerSecond(40), store.LeakyBucket(40, time.Second), store.Concurrency(2), store.Unlimited()} {
		c := charge(limit.String(), limit)
		_, _, err := s.Refuse(t.Context(), c, store.Refusal{Length: time.Minute, Ago: time.Second})
		require.NoError(t, err)
		key := s.Key(c.Budget)
		if limit.Kind() == store.KindConcurrency {
			key = s.LeasesKey(c.Budget)
		}
		left := lifetime(t, client, key)
		require.Greater(t, left, time.Minute+15*time.Second) // some seconds of which are the machine's
	}
}

// TestP11_KeysOutliveASlowStart looks at when the key of a budget expires, right
// after the penalty and after a booking.
func TestP11_KeysOutliveASlowStart(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	for _, limit := range []store.Limit{store.SlidingWindow(40, 20*time.Second), store.FixedWindow(40, 20*time.Second), store.TokenBucket(1, time.Second, 60)} {
		c := charge(limit.String(), limit)
		require.NoError(t, s.Pause(t.Context(), c, time.Hour))
		for range 2 {
			left := lifetime(t, client, s.Key(c.Budget))
			require.Greater(t, left, time.Hour+35*time.Second) // some seconds of which are the machine's
			b := bookingFor(lessThanAnHour, c)
			require.False(t, ask(t, s, b).OK)
		}
	}
}

// TestP11_APenaltyThatIsStoredLate tells of a penalty while the server hears nothing.
// When it does, it closes the budget for what is left.
func TestP11_APenaltyThatIsStoredLate(t *testing.T) {
	eachBubble(t, []store.Limit{store.PerSecond(5), store.Concurrency(5)}, func(t *testing.T, server *redistest.Server, limit store.Limit) {
		c := newSharers(t, server, 1, redisstore.Options{}, forty)
		s, five := c.nodes[0].store, charge("five", limit)
		book(t, s, five)
		away(true, c.nodes...)
		time.AfterFunc(2500*time.Millisecond, func() { back(c.nodes...) })
		require.NoError(t, s.Pause(t.Context(), five, 6*time.Second))
		require.Equal(t, 3500*time.Millisecond, status(t, s, five).Paused)
		c.end()
	})
}

// inTheEnd only keeps a failure from lasting forever; docs/run/redis.md has what was
// measured.
const inTheEnd = 2 * time.Minute

// lessThanAnHour is the MaxWait of callers that are refused at once, because they would wait for an hour. A
// caller that waits for nothing gives Redis one second, which a busy machine may need.
const lessThanAnHour = time.Minute

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
	saysWhy(t, "LOADING ", func() error {
		_, err := s.Book(t.Context(), k)
		return err
	})
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
// that each would take its ReadTimeout, an hour here.
func TestP12_DeadConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	wire := redistest.NewWire(t, server.Addr)
	o := server.Options()
	o.Addr, o.ReadTimeout = wire.Addr, time.Hour
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
