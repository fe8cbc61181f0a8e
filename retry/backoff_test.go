package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
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

// TestBackoff_Stated: without a random part, Backoff returns the time that an answer states, and at most LongestWait.
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

// says is a policy whose upstream asks in each refusal to come back so soon.
func says(d time.Duration) throttle.Policy {
	return throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(1000), Answer: func(resp *http.Response) throttle.Answer {
		if resp.StatusCode != 429 {
			return throttle.Answer{}
		}
		return throttle.Refused(d)
	}}
}

// TestStorm: fifty callers are told to try again in six milliseconds, for five
// seconds. Nobody is lost.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		up := base(func(r *http.Request) (*http.Response, error) {
			if time.Since(begin) < 5*time.Second {
				return answer(429, "")(r)
			}
			return answer(200, "")(r)
		})
		client := retry.NewClient(newTransport(t, up, says(6*time.Millisecond)))
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if resp, err := client.Do(get(t)); err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
				}
			})
		}
		all.Wait()
	})
}

// TestBackoff_BeyondAPenalty: from half of a ceiling that doubles to all of it, unless
// the budget is closed for longer.
func TestBackoff_BeyondAPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			penalty     time.Duration
			attempt     int
			least, most time.Duration
		}{
			{6 * time.Millisecond, 0, 500 * time.Millisecond, time.Second},
			{6 * time.Millisecond, 2, 2 * time.Second, 4 * time.Second},
			{6 * time.Millisecond, 9, 5 * time.Second, 10 * time.Second},
			{3 * time.Second, 1, 0, 0},
			{time.Hour, 9, 0, 0},
			{0, 2, 0, 5 * time.Second}, // a second on top
		} {
			resp, err := newTransport(t, answer(429, ""), says(c.penalty)).RoundTrip(get(t).Request)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			for range 100 {
				d := retry.Backoff(time.Second, 10*time.Second, c.attempt, resp)
				require.GreaterOrEqual(t, d, c.least, "%v", c)
				require.LessOrEqual(t, d, c.most, "%v", c)
			}
		}
	})
}

// TestStorm_WithADeadline: no back-off goes beyond it. The caller gets the last answer,
// or hears that the budget is closed for longer: both say more than that time is up.
func TestStorm_WithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := retry.NewClient(newTransport(t, newUpstream(answer(429, "")), says(6*time.Millisecond)))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		resp, err := client.Do(get(t).WithContext(ctx))
		if err != nil {
			require.ErrorIs(t, err, throttle.ErrLimited)
		} else {
			require.Equal(t, 429, resp.StatusCode)
		}
		require.Less(t, time.Since(begin), 3*time.Second)
	})
}

// A lateStore hears of penalties after ten seconds.
type lateStore struct{ throttle.Store }

func (s lateStore) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	time.Sleep(10 * time.Second)
	return s.Store.Pause(ctx, c, d)
}

func (s lateStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	time.Sleep(10 * time.Second)
	return s.Store.Refuse(ctx, c, r)
}

// TestARefusalThatTheStoreHearsOfLate is no success, though its status says so.
func TestARefusalThatTheStoreHearsOfLate(t *testing.T) {
	for name, store := range map[string]throttle.Store{"late": lateStore{memstore.New()}, "never": deafStore{memstore.New()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(100), Answer: func(resp *http.Response) throttle.Answer {
					if seen, err := feedback.PeekBody(resp, 10); err != nil || string(seen) != "refused" {
						return throttle.Answer{}
					}
					return throttle.Refused(20 * time.Second)
				}}
				up := newUpstream(answer(200, "refused"), answer(200, "done"))
				tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: []throttle.Policy{p}, Base: up})
				require.NoError(t, err)
				resp, err := retry.NewClient(tr).Do(get(t))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "done", string(body))
				time.Sleep(time.Minute) // the store is told all the same
			})
		})
	}
}
