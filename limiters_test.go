package throttle_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// exact is exactly's policy under another name.
func exact(name string, l throttle.Limit) throttle.Policy {
	p := exactly(l)
	p.Name = name
	return p
}

// used returns how much of a budget counts now.
func used(t *testing.T, l *throttle.Limiters, policy, key string) int {
	t.Helper()
	st, err := must(l.Limiter(policy)).Status(t.Context(), key)
	require.NoError(t, err)
	return st.Used
}

func TestLimitersReportEveryMistakeAtOnce(t *testing.T) {
	l, err := throttle.NewLimiters(throttle.Config{Base: http.DefaultTransport, Policies: []throttle.Policy{{Name: "p"}}})
	require.Nil(t, l)
	require.Equal(t, []string{
		`throttle: Store: is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet`,
		`throttle: Base: is for a Transport: limiters send nothing`,
		`throttle: policy "p": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
	}, mistakes(err))
}

// TestAcquireRequest: policies match work that is described as a request.
func TestAcquireRequest(t *testing.T) {
	tenants := exact("tenant", throttle.PerHour(1))
	tenants.Match, tenants.Key = "queue.example/orders/{tenant}", throttle.PathValue("tenant")
	all := exact("all", throttle.PerHour(9))
	all.Match, all.Cost = "queue.example/", cost
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), MaxWait: -1, Policies: []throttle.Policy{tenants, all}}))
	require.NoError(t, acquired(l.AcquireRequest(get(t, "https://queue.example/orders/a?cost=3"))))
	require.Equal(t, 3, used(t, l, "all", ""))
	require.Equal(t, 1, used(t, l, "tenant", "a"))
	require.ErrorIs(t, acquired(l.AcquireRequest(get(t, "https://queue.example/orders/a?cost=3"))), throttle.ErrLimited)
	require.NoError(t, acquired(l.AcquireRequest(get(t, "https://elsewhere.example/orders/a"))), "no policy matches")
}
