package throttle_test

import (
	"errors"
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
		`throttle: policy "#2": Name: is missing; it names the policy in the store, in errors and in events`,
		`throttle: policy "pattern": Match: at offset 18: a segment "" matches nothing, because paths are cleaned first`,
		`throttle: policy "none": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
		`throttle: policy "good": Match: at offset 11: no path: end the host with a slash, "example.com/", to match all its paths`,
		`throttle: policy "good": Limit: 0 starts: allow at least 1`,
		`throttle: policy "good": Name: two policies have it; it must be unique`,
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

func TestNegativeCost(t *testing.T) {
	store := newSpy()
	tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{
		{Name: "p", Limit: throttle.PerSecond(1), Cost: func(*http.Request) int { return -3 }},
	}}))
	err := send(t, tr, get(t, home))
	require.EqualError(t, err, `throttle: policy "p": Cost: returned -3; 0 is the least`)
	var mistake *throttle.ConfigError
	require.ErrorAs(t, err, &mistake)
	require.Equal(t, "Cost", mistake.Field)
	require.Empty(t, store.booked())
}

func TestNewLimiterReportsEveryMistakeAtOnce(t *testing.T) {
	l, err := throttle.NewLimiter(nil, throttle.Policy{})
	require.Nil(t, l)
	require.Equal(t, []string{
		`throttle: Store: is required`,
		`throttle: policy "#1": Name: is missing; it names the policy in the store, in errors and in events`,
		`throttle: policy "#1": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
	}, mistakes(err))
}
