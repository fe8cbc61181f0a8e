package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
	"github.com/fleetthrottle/throttle/store"
)

func TestBackoff_Stated(t *testing.T) {
	for _, c := range []struct {
		status int
		header []string
		want   time.Duration
	}{
		{500, nil, 0},
		{500, []string{"Retry-After", "30"}, 0},
		{503, nil, 0},
		{503, []string{"Retry-After", "30"}, 30 * time.Second},
		{429, nil, time.Second},
		{429, []string{"Retry-After", "0"}, 0},
		{429, []string{"Retry-After", "2.5"}, 2500 * time.Millisecond},
		{429, []string{"Retry-After", "-30"}, time.Second},
		{429, []string{"Retry-After", "300"}, retry.LongestWait},
		{429, []string{"Retry-After", "301"}, retry.LongestWait},
		{429, []string{"Retry-After", "86400"}, retry.LongestWait},
		{429, []string{"Retry-After", "10000000000"}, retry.LongestWait},
		{429, []string{"Retry-After", "99999999999999999999"}, time.Second},
		{429, []string{"Date", "Fri, 01 Mar 2030 10:00:00 GMT", "Retry-After", "Fri, 01 Mar 2030 10:00:30 GMT"}, 31 * time.Second},
	} {
		t.Run(fmt.Sprint(c.status, c.header), func(t *testing.T) {
			resp, err := answer(c.status, "", c.header...)(nil)
			require.NoError(t, err)
			require.Equal(t, c.want, retry.Backoff(0, 0, 3, resp))
		})
	}
	require.Zero(t, retry.Backoff(0, 0, 3, nil))
}

// TestBackoff_FullJitter: between nothing and a ceiling that doubles.
func TestBackoff_FullJitter(t *testing.T) {
	resp, err := answer(429, "", "Retry-After", "30")(nil)
	require.NoError(t, err)
	const stated = 30 * time.Second
	for _, c := range []struct {
		attempt int
		ceiling time.Duration
	}{{0, 1}, {1, 2}, {2, 4}, {3, 8}, {4, 10}, {5, 10}, {63, 10}, {1 << 30, 10}} {
		ceiling := c.ceiling * time.Second
		var quarter [4]int
		for range 1000 {
			d := retry.Backoff(time.Second, 10*time.Second, c.attempt, nil)
			require.GreaterOrEqual(t, d, time.Duration(0))
			require.Less(t, d, ceiling)
			quarter[4*d/ceiling]++

			d = retry.Backoff(time.Second, 10*time.Second, c.attempt, resp)
			require.GreaterOrEqual(t, d, stated)
			require.Less(t, d, stated+ceiling)
		}
		for _, n := range quarter { // 250 are expected, with a deviation of 14
			require.Greater(t, n, 100, "attempt %d: %v", c.attempt, quarter)
		}
	}
	require.Zero(t, retry.Backoff(-1, -1, 3, nil))
	require.Zero(t, retry.Backoff(time.Second, -1, 3, nil))
}

// TestPitfall_RetryAfter: what the default client makes of numbers that no one
// should sleep for: a day, nothing at all because the product overflows (so that
// all retries come at once), sixty years. Ours hands the answer over at once.
func TestPitfall_RetryAfter(t *testing.T) {
	for _, c := range []struct {
		field string
		usual []time.Duration
	}{
		{"86400", []time.Duration{0, 24 * time.Hour}},
		{"10000000000", []time.Duration{0, 0}},
		{"1893456000", []time.Duration{0, 1893456000 * time.Second}}, // in 2030, for a delay
	} {
		t.Run(c.field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, "later", "Retry-After", c.field), answer(200, ""))
				require.Equal(t, 200, status(t, usual(newTransport(t, up)), get(t)))
				require.Equal(t, c.usual, up.seen())
			})
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, "later", "Retry-After", c.field), answer(200, ""))
				require.Equal(t, 429, status(t, retry.NewClient(newTransport(t, up)), get(t)))
				require.Equal(t, []time.Duration{0}, up.seen())
			})
		})
	}
}

// TestPrivateWait: where no policy closes a budget, Retry-After is obeyed by the
// caller alone.
func TestPrivateWait(t *testing.T) {
	shadow, noPenalty := open, open
	shadow.Shadow = true
	noPenalty.Answer = feedback.LeaveOpen
	other := open
	other.Match = "other.example.com/"
	for _, c := range []struct {
		name     string
		policies []throttle.Policy
	}{
		{"no policy", nil},
		{"another's policy", []throttle.Policy{other}},
		{"a policy that sees no penalty", []throttle.Policy{noPenalty}},
		{"a shadow", []throttle.Policy{shadow}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, "", "Retry-After", "30"), answer(503, "", "Retry-After", "20"), answer(200, ""))
				require.Equal(t, 200, status(t, prompt(newTransport(t, up, c.policies...)), get(t)))
				require.Equal(t, []time.Duration{0, 30 * time.Second, 50 * time.Second}, up.seen())
			})
		})
	}
}

// A deafStore keeps budgets but cannot be told of penalties.
type deafStore struct{ throttle.Store }

func (deafStore) Pause(context.Context, store.Charge, time.Duration) error {
	return errors.New("not now")
}

func (deafStore) Refuse(context.Context, store.Charge, store.Refusal) (from, to float64, err error) {
	return 0, 0, errors.New("not now")
}

// TestPrivateWait_WhenThePenaltyWasNotStored: nothing is closed.
func TestPrivateWait_WhenThePenaltyWasNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "", "Retry-After", "30"), answer(200, ""))
		tr, err := throttle.New(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   deafStore{memstore.New()}, Policies: []throttle.Policy{open}, Base: up,
		})
		require.NoError(t, err)
		require.Equal(t, 200, status(t, prompt(tr), get(t)))
		require.Equal(t, []time.Duration{0, 30 * time.Second}, up.seen())
	})
}

// TestPrivateWait_ThatCannotFit is not begun.
func TestPrivateWait_ThatCannotFit(t *testing.T) {
	for _, c := range []struct {
		wait  time.Duration
		want  int
		times []time.Duration
	}{
		{30 * time.Second, 429, []time.Duration{0}},
		{31 * time.Second, 200, []time.Duration{0, 30 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(answer(429, "", "Retry-After", "30"), answer(200, ""))
			ctx, cancel := context.WithTimeout(t.Context(), c.wait)
			defer cancel()
			begin := time.Now()
			require.Equal(t, c.want, status(t, prompt(newTransport(t, up)), get(t).WithContext(ctx)))
			require.Equal(t, c.times, up.seen())
			require.Equal(t, c.times[len(c.times)-1], time.Since(begin))
		})
	}
}

// TestPrivateWait_EndsWithTheContext.
func TestPrivateWait_EndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(503, "", "Retry-After", "30"), answer(200, ""))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		begin := time.Now()
		_, err := prompt(newTransport(t, up)).Do(get(t).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.Len(t, up.seen(), 1)
	})
}
