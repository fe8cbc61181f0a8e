package redisstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
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
		x, err := throttle.New(throttle.Config{Store: redisstore.New(client, redisstore.Options{}), Policies: policies, MaxWait: throttle.NoWait, Base: ok{}})
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
	_, err = limiter.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "", 1)
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
