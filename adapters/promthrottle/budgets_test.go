package promthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/hotpath"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/store"
)

// TestBudgets: a scrape sees what budgets are like: full, closed, waited for.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: closing(table), Base: fake{}}))
		b := promthrottle.Budgets(transport)
		require.Equal(t, 1+2*9, testutil.CollectAndCount(b), "no budget with a key is used")
		require.NoError(t, get(transport, t.Context(), ""))
		require.InDelta(t, 2, gauge(t, b, "throttle_budget_limit", "calls"), 0)
		require.InDelta(t, 1, gauge(t, b, "throttle_budget_used", "calls"), 0)
		require.InDelta(t, 0, gauge(t, b, "throttle_budget_next_start_seconds", "calls"), 0)

		require.NoError(t, get(transport, t.Context(), "429"))
		time.Sleep(10 * time.Second)
		require.InDelta(t, 20, gauge(t, b, "throttle_budget_paused_seconds", "calls"), 0.1)
		require.Greater(t, gauge(t, b, "throttle_budget_next_start_seconds", "calls"), 19.0)
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = get(transport, ctx, "") }()
		synctest.Wait()
		require.InDelta(t, 1, gauge(t, b, "throttle_budget_waiting", "calls"), 0)
		require.InDelta(t, 1, gauge(t, b, "throttle_budget_waiting_callers", "calls"), 0)
		stop()
		require.InDelta(t, 1, gauge(t, b, "throttle_store_up", ""), 0)
		require.Equal(t, 1+3*9, testutil.CollectAndCount(b))
	})
}

// tenants is a table with a key.
func tenants(n int) []throttle.Policy {
	return []throttle.Policy{{Name: "tenant", Match: "example.com/", Limit: throttle.SlidingWindow(n, time.Hour), Jitter: -1, Key: throttle.Header("X-Tenant")}}
}

// TestBudgetsOfBookedStarts: a start that has come is used, and one that is to come is booked while its
// caller waits for it.
func TestBudgetsOfBookedStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Base: fake{}, Policies: []throttle.Policy{
			{Name: "calls", Match: "/", Limit: throttle.LeakyBucket(2, time.Second)},
		}}))
		b := promthrottle.Budgets(transport)
		require.NoError(t, get(transport, t.Context(), ""))
		go func() { _ = get(transport, t.Context(), "") }()
		synctest.Wait()
		for _, name := range []string{"throttle_budget_used", "throttle_budget_booked", "throttle_budget_waiting"} {
			require.InDelta(t, 1, gauge(t, b, name, "calls"), 0, name)
		}
		time.Sleep(time.Second)
		require.InDelta(t, 0, gauge(t, b, "throttle_budget_booked", "calls"), 0)
	})
}

// TestBudgetsTellShares: the shares that wait most, by hashed names, and all others together; nothing of them when nobody waits.
func TestBudgetsTellShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiters, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
			{Name: "model", Limit: throttle.PerSecond(10), Jitter: -1},
		}})
		require.NoError(t, err)
		b := promthrottle.Budgets(limiters)
		series := testutil.CollectAndCount(b)
		ctx, stop := context.WithCancel(t.Context())
		for range 10 {
			_, err := limiters.Acquire(ctx, throttle.Demand{Policy: "model", Share: "first"})
			require.NoError(t, err)
		}
		for tenant := range 20 {
			for range 5 + tenant {
				go func() {
					_, _ = limiters.Acquire(ctx, throttle.Demand{Policy: "model", Share: fmt.Sprint("tenant ", tenant)})
				}()
			}
		}
		synctest.Wait()
		require.Equal(t, series+2*17, testutil.CollectAndCount(b))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(b)
		values := func(name string) (all map[string]float64, sum float64) {
			all = make(map[string]float64)
			families, err := registry.Gather()
			require.NoError(t, err)
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == name {
						all[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
						sum += m.GetGauge().GetValue()
					}
				}
			}
			return all, sum
		}
		before, waited := values("throttle_share_waiting")
		_, had := values("throttle_share_served")
		require.Len(t, before, 17)
		require.Positive(t, before["other"])
		require.Positive(t, before[fmt.Sprintf("%014x", store.ShareOf("model", "tenant 19"))])
		time.Sleep(3 * time.Second)
		_, waits := values("throttle_share_waiting")
		_, has := values("throttle_share_served")
		require.Less(t, waits, waited)
		require.InDelta(t, waited-waits, has-had, 0)
		stop()
		synctest.Wait()
		require.Equal(t, series, testutil.CollectAndCount(b))
	})
}

// call sends a request of a tenant that never waits.
func call(t *throttle.Transport, tenant any) error {
	req, _ := http.NewRequest(http.MethodGet, "https://example.com/", nil)
	req.Header.Set("X-Tenant", fmt.Sprint(tenant))
	resp, err := t.RoundTrip(req.WithContext(throttle.WithMaxWait(context.Background(), -1)))
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// TestBudgetsWithKeys: the fullest of a policy's budgets stands for all, however many there are,
// and no label has a key. What is in use is not driven out by what comes once, but by what holds
// its callers.
func TestBudgetsWithKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: tenants(4), Base: fake{}}))
		b := promthrottle.Budgets(transport)
		require.Equal(t, 1, testutil.CollectAndCount(b), "none is used")
		for tenant := range 3 {
			for range tenant + 1 {
				require.NoError(t, call(transport, tenant))
			}
		}
		require.InDelta(t, 3, gauge(t, b, "throttle_budgets", "tenant"), 0)
		require.InDelta(t, 3, gauge(t, b, "throttle_budget_used", "tenant"), 0)
		require.InDelta(t, 4, gauge(t, b, "throttle_budget_limit", "tenant"), 0)

		time.Sleep(time.Second)
		for tenant := range 1000 {
			require.NoError(t, call(transport, 1000+tenant))
		}
		require.Equal(t, 1+9, testutil.CollectAndCount(b))
		require.InDelta(t, 16, gauge(t, b, "throttle_budgets", "tenant"), 0)
		require.InDelta(t, 3, gauge(t, b, "throttle_budget_used", "tenant"), 0)
		for range 3 {
			require.NoError(t, call(transport, 1999))
		}
		require.ErrorIs(t, call(transport, 1999), throttle.ErrLimited)
		require.InDelta(t, 4, gauge(t, b, "throttle_budget_used", "tenant"), 0, "one that is not among the first holds its caller")

		// What is not used for a minute makes room, and is forgotten after an hour.
		time.Sleep(time.Minute + 1)
		for tenant := range 16 {
			require.NoError(t, call(transport, 5000+tenant))
		}
		require.InDelta(t, 1, gauge(t, b, "throttle_budget_used", "tenant"), 0)
		time.Sleep(time.Hour + 1)
		require.Equal(t, 1, testutil.CollectAndCount(b))
	})
}

// TestBudgetsFollow the policies of their transport, without being told.
func TestBudgetsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: tenants(4), Base: fake{}}))
		b := promthrottle.Budgets(transport)
		require.InDelta(t, 1, gauge(t, b, "throttle_store_up", ""), 0)
		require.NoError(t, call(transport, "a"))
		require.NoError(t, transport.SetPolicies(append(tenants(9), table...)))
		require.InDelta(t, 9, gauge(t, b, "throttle_budget_limit", "tenant"), 0)
		require.InDelta(t, 2, gauge(t, b, "throttle_budget_limit", "calls"), 0)
		require.NoError(t, transport.SetPolicies(nil))
		require.Equal(t, 1, testutil.CollectAndCount(b))
		require.NoError(t, transport.SetPolicies(tenants(4)))
		require.Equal(t, 1, testutil.CollectAndCount(b), "a policy that was gone begins anew")
	})
}

// TestBudgetsOfAPreset: each row of DingTalk's table is seen when it is used, all of them with a
// key.
func TestBudgetsOfAPreset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policies := dingtalk.Policies(dingtalk.Options{})
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: policies, Base: fake{}}))
		b := promthrottle.Budgets(transport)
		require.Equal(t, 1, testutil.CollectAndCount(b))
		req, err := http.NewRequest(http.MethodGet, "https://oapi.dingtalk.com/user/get?access_token=secret", nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		for _, c := range transport.Explain(req) {
			require.InDelta(t, 1, gauge(t, b, "throttle_budgets", c.Budget.Policy), 0, c.Budget.Policy)
		}
	})
}

// TestSeveralSources: one collector tells of all transports of a program.
func TestSeveralSources(t *testing.T) {
	store := memstore.New()
	one := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: table[:1], Base: fake{}}))
	two, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: table[:2]})
	require.NoError(t, err)
	b := promthrottle.Budgets(one, two)
	require.NoError(t, get(one, t.Context(), ""))
	require.InDelta(t, 2, gauge(t, b, "throttle_budgets", "calls"), 0)
	require.InDelta(t, 1, gauge(t, b, "throttle_budget_used", "calls"), 0)
	require.InDelta(t, 1, gauge(t, b, "throttle_budgets", "trial"), 0)
}

// A lostStore does not say what budgets are like.
type lostStore struct{ throttle.Store }

func (lostStore) Status(context.Context, store.Charge) (throttle.Status, error) {
	return throttle.Status{}, errors.New("away")
}

// TestStoreAway: a store that is away is one metric, and no failed scrape, also if no budget is
// known, or all are the program's own.
func TestStoreAway(t *testing.T) {
	for name, policies := range map[string][]throttle.Policy{
		"some": table, "keys": tenants(4), "none": nil,
		"own": {{Name: "own", Match: "/", Limit: throttle.PerSecond(1), Scope: throttle.ScopeNode}},
	} {
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: lostStore{memstore.New()}, Policies: policies}))
		r := prometheus.NewPedanticRegistry()
		require.NoError(t, r.Register(promthrottle.Budgets(transport)))
		families, err := r.Gather()
		require.NoError(t, err)
		require.Len(t, families, 1, name)
		require.Equal(t, "throttle_store_up", families[0].GetName())
		require.Zero(t, families[0].GetMetric()[0].GetGauge().GetValue(), name)
	}
}

// TestClosedUntil: the end that is told is the last one of a policy's budgets, and falls when
// a budget is open earlier than it was to be.
func TestClosedUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promthrottle.New()
		observe := func(k throttle.EventKind, budget string, d time.Duration) {
			m.Observe(t.Context(), throttle.Event{Kind: k, Policy: "calls", Budget: budget, Duration: d})
		}
		in := func() time.Duration {
			until := gauge(t, m, "throttle_closed_until_timestamp_seconds", "calls")
			return time.Until(time.UnixMilli(int64(until * 1000))).Round(time.Second)
		}
		observe(throttle.EventPenalized, "a", time.Minute)
		observe(throttle.EventClosed, "b", time.Hour)
		observe(throttle.EventPenalized, "b", time.Second) // belongs to it
		require.Equal(t, time.Hour, in())
		observe(throttle.EventOpened, "a", 0)
		require.Equal(t, time.Hour, in())
		observe(throttle.EventClosed, "a", 2*time.Hour)
		observe(throttle.EventOpened, "a", 0)
		require.Equal(t, time.Hour, in())
		observe(throttle.EventOpened, "b", 0)
		require.Zero(t, in())
		time.Sleep(time.Second)
		observe(throttle.EventOpened, "b", 0) // known already
		require.Equal(t, -time.Second, in())

		// One that ended by itself does not count as ended when a caller starts.
		observe(throttle.EventClosed, "a", time.Second)
		time.Sleep(time.Minute)
		observe(throttle.EventOpened, "a", 0)
		require.Equal(t, -59*time.Second, in())

		// Of too many budgets, those that are not known do not fall.
		for i := range 65 {
			observe(throttle.EventClosed, fmt.Sprint(i), time.Duration(i+1)*time.Minute)
		}
		for i := range 65 {
			observe(throttle.EventOpened, fmt.Sprint(i), 0)
		}
		require.Equal(t, 65*time.Minute, in())
	})
}

// A quiet logger keeps the client from telling that Redis is away: that is what is tested.
type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

// BenchmarkObserve is what metrics add to a request that nothing holds.
func BenchmarkObserve(b *testing.B) { hotpath.Benchmark(b, promthrottle.New().Observe) }

// BenchmarkBudgets is what it adds to such a request that Budgets is scraped.
func BenchmarkBudgets(b *testing.B) { hotpath.BenchmarkStatuses(b) }
