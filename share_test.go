package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// byTenant is a policy whose shares are tenants.
func byTenant(l throttle.Limit) throttle.Policy {
	return throttle.Policy{Name: "api", Limit: l, Share: throttle.Header("X-Tenant")}
}

// TestP5_SharesOfRequests: a charge names the share, and not its name; the weight is what the request says.
func TestP5_SharesOfRequests(t *testing.T) {
	p := byTenant(throttle.PerSecond(10))
	p.Weight = func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("X-Weight")); return n }
	tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(p)}))
	request := func(tenant, weight string) *http.Request {
		r := must(http.NewRequest(http.MethodGet, "https://api.example.com/", nil))
		r.Header.Set("X-Tenant", tenant)
		r.Header.Set("X-Weight", weight)
		return r
	}
	require.Equal(t, store.Share{ID: store.ShareOf("api", "acme"), Weight: 4}, tr.Explain(request("acme", "4"))[0].Share)
	require.Equal(t, store.Share{ID: store.ShareOf("api", "other")}, tr.Explain(request("other", ""))[0].Share)
	require.Equal(t, store.Share{}, tr.Explain(request("", "9"))[0].Share)
	for _, id := range []uint64{store.ShareOf("api", "acme"), store.ShareOf("api", "other"), store.ShareOf("b", "acme")} {
		require.Greater(t, id, uint64(1))
		require.Less(t, id, uint64(1)<<53)
	}
	require.NotEqual(t, store.ShareOf("api", "acme"), store.ShareOf("b", "acme"))
	for _, weight := range []string{"-1", "1001"} {
		_, err := tr.RoundTrip(request("acme", weight))
		var mistake *throttle.ConfigError
		require.ErrorAs(t, err, &mistake)
		require.Equal(t, "Weight", mistake.Field)
	}
}

// TestP5_MistakesInShares: each has an error that names its field.
func TestP5_MistakesInShares(t *testing.T) {
	one := func(*http.Request) int { return 1 }
	panics := func(*http.Request) string { panic("secret") }
	for _, p := range []throttle.Policy{
		{Name: "a", Limit: throttle.PerSecond(1), Weight: one},
		{Name: "a", Limit: throttle.Concurrency(1), Share: throttle.Host},
		{Name: "a", Limit: throttle.Unlimited(), Share: throttle.Host},
	} {
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(p)})
		require.ErrorContains(t, err, "Share")
	}
	tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "a", Match: "/", Limit: throttle.PerSecond(1), Share: panics}}}))
	_, err := tr.RoundTrip(must(http.NewRequest(http.MethodGet, "https://api.example.com/", nil)))
	require.ErrorContains(t, err, `"a"`)
	require.ErrorContains(t, err, "Share")
	require.NotContains(t, err.Error(), "secret")

	l := must(throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
		{Name: "a", Limit: throttle.PerSecond(1)}, {Name: "flight", Limit: throttle.Concurrency(1)},
	}}))
	for _, d := range []throttle.Demand{
		{Policy: "a", Weight: 2}, {Policy: "a", Share: "x", Weight: -1}, {Policy: "a", Share: "x", Weight: 1001}, {Policy: "flight", Share: "x"},
	} {
		_, err := l.Acquire(t.Context(), d)
		require.ErrorAs(t, err, new(*throttle.ConfigError), "%+v", d)
	}
}

// TestP5_AShareDoesNotWaitForTheHeapOfAnother: it starts within the horizon and its own turn, and is told so: a
// MaxWait of half a second is enough, though a thousand of another share wait for 50 seconds.
func TestP5_AShareDoesNotWaitForTheHeapOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   memstore.New(), Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(20)}},
		}))
		heap, over := context.WithCancel(t.Context())
		for range 1000 {
			go func() { _, _ = l.Acquire(heap, throttle.Demand{Policy: "api", Share: "heap"}) }()
		}
		time.Sleep(3 * time.Second)
		for i := range 20 {
			begin := time.Now()
			_, err := l.Acquire(throttle.WithMaxWait(t.Context(), 500*time.Millisecond), throttle.Demand{Policy: "api", Share: "light"})
			require.NoError(t, err, i)
			require.Less(t, time.Since(begin), 400*time.Millisecond)
			time.Sleep(time.Second)
		}
		_, err := l.Acquire(throttle.WithMaxWait(t.Context(), 5*time.Second), throttle.Demand{Policy: "api", Share: "heap"})
		var refused *throttle.LimitError
		require.ErrorAs(t, err, &refused)
		require.Greater(t, refused.RetryAfter, 20*time.Second, "one more of the heap waits for the heap")
		over()
		synctest.Wait()
	})
}

// TestP5_SharesHaveTheirWeights: two shares that always ask for more get twice and once.
func TestP5_SharesHaveTheirWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   memstore.New(), Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(60)}},
		}))
		ctx, over := context.WithCancel(t.Context())
		var got [2]atomic.Int64
		for share := range got {
			for range 200 * (2 - share) {
				go func() {
					for {
						d := throttle.Demand{Policy: "api", Share: fmt.Sprint(share), Weight: 1 + share}
						if _, err := l.Acquire(ctx, d); err != nil {
							return
						}
						got[share].Add(1)
					}
				}()
			}
		}
		time.Sleep(2 * time.Second) // an idle budget lets those start at once that come first
		one, two := got[0].Load(), got[1].Load()
		time.Sleep(20 * time.Second)
		one, two = got[0].Load()-one, got[1].Load()-two
		over()
		synctest.Wait()
		require.InDelta(t, 2, float64(two)/float64(one), 0.1, "%d and %d", one, two)
	})
}
