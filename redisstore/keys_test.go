package redisstore_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// keys returns every key of the database.
func keys(t *testing.T, c redis.UniversalClient) []string {
	t.Helper()
	all, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	return all
}

// TestP14_NoSecrets sends requests that are full of secrets and looks for them in
// every command, in every key and in every value, also when the server fails.
func TestP14_NoSecrets(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tap := newTap(client, nil)
	secrets := []string{"tok-8821", "cust-4711", "dept-0815", "Bearer"}
	tr, err := throttle.New(throttle.Config{
		Store: redisstore.New(client, nil),
		Base:  ok{},
		Policies: []throttle.Policy{
			{Name: "token", Match: "api.example.com/", Key: throttle.Query("access_token"), Limit: throttle.PerHour(5)},
			{Name: "app", Match: "api.example.com/", Key: throttle.Header("Authorization"), Limit: throttle.PerHour(2)},
			{Name: "customer", Match: "api.example.com/customers/{id}", Key: throttle.PathValue("id"), Limit: throttle.PerHour(9)},
		},
		MaxWait: -1,
	})
	require.NoError(t, err)
	for i := range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://api.example.com/customers/cust-4711?access_token=tok-8821&dept=dept-0815", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer tok-8821")
		resp, err := tr.RoundTrip(r)
		if i < 2 {
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			continue
		}
		require.ErrorIs(t, err, throttle.ErrLimited)
	}
	var seen strings.Builder
	for _, cmd := range tap.cmds {
		fmt.Fprintln(&seen, cmd.Args(), cmd)
	}
	all := keys(t, client)
	require.Len(t, all, 4) // and the record of the last call
	for _, key := range all {
		value, err := client.Get(t.Context(), key).Result()
		require.NoError(t, err)
		fmt.Fprintln(&seen, key, value)
	}
	require.NotEmpty(t, tap.cmds)
	for _, secret := range secrets {
		require.NotContains(t, seen.String(), secret)
	}
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
	b := throttle.Budget{Policy: "app {and} API", Group: "ding{talk}.com"}
	for i := range b.Key {
		b.Key[i] = byte(i)
	}
	plain, cluster, ring := &redis.Client{}, &redis.ClusterClient{}, &redis.Ring{}
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		opts   *redisstore.Options
		want   string
	}{
		{"plain", plain, nil, "throttle:5:app %7Band%7D API:" + hash},
		{"no options", plain, &redisstore.Options{}, "throttle:5:app %7Band%7D API:" + hash},
		{"namespace", plain, &redisstore.Options{Namespace: "{a}b"}, "%7Ba%7Db:5:app %7Band%7D API:" + hash},
		{"percent", plain, &redisstore.Options{Namespace: "%7B:"}, "%257B::5:app %7Band%7D API:" + hash},
		{"hash tags", plain, &redisstore.Options{HashTags: true}, "throttle:5:{ding%7Btalk%7D.com}:app %7Band%7D API:" + hash},
		{"cluster", cluster, nil, "throttle:5:{ding%7Btalk%7D.com}:app %7Band%7D API:" + hash},
		{"ring", ring, nil, "throttle:5:{ding%7Btalk%7D.com}:app %7Band%7D API:" + hash},
	} {
		require.Equal(t, c.want, redisstore.New(c.client, c.opts).Key(b), c.name)
	}
	require.Equal(t, "throttle", redisstore.DefaultNamespace)
}

// TestP6_OneSlot asks a real cluster where the budgets of one booking lie. Groups
// themselves are spread.
func TestP6_OneSlot(t *testing.T) {
	t.Parallel() // its servers are its own
	servers := redistest.Cluster(t)
	client := servers.Client(t)
	s := redisstore.New(client, nil)
	slots := make(map[int64]bool)
	for i := range 20 {
		group := fmt.Sprintf("upstream{%d}.example.com", i)
		var charges []throttle.Charge
		inOne := make(map[int64]bool)
		for j := range 5 {
			c := inGroup(group, charge(fmt.Sprint("policy} ", j), throttle.PerHour(5)))
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

// TestNamespace shares budgets within one namespace and keeps them apart else.
func TestNamespace(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	one := charge("one", throttle.PerHour(1))
	in := func(name string) *redisstore.Store {
		return redisstore.New(client, &redisstore.Options{Namespace: name})
	}
	require.Zero(t, book(t, in("a"), one))
	require.Zero(t, book(t, in("b"), one))
	require.Zero(t, book(t, redisstore.New(client, nil), one))
	require.Greater(t, book(t, in("a"), one), 59*time.Minute)
	require.Greater(t, book(t, in(redisstore.DefaultNamespace), one), 59*time.Minute)
}

// TestTimesOf2200 needs all digits of a microsecond: the numbers are near those
// that a Lua number cannot hold any more.
func TestTimesOf2200(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2200, 2, 28, 23, 59, 59, 999_993_000, time.UTC)))
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		k := booking(charge("odd", throttle.SlidingWindow(1, 7*time.Microsecond)),
			charge("month", throttle.CalendarWindow(3, throttle.Month, time.UTC)))
		first, err := s.Book(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, time.Now().UnixMicro(), first.Handle.Start)
		for i := range 2 {
			g, err := s.Book(t.Context(), k)
			require.NoError(t, err)
			require.Equal(t, time.Duration(i+1)*8*time.Microsecond, g.Wait)
			require.Equal(t, first.Handle.Start+8*int64(i+1), g.Handle.Start)
		}
		s.Cancel(k, first)
		require.Equal(t, time.Duration(0), book(t, s, k.Charges...))
	})
}
