package throttle_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// cost reads a request's cost from its URL.
func cost(r *http.Request) int {
	n, _ := strconv.Atoi(r.URL.Query().Get("cost"))
	return n
}

func TestExplain(t *testing.T) {
	store := newSpy()
	sent := base(func(*http.Request) (*http.Response, error) {
		t.Error("Explain sends nothing")
		return nil, http.ErrAbortHandler
	})
	tr := must(throttle.New(throttle.Config{Store: store, Base: sent, Policies: []throttle.Policy{
		{Name: "all", Limit: throttle.PerSecond(5)},
		{Name: "elsewhere", Match: "example.org/", Limit: throttle.PerSecond(5)},
		{Name: "by path", Match: "example.com/", Key: throttle.Path, Limit: throttle.LeakyBucket(5, time.Second), Jitter: -1, Shadow: true},
		{Name: "by cost", Match: "example.com/", Cost: cost, Limit: throttle.PerMinute(100), Jitter: ms},
	}}))

	charges := tr.Explain(get(t, home+"a?cost=7"))
	group := charges[0].Budget.Group
	for i := range charges {
		require.NotZero(t, charges[i].Budget.Key)
		require.Equal(t, group, charges[i].Budget.Group, "budgets of one booking share it")
		charges[i].Budget = throttle.Budget{Policy: charges[i].Budget.Policy}
	}
	require.Equal(t, []throttle.Charge{
		{Budget: throttle.Budget{Policy: "all"}, Limit: throttle.PerSecond(5), Cost: 1, Jitter: throttle.DefaultJitter, Pace: 180 * ms},
		{Budget: throttle.Budget{Policy: "by path"}, Limit: throttle.LeakyBucket(5, time.Second), Cost: 1, Shadow: true},
		{Budget: throttle.Budget{Policy: "by cost"}, Limit: throttle.PerMinute(100), Cost: 7, Jitter: ms, Pace: 2500 * us},
	}, charges)

	key := func(url string) [16]byte { return tr.Explain(get(t, url))[1].Budget.Key }
	require.Equal(t, key(home+"a"), key(home+"a?x=1"))
	require.NotEqual(t, key(home+"a"), key(home+"b"))

	require.Len(t, tr.Explain(get(t, home+"a?cost=0")), 2, "what is free is left out")
	require.Len(t, tr.Explain(get(t, "https://example.net/")), 1)
	require.Empty(t, store.booked())
}

func TestCostZeroPassesAFullBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerHour(3), Cost: cost, Jitter: -1})
		for _, query := range []string{"?cost=3", "?cost=0", "?cost=1", "?cost=0"} {
			require.NoError(t, send(t, tr, get(t, home+query)))
		}
		require.Equal(t, []time.Duration{0, 0, time.Hour + us, time.Hour + us}, s.seen())
	})
}

func TestKeySplitsThePolicyIntoBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, throttle.Policy{
			Name: "shop", Match: "{shop}.example.com/admin/{id}",
			Key: throttle.Join(throttle.PathValue("shop"), throttle.PathValue("id")), Limit: throttle.PerHour(1), Jitter: -1,
		})
		for _, url := range []string{
			"https://a.example.com/admin/1", "https://b.example.com/admin/1", "https://a.example.com/admin/2",
			"https://a.example.com/", "https://a.example.com/", // matched by no policy
			"https://A.example.com/admin/1?q",
		} {
			require.NoError(t, send(t, tr, get(t, url)))
		}
		require.Equal(t, []time.Duration{0, 0, 0, 0, 0, time.Hour + us}, s.seen())
	})
}

func TestAllMatchingPoliciesApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s,
			throttle.Policy{Name: "everything", Limit: throttle.PerHour(3), Jitter: -1},
			throttle.Policy{Name: "host", Match: "example.com/", Limit: throttle.PerMinute(2), Jitter: -1},
			throttle.Policy{Name: "path", Match: "POST example.com/a", Limit: throttle.PerSecond(1), Jitter: -1})
		for range 3 {
			r := get(t, home+"a")
			r.Method = http.MethodPost
			require.NoError(t, send(t, tr, r))
		}
		require.NoError(t, send(t, tr, get(t, "https://example.org/")))
		require.Equal(t, []time.Duration{0, time.Second + us, time.Minute + us, time.Hour + us}, s.seen())
	})
}

func TestNoPolicyMatches(t *testing.T) {
	store, seen := newSpy(), &events{}
	tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Observe: seen.observe, MaxWait: -1,
		Policies: []throttle.Policy{{Name: "p", Match: "example.org/", Limit: throttle.PerHour(1)}}}))
	for range 3 {
		require.NoError(t, send(t, tr, get(t, home)))
	}
	require.Empty(t, store.booked())
	require.Empty(t, seen.kinds())
}

func TestShadowCountsAndReportsButNeverHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s, seen := memstore.New(), newStarts(), &events{}
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Observe: seen.observe, Policies: []throttle.Policy{
			{Name: "shadow", Limit: throttle.PerHour(1), Jitter: -1, Shadow: true},
			{Name: "real", Limit: throttle.PerSecond(1), Jitter: -1},
		}}))
		line(t, tr, 2, home)
		second := time.Second + us
		require.Equal(t, []time.Duration{0, second}, s.seen())
		require.Equal(t, []throttle.EventKind{
			throttle.Started, throttle.Waiting, throttle.Shadowed, throttle.Started,
		}, seen.kinds())
		require.Equal(t, throttle.Event{
			Kind: throttle.Shadowed, Policy: "shadow", Budget: tr.Explain(get(t, home))[0].Budget.String(),
			Limit: throttle.PerHour(1), Duration: time.Hour + us - second,
		}, seen.first(t, throttle.Shadowed), "how much later the start would have been")
		require.Equal(t, "real", seen.first(t, throttle.Waiting).Policy)
		require.Equal(t, 2, status(t, store, tr, get(t, home)).Used)
	})
}

func TestShadowNeverRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memstore.New(), newStarts()
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, MaxWait: -1, Policies: []throttle.Policy{
			{Name: "shadow", Limit: throttle.PerHour(2), Cost: cost, Shadow: true},
		}}))
		for _, query := range []string{"?cost=2", "?cost=2", "?cost=5"} {
			require.NoError(t, send(t, tr, get(t, home+query)))
		}
		require.Equal(t, []time.Duration{0, 0, 0}, s.seen())
		require.Equal(t, 6, status(t, store, tr, get(t, home+"?cost=1")).Used, "a cost above the limit counts as far as it can")
	})
}
