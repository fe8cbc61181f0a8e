package redisstore_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// keys returns every key of the database.
func keys(t *testing.T, c redis.UniversalClient) []string {
	t.Helper()
	all, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	return all
}

// lifetime returns for how long a key lives.
func lifetime(t *testing.T, c redis.UniversalClient, key string) time.Duration {
	t.Helper()
	left, err := c.PTTL(t.Context(), key).Result()
	require.NoError(t, err)
	return left
}

// requireSmall checks every key of the database.
func requireSmall(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	all := keys(t, c)
	require.NotEmpty(t, all)
	for _, key := range all {
		bytes, err := c.MemoryUsage(t.Context(), key, 0).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, bytes, int64(4096), key)
		require.Positive(t, lifetime(t, c, key), key)
	}
}

// A use is a way to use a budget; each call is one booking or a pause.
type use struct {
	name string
	ops  int
	step func(rng *rand.Rand, k *store.Booking) (pause time.Duration)
}

var uses = []use{
	{"steady", 300, func(_ *rand.Rand, k *store.Booking) time.Duration {
		k.MaxWait = 0
		return max(k.Charges[0].Limit.Per(), time.Second) / 700
	}},
	{"bursty", 300, func(rng *rand.Rand, k *store.Booking) time.Duration {
		if rng.IntN(40) > 0 {
			return time.Duration(rng.IntN(1000)) * time.Microsecond
		}
		return time.Duration(rng.Int64N(int64(k.Charges[0].Limit.Per())/4 + int64(time.Minute))).Truncate(time.Microsecond)
	}},
	{"deep", 300, func(rng *rand.Rand, k *store.Booking) time.Duration {
		k.Charges[0].Cost = 1 + rng.IntN(max(1, k.Charges[0].Limit.N()/20))
		k.Spread = time.Duration(rng.IntN(50_000)) * time.Microsecond
		return time.Duration(rng.IntN(300_000)) * time.Microsecond
	}},
	{"overload", 1500, func(rng *rand.Rand, k *store.Booking) time.Duration {
		k.Charges[0].Cost = max(1, k.Charges[0].Limit.N()/250-rng.IntN(1000))
		return time.Duration(rng.Int64N(int64(max(k.Charges[0].Limit.Per(), time.Second)) / 150)).Truncate(time.Microsecond)
	}},
}

// TestP10_Memory uses budgets of every kind in every way. No key is ever larger
// than 4 KB or without an expiry.
func TestP10_Memory(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	limits := []store.Limit{
		store.PerSecond(20), store.PerHour(1_000_000), store.SlidingWindow(10_000, 20*time.Second),
		store.SlidingWindow(min(1<<40, math.MaxInt), 30*24*time.Hour), store.SlidingWindow(100, 365*24*time.Hour),
		store.FixedWindow(1_000_000, time.Hour), store.LeakyBucket(40, time.Second),
		store.LeakyBucket(1_000_000, 24*time.Hour), store.CalendarWindow(1_000_000, store.Month, time.UTC),
	}
	for k, u := range uses {
		for i, limit := range limits {
			if (k+i)%soak.Most(1, 5) > 0 {
				continue
			}
			runBubble(t, fmt.Sprint(u.name, " ", limit), func(t *testing.T, server *redistest.Server) {
				client := server.Client(t)
				s := redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
				rng := rand.New(rand.NewPCG(10, uint64(i)))
				for op := range u.ops {
					k := booking(charge("budget", limit))
					pause := u.step(rng, k)
					ask(t, s, k)
					if op%50 == 0 {
						requireSmall(t, client)
					}
					time.Sleep(pause)
				}
				requireSmall(t, client)
			})
		}
	}
}

// TestP10_ManyWaiters has a queue for each kind that is very deep.
func TestP10_ManyWaiters(t *testing.T) {
	eachBubble(t, []store.Limit{store.PerSecond(20), store.PerHour(1000), store.LeakyBucket(7, time.Second)}, func(t *testing.T, server *redistest.Server, limit store.Limit) {
		client := server.Client(t)
		s, tap := loaded(t, client, isScript)
		c := charge("deep", limit)
		c.Pace = time.Millisecond
		crowd := soak.Most(10_000, 1_000)
		for range crowd {
			go s.Book(t.Context(), booking(c))
		}
		synctest.Wait()
		tap.open()
		st := status(t, s, c)
		require.GreaterOrEqual(t, st.Waiting, crowd-limit.N()) // some have started
		require.GreaterOrEqual(t, st.Wait, time.Duration(crowd/limit.N())*limit.Per())
		requireSmall(t, client)
	})
}

// TestP10_SizeDoesNotGrowWithN fills windows of very different n in the same
// hundred steps.
func TestP10_SizeDoesNotGrowWithN(t *testing.T) {
	soak.WithoutRace(t)
	eachBubble(t, []int{1000, 1_000_000, 1_000_000_000}, func(t *testing.T, server *redistest.Server, n int) {
		client := server.Client(t)
		s := redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
		c := charge("budget", store.SlidingWindow(n, time.Minute))
		c.Cost = n / 1000
		for range 1200 {
			require.Zero(t, book(t, s, c))
			time.Sleep(time.Minute / 980)
		}
		entries, err := client.StrLen(t.Context(), s.Key(c.Budget)).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, entries, int64(2000))
	})
}

// TestP10_IdleKeysExpire lets real time pass, but by so little that a row is
// surely over: its window is a microsecond.
func TestP10_IdleKeysExpire(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	c := charge("brief", store.SlidingWindow(1, time.Microsecond))
	// The key of a row that is over lasts for a second. A machine that stands still for longer finds no key, and books again.
	const noKey = -2
	left := time.Duration(noKey)
	for left == noKey {
		book(t, s, c)
		left = lifetime(t, client, s.Key(c.Budget))
	}
	require.Positive(t, left)
	require.LessOrEqual(t, left, 1001*time.Millisecond)

	require.NoError(t, s.Pause(t.Context(), c, time.Hour))
	left = lifetime(t, client, s.Key(c.Budget))
	require.Greater(t, left, time.Hour)
}

// TestP10_KeysInVirtualTime: keys outlive those of production by what the tests count with.
func TestP10_KeysInVirtualTime(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		c := charge("brief", store.SlidingWindow(1, time.Microsecond))
		book(t, s, c)
		require.LessOrEqual(t, lifetime(t, client, s.Key(c.Budget)), longer+1001*time.Millisecond)
		require.Greater(t, lifetime(t, client, s.Key(c.Budget)), longer/2, "the machine may be slow")
		require.Greater(t, lifetime(t, client, s.RecordKey(c.Budget.Group)), longer/2, "a program takes a lost record for a loss of data")
	})
}

// TestP10_ACrowdOfKeys has somebody send another key with every request, some of
// them huge: what each leaves behind is small, and gone soon after its window.
func TestP10_ACrowdOfKeys(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	const crowd = 1000
	client := redistest.Shared(t).Client(t)
	tr := throttle.Must(throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   redisstore.New(client, redisstore.Options{}), Base: ok{},
		Policies: []throttle.Policy{{Name: "crowd", Match: "/", Key: throttle.Header("X-Tenant"), Limit: store.PerHour(9)}}, // no key ends before the last is made
	}))
	for n := range crowd {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
		require.NoError(t, err)
		r.Header.Set("X-Tenant", strings.Repeat("x", n*n%99_991)+"y"+strings.Repeat("z", n))
		resp, err := tr.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	bytes, budgets := int64(0), 0
	for _, key := range keys(t, client) {
		life := lifetime(t, client, key)
		require.Positive(t, life, key)
		require.LessOrEqual(t, life, time.Hour+3*time.Second, key)
		if strings.Contains(key, ":crowd:") {
			used, err := client.MemoryUsage(t.Context(), key).Result()
			require.NoError(t, err)
			budgets, bytes = budgets+1, bytes+used
		}
	}
	require.Equal(t, crowd, budgets)
	require.Less(t, bytes/crowd, int64(500))
	t.Logf("%d bytes a budget", bytes/crowd)
}

// A filling is a limit, and for how long its starts may be used: so wide are the entries.
type filling struct {
	limit  store.Limit
	spread time.Duration
}

// String names the test of a filling.
func (f filling) String() string { return f.limit.String() }

var fillings = []filling{
	{store.SlidingWindow(1_000_000, 4*time.Second), 120 * time.Millisecond},
	{store.SlidingWindow(min(1<<40, math.MaxInt), 30*24*time.Hour), 4 * time.Hour},
	{store.FixedWindow(min(1<<40, math.MaxInt), 10*24*time.Hour), 2 * time.Hour},
	{store.SlidingWindow(1_000_000, time.Hour), 25 * time.Second},
	{store.SlidingWindow(100, 30*24*time.Hour), 4 * time.Hour},
	{store.CalendarWindow(min(1<<40, math.MaxInt), store.Month, time.UTC), 4 * time.Hour},
	{store.LeakyBucket(1<<30, 4*time.Second), 0},
	{store.TokenBucket(1<<30, 24*time.Hour, 1<<30), time.Hour},
}

// TestP10_FullRowsWithLines: a row that is full of wide entries takes no more than 4 KB with a
// line of all priorities that has as many holes as it can, and with a long name.
func TestP10_FullRowsWithLines(t *testing.T) {
	soak.WithoutRace(t)
	eachBubble(t, fillings[:soak.Most(len(fillings), 3)], func(t *testing.T, server *redistest.Server, f filling) {
		client := server.Client(t)
		s := atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		rng := rand.New(rand.NewPCG(10, 250))
		c := charge(strings.Repeat("x", 250), f.limit)
		n, per := f.limit.Capacity(), cmp.Or(f.limit.Per(), 30*24*time.Hour)
		c.Cost = max(1, n/240)
		for range 240 {
			k := bookingFor(0, c)
			k.Spread = f.spread - time.Duration(rng.Int64N(int64(f.spread)/8+1)).Truncate(time.Microsecond)
			ask(t, s, k)
			requireSmall(t, client)
			time.Sleep((per / 240).Truncate(time.Microsecond))
		}
		for i := range 240 { // what is left is taken, and more
			c.Cost = max(1, n/160)
			k := booking(c)
			k.Spread = f.spread - time.Duration(i)*time.Microsecond
			ask(t, s, k)
			requireSmall(t, client)
		}
		var waiters []*walker
		for p := store.PriorityLow; p <= store.PriorityHigh; p++ {
			for range 20 {
				c.Cost = max(1, n/8)
				waiters = append(waiters, walks(t, s, p, c))
			}
		}
		for i, w := range waiters {
			if i%2 == 1 {
				w.leaves()
			}
			requireSmall(t, client)
		}
		for i, w := range waiters {
			if i%2 == 0 {
				w.leaves()
			}
			requireSmall(t, client)
		}
	})
}

// TestP3_FullRowsAreUsed: a row that is as large as it may be, of starts that are spread in time and
// cost so much that some 250 fit, is used to the full. Each start needs its spread beside the window.
func TestP3_FullRowsAreUsed(t *testing.T) {
	windows := slices.DeleteFunc(slices.Clone(fillings), func(f filling) bool { return f.limit.Kind() != store.KindSlidingWindow })
	eachBubble(t, windows[:soak.Most(len(windows), 1)], func(t *testing.T, server *redistest.Server, f filling) {
		const spans, left = 5, 2 // windows, of which some fill the row
		s := atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock))
		rng := rand.New(rand.NewPCG(3, 250))
		c := charge("full", f.limit)
		c.Cost = max(1, f.limit.N()/250)
		begin, starts, per := time.Now(), 0, f.limit.Per()
		for i := 0; time.Since(begin) < spans*per; {
			k := bookingFor(0, c)
			k.Spread = f.spread - time.Duration(rng.Int64N(int64(f.spread)/8+1)).Truncate(time.Microsecond)
			g := ask(t, s, k)
			if !g.OK {
				time.Sleep(max(g.Wait, time.Microsecond))
				continue
			}
			if time.Since(begin) >= left*per {
				starts++
			}
			i++ // the next comes when it is due, unless it is late
			time.Sleep(time.Until(begin.Add(per * time.Duration(i) / time.Duration(f.limit.N()/c.Cost))).Truncate(time.Microsecond))
		}
		used := float64(starts*c.Cost) / float64(f.limit.N()) / (spans - left)
		require.GreaterOrEqual(t, used, 0.99*float64(per)/float64(per+f.spread))
	})
}

// ok is an upstream that likes everything.
type ok struct{}

func (ok) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// TestKeys compares whole keys: the namespace, the version of the stored form,
// the group where it is of use, the policy, and the hash.
func TestKeys(t *testing.T) {
	t.Parallel()
	const hash = "AAECAwQFBgcICQoLDA0ODw"
	b := store.Budget{Policy: "app {and} API", Group: "ding{talk}.com"}
	for i := range b.Key {
		b.Key[i] = byte(i)
	}
	plain, cluster, ring := &redis.Client{}, &redis.ClusterClient{}, &redis.Ring{}
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		opts   redisstore.Options
		want   string
	}{
		{"plain", plain, redisstore.Options{}, "throttle:7:app %7Band%7D API:" + hash},
		{"no options", plain, redisstore.Options{}, "throttle:7:app %7Band%7D API:" + hash},
		{"namespace", plain, redisstore.Options{Namespace: "{a}b"}, "%7Ba%7Db:7:app %7Band%7D API:" + hash},
		{"percent", plain, redisstore.Options{Namespace: "%7B:"}, "%257B::7:app %7Band%7D API:" + hash},
		{"hash tags", plain, redisstore.Options{HashTags: true}, "throttle:7:{throttle}:app %7Band%7D API:" + hash},
		{"hash tags of a namespace", plain, redisstore.Options{HashTags: true, Namespace: "{a}b"}, "%7Ba%7Db:7:{%7Ba%7Db}:app %7Band%7D API:" + hash},
		{"cluster", cluster, redisstore.Options{}, "throttle:7:{throttle}:app %7Band%7D API:" + hash},
		{"ring", ring, redisstore.Options{}, "throttle:7:{throttle}:app %7Band%7D API:" + hash},
	} {
		require.Equal(t, c.want, redisstore.New(c.client, c.opts).Key(b), c.name)
	}
	require.Equal(t, "throttle", redisstore.DefaultNamespace)
}

// TestP6_OneSlot asks a real cluster where budgets lie: those of a namespace in one slot, whatever their
// groups, and those of many namespaces on all masters.
func TestP6_OneSlot(t *testing.T) {
	t.Parallel() // its servers are its own
	servers := redistest.Cluster(t)
	client := servers.Client(t)
	slots := make(map[int64]bool)
	for i := range 20 {
		s := redisstore.New(client, redisstore.Options{Namespace: fmt.Sprintf("team{%d}", i)})
		var charges []store.Charge
		inOne := make(map[int64]bool)
		for j := range 5 {
			c := inGroup(fmt.Sprint("upstream", j, ".example"), charge(fmt.Sprint("policy} ", j), store.PerHour(5)))
			slot, err := client.ClusterKeySlot(t.Context(), s.Key(c.Budget)).Result()
			require.NoError(t, err)
			slots[slot], inOne[slot] = true, true
			charges = append(charges, c)
		}
		require.Len(t, inOne, 1)
		require.Zero(t, book(t, s, charges...))
	}
	require.Len(t, slots, 20)
	for _, server := range servers.Servers {
		require.NotEmpty(t, keys(t, server.Client(t)))
	}
}

// TestP6_OneBudgetForOneName: on a cluster, programs whose other policies differ share the budget of a policy that
// both have. A hash tag that followed the other policies would give the fleet twice the limit.
func TestP6_OneBudgetForOneName(t *testing.T) {
	t.Parallel() // its servers are its own
	client := redistest.Cluster(t).Client(t)
	row := throttle.Policy{Name: "orders", Match: "api.example.com/", Limit: throttle.PerHour(1)}
	wide := throttle.Policy{Name: "all", Match: "/", Limit: throttle.PerHour(100)}
	transport := func(policies ...throttle.Policy) func() error {
		x, err := throttle.New(throttle.Config{Store: redisstore.New(client, redisstore.Options{}), Policies: policies, MaxWait: lessThanAnHour, Base: ok{}})
		require.NoError(t, err)
		return func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/orders", nil)
			require.NoError(t, err)
			_, err = x.RoundTrip(req)
			return err
		}
	}
	byName := row
	byName.Match = ""
	limiter, err := throttle.NewLimiter(redisstore.New(client, redisstore.Options{}), byName)
	require.NoError(t, err)

	require.NoError(t, transport(row)())
	require.ErrorIs(t, transport(row, wide)(), throttle.ErrLimited, "beside a policy of all hosts")
	_, err = limiter.Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "", 1)
	require.ErrorIs(t, err, throttle.ErrLimited, "of a limiter")
}

// TestNamespace shares budgets within one namespace and keeps them apart else.
func TestNamespace(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	one := charge("one", store.PerHour(1))
	in := func(name string) *redisstore.Store {
		return redisstore.New(client, redisstore.Options{Namespace: name})
	}
	require.Zero(t, book(t, in("a"), one))
	require.Zero(t, book(t, in("b"), one))
	require.Zero(t, book(t, redisstore.New(client, redisstore.Options{}), one))
	require.Greater(t, book(t, in("a"), one), 59*time.Minute)
	require.Greater(t, book(t, in(redisstore.DefaultNamespace), one), 59*time.Minute)
}

// TestP12_AKeyThatHoldsGarbage: a budget whose key holds something else, or only a
// part of what it should, is as one that Redis has lost, and no script runs on and
// on. Some of these made a search that never ended.
func TestP12_AKeyThatHoldsGarbage(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	limits := []store.Limit{
		store.PerSecond(3), store.CalendarWindow(30, store.Day, nil), store.TokenBucket(1, time.Second, 5),
		store.LeakyBucket(3, time.Second), store.FixedWindow(3, time.Second), store.Concurrency(20),
	}
	dice := rand.New(rand.NewPCG(5, 2))
	served := 0
	many := soak.Most(300, 60)
	for i := range many {
		synctest.Test(t, func(t *testing.T) {
			c := server.Client(t)
			s := atRest(t, redisstore.NewAt(c, redisstore.Options{}, bubbleClock))
			limit := limits[i%len(limits)]
			ch := charge(fmt.Sprint("garbage ", i), limit)
			key := s.Key(ch.Budget)
			if limit.Kind() == store.KindConcurrency {
				key = s.LeasesKey(ch.Budget)
			}
			for range dice.IntN(6) {
				time.Sleep(time.Duration(dice.IntN(500)) * time.Millisecond)
				book(t, s, ch)
			}
			spoil(t, c, key, dice)

			fresh := atRest(t, redisstore.NewAt(c, redisstore.Options{}, bubbleClock))
			status(t, fresh, ch)
			g := ask(t, fresh, booking(ch))
			served += map[bool]int{true: 1}[g.OK]
			require.NoError(t, fresh.Pause(t.Context(), ch, time.Second))
			ttl := lifetime(t, c, key)
			require.Positive(t, ttl, "P10: it has an expiry again")
			fresh.Cancel(booking(ch), g)
		})
	}
	// Of a number that was changed nobody can tell, if it makes some sense.
	require.Greater(t, served, many*29/30)
}

// spoil changes what a key holds: some numbers, some bytes, its length, or all.
func spoil(t *testing.T, c redis.UniversalClient, key string, dice *rand.Rand) {
	t.Helper()
	raw, err := c.Get(t.Context(), key).Bytes()
	if err != nil || dice.IntN(4) == 0 {
		raw = make([]byte, 1+dice.IntN(400))
		for i := range raw {
			raw[i] = byte(dice.IntN(256))
		}
	}
	switch dice.IntN(3) {
	case 0:
		raw = slices.Grow(raw, 8)
		at := min(8*dice.IntN(redisstore.HeadNumbers), max(0, len(raw)-8))
		odd := forgedNumbers[dice.IntN(len(forgedNumbers))]
		copy(raw[at:], binary.LittleEndian.AppendUint64(nil, math.Float64bits(odd)))
	case 1:
		for range 1 + dice.IntN(4) {
			raw[dice.IntN(len(raw))] = byte(dice.IntN(256))
		}
	case 2:
		raw = raw[:dice.IntN(len(raw))]
	}
	require.NoError(t, c.Set(t.Context(), key, raw, redis.KeepTTL).Err())
}

// TestP12_ABadKeyIsItsOwnTrouble: somebody else's list stands at one budget's
// key. Callers of other budgets that share its calls are served.
func TestP12_ABadKeyIsItsOwnTrouble(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	l := limiter(t, redisstore.New(client, redisstore.Options{}), throttle.Policy{Name: "p", Limit: store.PerSecond(1000), Keyed: true})
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "bad", 1)
	require.NoError(t, err)
	bad := client.Keys(t.Context(), "*:p:*").Val()
	require.Len(t, bad, 1)
	client.Del(t.Context(), bad[0])
	require.NoError(t, client.LPush(t.Context(), bad[0], "x").Err())

	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			if i%3 == 0 {
				_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "bad", 1)
				var store *throttle.StoreError
				if !errors.As(err, &store) {
					t.Errorf("want a StoreError, got %v", err)
				}
				return
			}
			if _, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), fmt.Sprint("good", i%30), 1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
