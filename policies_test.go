package throttle_test

import (
	"net/http"
	"strconv"
	"testing"

	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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
