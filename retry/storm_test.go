package retry_test

import (
	"context"
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
