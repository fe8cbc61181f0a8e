package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/memstore"
)

// tenants is a policy with a budget for each tenant.
var tenants = throttle.Policy{Name: "tenants", Limit: throttle.PerHour(5), Key: throttle.Header("X-Tenant")}

// sendAs sends a request of a tenant.
func sendAs(t *testing.T, tr *throttle.Transport, tenant string) {
	t.Helper()
	r := get(t, home)
	r.Header.Set("X-Tenant", tenant)
	require.NoError(t, send(t, tr, r))
}

// TestStatuses: of each budget that is used it is said once what it is like, also to limiters, and the
// demands of one with another key count.
func TestStatuses(t *testing.T) {
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{tenants, {Name: "all", Limit: throttle.PerHour(9)}}}))
	all, err := l.Statuses(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, d := range []throttle.Demand{{Policy: "tenants", Key: "a", Cost: 3}, {Policy: "tenants", Key: "a"}, {Policy: "tenants", Key: "b"}, {Policy: "all"}, {Policy: "all", Key: "c"}} {
		must(l.Acquire(t.Context(), d))
	}
	must(must(l.Limiter("tenants")).Acquire(t.Context(), "d", 2))
	all, err = l.Statuses(t.Context())
	require.NoError(t, err)
	used := make(map[string]int)
	for _, b := range all {
		used[fmt.Sprintf("%s %d", b.Budget.Policy, b.Used)]++
	}
	require.Equal(t, map[string]int{"tenants 4": 1, "tenants 1": 1, "tenants 2": 1, "all 1": 2}, used)
}

// A countingStore counts what it is asked at a time, and answers after a while.
type countingStore struct {
	throttle.Store
	now, most, all atomic.Int64
}

func (s *countingStore) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	s.all.Add(1)
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case <-time.After(100 * ms):
		return s.Store.Status(ctx, c)
	case <-ctx.Done():
		return throttle.Status{}, ctx.Err()
	}
}

// TestStatusesAreBounded: however many policies there are, the store is asked little at a time, and
// nothing more when the time is over.
func TestStatusesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policies := make([]throttle.Policy, 100)
		for i := range policies {
			policies[i] = throttle.Policy{Name: fmt.Sprint(i), Limit: throttle.PerHour(5)}
		}
		store := &countingStore{Store: memstore.New()}
		tr := must(throttle.New(throttle.Config{Store: store, Policies: policies}))
		all, err := tr.Statuses(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 100)
		require.Equal(t, int64(16), store.most.Load())

		store.all.Store(0)
		ctx, stop := context.WithTimeout(t.Context(), 250*ms)
		defer stop()
		all, err = tr.Statuses(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorAs(t, err, new(*throttle.StoreError))
		require.Len(t, all, 32)
		require.Equal(t, int64(48), store.all.Load())
	})
}

// TestNobodyAsksForStatuses: what is not asked for within an hour is not noted any more.
func TestNobodyAsksForStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, ""), Policies: []throttle.Policy{tenants}}))
		known := func() int { return len(must(tr.Statuses(t.Context()))) }
		sendAs(t, tr, "a")
		require.Zero(t, known(), "nobody had asked before")
		sendAs(t, tr, "a")
		require.Equal(t, 1, known())
		time.Sleep(time.Hour)
		sendAs(t, tr, "b") // and all is forgotten
		sendAs(t, tr, "c")
		require.Zero(t, known())
	})
}

// TestAFailureCanBeAskedAbout: the context of an event that says that the store failed lets an
// observer ask whether that is so still. A store that answers the question and not the callers is
// away.
func TestAFailureCanBeAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q outage.Question
		store := absent([2]time.Duration{0, time.Second}) // whose Status always answers
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{
			{Name: "own", Limit: throttle.PerHour(9), Scope: throttle.Node}, onePerSecond,
		}, Observe: func(ctx context.Context, e throttle.Event) {
			if e.Kind == throttle.Started {
				require.Nil(t, outage.QuestionOf(ctx))
				return
			}
			q = outage.QuestionOf(ctx)
			require.NotNil(t, q, e.Kind)
			require.Error(t, q.Ask(ctx), e.Kind)
		}}))
		go func() { line(t, tr, 1, home) }()
		time.Sleep(500 * ms)
		synctest.Wait()
		require.Error(t, q.Ask(t.Context()))
		_, err := tr.Statuses(t.Context())
		require.Error(t, err)
		time.Sleep(time.Second)
		require.NoError(t, q.Ask(t.Context()))
		_, err = tr.Statuses(t.Context())
		require.NoError(t, err)
	})
}

// TestStatusesDoNotAllocate: that budgets are noted costs callers no memory.
func TestStatusesDoNotAllocate(t *testing.T) {
	resp := &http.Response{StatusCode: 200, Body: http.NoBody}
	own := tenants
	own.Limit = throttle.PerSecond(1 << 30)
	tr := must(throttle.New(throttle.Config{
		Store: memstore.New(), MaxWait: -1, Policies: []throttle.Policy{own},
		Base: base(func(*http.Request) (*http.Response, error) { return resp, nil }),
	}))
	req := get(t, home)
	allocs := func() float64 {
		return testing.AllocsPerRun(1000, func() {
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		})
	}
	before := allocs()
	must(tr.Statuses(t.Context()))
	require.Equal(t, before, allocs())
	require.Len(t, must(tr.Statuses(t.Context())), 1)
}
