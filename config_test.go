package throttle_test

import (
	"errors"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// mistakes returns the texts of all errors that were joined, in their order.
func mistakes(err error) []string {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, mistakes(e)...)
		}
		return all
	}
	return []string{err.Error()}
}

func TestConfigReportsEveryMistakeAtOnce(t *testing.T) {
	tr, err := throttle.New(throttle.Config{Policies: []throttle.Policy{
		{Name: "good", Limit: throttle.PerSecond(1)},
		{Limit: throttle.PerSecond(1)},
		{Name: "pattern", Match: "GET example.com/a//b", Limit: throttle.PerSecond(1)},
		{Name: "none"},
		{Name: "good", Match: "example.com", Limit: throttle.PerSecond(0)},
		{Name: "short", Limit: throttle.FixedWindow(1, 20*time.Millisecond)},
	}})
	require.Nil(t, tr)
	require.Equal(t, []string{
		`throttle: Store: is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet`,
		`throttle: policy "#2": Name: is missing: it names the policy in the store, in errors and in events`,
		`throttle: policy "pattern": Match: at offset 18: a segment "" matches nothing, because paths are cleaned first`,
		`throttle: policy "none": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
		`throttle: policy "good": Match: at offset 11: no path: end the host with a slash, "example.com/", to match all its paths`,
		`throttle: policy "good": Limit: 0 starts: allow at least 1`,
		`throttle: policy "good": Name: two policies have this name: give each its own`,
		`throttle: policy "short": Limit: a fixed window of 20ms has no room for a start that may arrive 35ms late: ` +
			`use a longer window, or set Policy.Jitter to less than the window (negative for none)`,
	}, mistakes(err))

	var first *throttle.ConfigError
	require.ErrorAs(t, err, &first)
	require.Empty(t, first.Policy)
	require.Equal(t, "Store", first.Field)
	require.NotErrorIs(t, err, throttle.ErrLimited)
}

func TestConfigErrorUnwraps(t *testing.T) {
	cause := errors.New("wrong")
	err := &throttle.ConfigError{Policy: "p", Field: "Match", Err: cause}
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, `throttle: policy "p": Match: wrong`)
}

func TestJitterOfAFixedWindow(t *testing.T) {
	short := throttle.FixedWindow(1, 20*time.Millisecond)
	for _, jitter := range []time.Duration{-1, 19 * time.Millisecond} {
		_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{
			{Name: "short", Limit: short, Jitter: jitter},
		}})
		require.NoError(t, err, jitter)
	}
}

func TestHeadroomAndScopeThatCannotBe(t *testing.T) {
	shares := func(p throttle.Priority, share float64) map[throttle.Priority]float64 {
		return map[throttle.Priority]float64{p: share}
	}
	for _, c := range []struct {
		policy throttle.Policy
		want   string
	}{
		{throttle.Policy{Headroom: shares(throttle.Low, 1)}, `Headroom: low must leave 1 free: use a share from 0 to below 1`},
		{throttle.Policy{Headroom: shares(throttle.High, -0.1)}, `Headroom: high must leave -0.1 free: use a share from 0 to below 1`},
		{throttle.Policy{Headroom: shares(throttle.Normal, math.NaN())}, `Headroom: normal must leave NaN free: use a share from 0 to below 1`},
		{throttle.Policy{Headroom: shares(2, 0.5)}, `Headroom: priority 2 is no priority: use Low, Normal or High`},
		{throttle.Policy{Headroom: shares(throttle.Low, 0.5), Limit: throttle.LeakyBucket(1, time.Second)},
			`Headroom: a leaky bucket spaces starts out and has no share to leave free: use a window or a token bucket`},
		{throttle.Policy{Scope: 2}, `Scope: 2 is no scope: use Fleet or Node`},
	} {
		c.policy.Name = "p"
		if c.policy.Limit == (throttle.Limit{}) {
			c.policy.Limit = throttle.PerSecond(10)
		}
		_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{c.policy}})
		require.EqualError(t, err, `throttle: policy "p": `+c.want)
		_, err = throttle.NewLimiter(memstore.New(), c.policy)
		require.EqualError(t, err, `throttle: policy "p": `+c.want)
	}
}

func TestHeadroomInUnitsOfTheLimit(t *testing.T) {
	for _, c := range []struct {
		limit throttle.Limit
		share float64
		want  int
	}{
		{throttle.PerSecond(10), 0, 0},
		{throttle.PerSecond(10), 0.2, 2},
		{throttle.PerSecond(10), 0.21, 3}, // rounded up
		{throttle.PerSecond(10), 0.99, 9}, // the last unit may be used
		{throttle.PerSecond(1), 0.5, 0},
		{throttle.TokenBucket(1, time.Minute, 20), 0.25, 5},
		{throttle.FixedWindow(4, time.Minute), 0.5, 2},
		{throttle.Concurrency(5), 0.5, 3},
		{throttle.LeakyBucket(5, time.Second), 0, 0},
	} {
		tr := newTransport(t, answer(200, ""), throttle.Policy{
			Name: "p", Limit: c.limit, Headroom: map[throttle.Priority]float64{throttle.Low: c.share},
		})
		r := get(t, home)
		low := r.WithContext(throttle.WithPriority(t.Context(), throttle.Low))
		require.Equal(t, c.want, tr.Explain(low)[0].Reserve, "%v of %v", c.share, c.limit)
		for _, p := range []throttle.Priority{throttle.Normal, throttle.High, -128, 127} {
			other := r.WithContext(throttle.WithPriority(t.Context(), p))
			require.Zero(t, tr.Explain(other)[0].Reserve, "%v", p)
		}
	}
}

func TestScopeOfACharge(t *testing.T) {
	tr := newTransport(t, answer(200, ""),
		throttle.Policy{Name: "fleet", Limit: throttle.PerSecond(1)},
		throttle.Policy{Name: "node", Limit: throttle.PerSecond(1), Scope: throttle.Node})
	charges := tr.Explain(get(t, home))
	require.False(t, charges[0].Node)
	require.True(t, charges[1].Node)
}

func TestZeroConfigNeedsOnlyAStore(t *testing.T) {
	tr, err := throttle.New(throttle.Config{Store: memstore.New()})
	require.NoError(t, err)
	require.Same(t, http.DefaultTransport, tr.Unwrap())
}

func TestMust(t *testing.T) {
	require.PanicsWithError(t, "throttle: Store: is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet", func() {
		throttle.Must(throttle.New(throttle.Config{}))
	})
	require.NotNil(t, throttle.Must(throttle.New(throttle.Config{Store: memstore.New()})))
}

func TestNewLimiterReportsEveryMistakeAtOnce(t *testing.T) {
	l, err := throttle.NewLimiter(nil, throttle.Policy{})
	require.Nil(t, l)
	require.Equal(t, []string{
		`throttle: Store: is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet`,
		`throttle: policy "#1": Name: is missing: it names the policy in the store, in errors and in events`,
		`throttle: policy "#1": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
	}, mistakes(err))
}
